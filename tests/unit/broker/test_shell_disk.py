"""Jobs go to the flusher as they are, the Raft state to a worker; both answer later."""

import errno
from uuid import UUID

import pytest

from ringlog.broker.shell_disk import ShellDisk
from ringlog.storage.errors import DiskFull
from ringlog.storage.log_job import LogJob
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.raft_state import RaftState, load_raft_state
from ringlog.storage.simulated_files import Call
from ringlog.storage.types import LeaderEpoch
from tests.unit.broker.core_bench import Bench

IDENTITY = PartitionIdentity(topic="t", topic_uuid=UUID(int=1), partition=0, created_ms=0)


@pytest.mark.parametrize("full", [False, True])
def test_a_state_is_durable_or_its_error_told_once_and_later(full: bool) -> None:
    bench = Bench()
    directory = bench.disk.directory().subdirectory("t-0")
    directory.create()
    if full:
        bench.disk.fail(Call.WRITE, name="raft-state", code=errno.ENOSPC)
    told: list[Exception | None] = []
    state = RaftState(term=LeaderEpoch(7))
    ShellDisk(bench, IDENTITY, directory).save_state(state, told.append)
    assert told == []
    bench.settle()
    (error,) = told
    if full:
        assert isinstance(error, DiskFull)
    else:
        assert error is None
        assert load_raft_state(directory, seed=IDENTITY.checksum_seed) == state


@pytest.mark.parametrize("sync", [False, True])
def test_a_job_is_flushed_only_when_that_is_asked_for(sync: bool) -> None:
    bench = Bench()
    bench.create()
    partition = bench.partition()
    directory = bench.disk.directory().subdirectory("t-0")
    done: list[tuple[LogJob, Exception | None]] = []
    job = partition.close_job()
    ShellDisk(bench, IDENTITY, directory).store(job, lambda *ended: done.append(ended), sync=sync)
    assert done == []
    bench.settle()
    assert done == [(job, None)]
    assert job.flushed is sync
