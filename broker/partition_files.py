"""What is done to partition directories on a worker: make, open, put aside, remove.

Owns the names below the data directory and the order in which they change. Must not know the
registry, the reactor or open logs.

Invariants:
    F1  Creating may be repeated: what an unfinished attempt left is taken over or removed, but
        never the partition of another topic, which is neither overwritten nor removed.
    F2  A deleted partition is renamed, durably, before any of it is removed, so that half of it
        never passes for a partition.
"""

from uuid import UUID

import msgspec

from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import AccessRefused, DamagedState, FileMissing
from ringlog.storage.files import MAX_NAME_BYTES, Directory
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.memory_files import MemoryDirectory, MemoryTree
from ringlog.storage.partition_identity import (
    PARTITION_IDENTITY_NAME,
    PartitionIdentity,
    load_partition_identity,
)
from ringlog.storage.raft_state import RaftState, load_raft_state
from ringlog.storage.recovery import create_partition, open_partition_log
from ringlog.storage.segment_recovery import RecoveryReport
from ringlog.storage.types import TopicPartition

DELETED_SUFFIX = ".deleted"


class Opened(msgspec.Struct, frozen=True):
    """A partition after recovery."""

    log: PartitionLog
    state: RaftState
    directory: Directory
    report: RecoveryReport


class Files:
    """The data directory and what all its partitions share. Any thread may call."""

    def __init__(
        self, root: Directory, marks: DurableMarks, voter: str, *, memory_bytes: int
    ) -> None:
        """Share `root`.

        Args:
            root: the data directory.
            marks: of the data directory.
            voter: its UUID: the only voter of a partition made here.
            memory_bytes: most that all partitions in memory take together.
        """
        self._root = root
        self._marks = marks
        self._voter = voter
        self._memory_root = MemoryDirectory(MemoryTree(memory_bytes))
        self._memory_root.create()
        self._memory_marks = DurableMarks.open(self._memory_root)

    @property
    def path(self) -> str:
        """Path of the data directory."""
        return self._root.path

    def create(
        self, identity: PartitionIdentity, config: LogConfig, *, in_memory: bool, now_ms: int
    ) -> Opened:
        """Make a partition durably and open it (F1).

        Raises:
            WrongDirectory: the directory holds another topic's partition, which stays as it is.
            DiskFull, LogDirFailed: as the file seam.
        """
        root, marks = self._place(in_memory=in_memory)
        directory = root.subdirectory(str(identity.topic_partition))
        create_partition(directory, marks, identity, configuration=[self._voter])
        return self.open(identity, config, in_memory=in_memory, now_ms=now_ms)

    def open(
        self, identity: PartitionIdentity, config: LogConfig, *, in_memory: bool, now_ms: int
    ) -> Opened:
        """Recover a partition that exists.

        Raises:
            DamagedLog, DamagedState, FileMissing, ReadFailed: flushed bytes are lost.
            WrongDirectory: it is another topic's, or of a newer version.
        """
        root, marks = self._place(in_memory=in_memory)
        directory = root.subdirectory(str(identity.topic_partition))
        opened = open_partition_log(directory, marks, identity, config, now_ms=now_ms)
        state = load_raft_state(directory, seed=identity.checksum_seed)
        return Opened(opened.log, state, directory, opened.report)

    def put_aside(self, identity: PartitionIdentity, *, in_memory: bool) -> None:
        """Rename a closed partition, durably, and drop its mark (F2). No error when absent."""
        root, marks = self._place(in_memory=in_memory)
        name = str(identity.topic_partition)
        if root.exists(name) and _may_be(root.subdirectory(name), identity):
            root.rename(name, deleted_name(identity.topic_partition, identity.topic_uuid))
            root.sync()
        marks.forget(identity.mark_key)

    def remove_aside(self, identity: PartitionIdentity, *, in_memory: bool) -> None:
        """Remove what was put aside. No error when absent."""
        root, _marks = self._place(in_memory=in_memory)
        root.remove_tree(deleted_name(identity.topic_partition, identity.topic_uuid))

    def remove_deleted(self) -> None:
        """Remove what a stop in the middle of a delete left behind."""
        for name in self._root.names():
            if name.endswith(DELETED_SUFFIX):
                self._root.remove_tree(name)

    def strangers(self, known: frozenset[str]) -> list[str]:
        """Directories of partitions whose names are not `known`, without those put aside."""
        return [
            name
            for name in self._root.names()
            if name not in known
            and not name.endswith(DELETED_SUFFIX)
            and _may_hold_partition(self._root.subdirectory(name))
        ]

    def free_bytes(self) -> int:
        """Free space of the data directory."""
        return self._root.free_bytes()

    def memory_free_bytes(self) -> int:
        """Room left for partitions in memory. Never waits."""
        return self._memory_root.free_bytes()

    def _place(self, *, in_memory: bool) -> tuple[Directory, DurableMarks]:
        if in_memory:
            return self._memory_root, self._memory_marks
        return self._root, self._marks


def _may_hold_partition(directory: Directory) -> bool:
    try:
        return directory.exists(PARTITION_IDENTITY_NAME)
    except AccessRefused:
        return True  # it cannot be told: better named than passed over


def _may_be(directory: Directory, identity: PartitionIdentity) -> bool:
    """Whether a directory holds this partition: only another topic's identity says that not."""
    try:
        found = load_partition_identity(directory)
    except (FileMissing, DamagedState):
        # Half made, or damaged: it stands where this partition belongs.
        return True
    return found.topic_uuid == identity.topic_uuid


def deleted_name(key: TopicPartition, topic_uuid: UUID) -> str:
    """Name of a partition put aside; a long topic name is cut, the UUID keeps it unique."""
    end = f"-{key.partition}.{topic_uuid.hex}{DELETED_SUFFIX}"
    return key.topic[: MAX_NAME_BYTES - len(end)] + end
