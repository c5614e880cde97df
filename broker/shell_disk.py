"""What the driver of one partition asks of the disk, done by the threads of the shell.

Owns nothing but the hand-over. Must not know what a job writes, nor when one is due.

Invariants:
    SD1 Each call is answered once, by the shell, and never inside the call itself.
"""

from collections.abc import Callable

from ringlog.broker.shell import Shell
from ringlog.storage.files import Directory
from ringlog.storage.log_job import LogJob
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.raft_state import RaftState, save_raft_state


class ShellDisk:
    """`replication.driver.Disk` of one partition, by the shell's threads."""

    __slots__ = ("_directory", "_key", "_seed", "_shell")

    def __init__(self, shell: Shell, identity: PartitionIdentity, directory: Directory) -> None:
        self._shell = shell
        self._key = identity.topic_partition
        self._seed = identity.checksum_seed
        self._directory = directory

    def store(
        self, job: LogJob, on_done: Callable[[LogJob, Exception | None], None], *, sync: bool
    ) -> None:
        """Write the job, and with `sync` flush and mark it."""
        self._shell.flush(self._key, job, on_done, sync=sync)

    def save_state(self, state: RaftState, on_done: Callable[[Exception | None], None]) -> None:
        """Make `raft-state` durable."""
        directory, seed = self._directory, self._seed
        self._shell.run(
            lambda: save_raft_state(directory, state, seed=seed),
            lambda _result, error: on_done(error),
        )
