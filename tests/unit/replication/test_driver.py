"""Durable before sent: what moves the commit position, and what never does."""

from collections.abc import Callable
from uuid import UUID

import pytest

from ringlog.replication.driver import Driver
from ringlog.replication.replicator import SoloReplicator
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import DiskFull, LogDirFailed
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.log_job import LogJob
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.raft_state import RaftState, load_raft_state, save_raft_state
from ringlog.storage.record_batch import read_header
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.recovery import create_partition, open_partition_log
from ringlog.storage.types import Offset, Position

BATCH = encode_batch([b"v"])
IDENTITY = PartitionIdentity(topic="t", topic_uuid=UUID(int=1), partition=0, created_ms=0)

Done = Callable[[LogJob, Exception | None], None]


class World:
    """Disk and owner of one driver; jobs wait until `finish`."""

    def __init__(self, *, flushed: bool = True) -> None:
        root = MemoryDirectory()
        root.create()
        self.directory = root.subdirectory("t-0")
        marks = DurableMarks.open(root)
        create_partition(self.directory, marks, IDENTITY, configuration=["me"])
        opened = open_partition_log(self.directory, marks, IDENTITY, LogConfig(), now_ms=0)
        self.log: PartitionLog = opened.log
        self.jobs: list[tuple[LogJob, Done, bool]] = []
        self.saves: list[tuple[RaftState, Callable[[Exception | None], None]]] = []
        self.told: list[tuple[str, object]] = []
        state = load_raft_state(self.directory, seed=IDENTITY.checksum_seed)
        replicator = SoloReplicator(state, voter="me", committed=self.log.base)
        self.driver = Driver(self.log, replicator, self, flushed=flushed)
        self.driver.attach(self)

    # -- Disk

    def store(self, job: LogJob, on_done: Done, *, sync: bool) -> None:
        self.jobs.append((job, on_done, sync))

    def save_state(self, state: RaftState, on_done: Callable[[Exception | None], None]) -> None:
        self.saves.append((state, on_done))

    # -- Owner

    def on_released(self, size_bytes: int) -> None:
        if size_bytes:
            self.told.append(("released", size_bytes))

    def on_committed(self, position: Position) -> None:
        self.told.append(("committed", position))

    def on_log_start(self, log_start: Offset) -> None:
        self.told.append(("log start", log_start))

    def on_disk_full(self, error: Exception) -> None:
        self.told.append(("full", str(error)))

    def on_storage_failed(self, error: Exception) -> None:
        self.told.append(("failed", str(error)))

    # -- steps

    def finish(self, error: Exception | None = None) -> bool:
        """End the job under way; says whether it was flushed."""
        job, on_done, sync = self.jobs.pop(0)
        if error is None:
            job.write()
            if sync:
                job.sync()
                job.mark()
        on_done(job, error)
        return sync

    def begin(self) -> "World":
        """Start, and commit the opening."""
        self.driver.start(0)
        state, saved = self.saves.pop()
        save_raft_state(self.directory, state, seed=IDENTITY.checksum_seed)
        saved(None)
        self.finish()
        self.told.clear()
        return self

    def append(self) -> Offset:
        offset = self.driver.append(BATCH, read_header(BATCH), 0)
        self.driver.pump()
        return offset


def at(offset: int, own: int = 1) -> Position:
    return Position(Offset(offset), own)


def facts(world: World) -> tuple[bool, bool]:
    """Whether it leads, and whether it knows its commit position."""
    return world.driver.leads, world.driver.knows_commit


def test_the_opening_waits_for_the_term_to_be_stored() -> None:
    world = World()
    world.driver.start(0)
    assert world.jobs == []
    assert facts(world) == (False, False)
    world.saves.pop()[1](None)
    assert facts(world) == (True, False)
    world.finish()
    assert facts(world) == (True, True)
    assert world.told == [("committed", at(0))]


def test_a_commit_comes_with_the_end_of_a_job_and_never_with_an_append() -> None:
    world = World().begin()
    assert world.append() == 0
    assert world.told == []
    assert world.driver.committed == at(0)
    world.finish()
    assert world.told == [("released", len(BATCH)), ("committed", at(1))]


def test_one_job_at_a_time_carries_all_that_came_meanwhile() -> None:
    world = World().begin()
    for _ in range(3):
        world.append()
    assert len(world.jobs) == 1
    world.finish()
    assert world.driver.committed == at(1)
    assert len(world.jobs) == 1
    world.finish()
    assert world.driver.committed == at(3)
    assert world.jobs == []


def test_a_weak_policy_commits_what_is_written_but_flushes_its_own_entries() -> None:
    world = World(flushed=False)
    world.driver.start(0)
    world.saves.pop()[1](None)
    assert world.finish() is True
    world.append()
    assert world.finish() is False
    assert world.driver.committed == at(1)
    assert world.log.durable == at(0)
    world.driver.pump(sync=True)
    assert world.finish() is True
    assert world.log.durable == at(1)
    world.driver.pump(sync=True)
    assert world.jobs == [], "nothing was left to flush"


def test_a_sync_asked_for_while_a_job_runs_is_not_lost() -> None:
    world = World(flushed=False)
    world.driver.start(0)
    world.saves.pop()[1](None)
    world.finish()
    world.append()
    world.driver.pump(sync=True)
    assert world.finish() is False
    assert world.finish() is True
    assert world.log.durable == at(1)


def test_a_log_start_moves_once_committed_and_is_told_once_durable() -> None:
    world = World().begin()
    world.append()
    world.append()
    world.finish()
    world.finish()
    world.told.clear()
    assert world.driver.propose_log_start(Offset(1)) == at(2, 2)
    world.driver.pump()
    assert world.log.log_start == 0
    world.finish()
    assert world.log.log_start == 1
    assert world.told == [("committed", at(2, 2))]
    world.finish()
    assert world.told[1:] == [("log start", 1)]


def test_own_entries_commit_again_after_a_restart_and_undo_nothing() -> None:
    world = World().begin()
    for _ in range(3):
        world.append()
        world.finish()
    for offset in (2, 1):
        world.driver.propose_log_start(Offset(offset))
        world.driver.pump()
        world.finish()
    while world.jobs:
        world.finish()
    assert world.log.log_start == 2


def test_after_a_failed_job_nothing_commits_and_nothing_is_stored() -> None:
    world = World().begin()
    world.append()
    world.append()
    world.finish(LogDirFailed("no"))
    assert world.told[0][0] == "released"
    assert world.told[-1] == ("failed", "no")
    assert world.driver.committed == at(0)
    world.append()
    world.driver.pump(sync=True)
    assert world.jobs == []
    released = sum(size for what, size in world.told if what == "released" and type(size) is int)
    assert released == 2 * len(BATCH)


def test_a_term_that_cannot_be_stored_is_a_failure() -> None:
    world = World()
    world.driver.start(0)
    world.saves.pop()[1](LogDirFailed("no"))
    assert world.told == [("failed", "no")]
    assert not world.driver.leads


def test_a_full_disk_keeps_the_job_for_a_retry_in_order() -> None:
    world = World().begin()
    world.append()
    job = world.jobs[0][0]
    world.finish(DiskFull("full"))
    assert world.told == [("full", "full")]
    world.append()
    assert world.jobs == [], "a later job overtook the one that waits"
    world.driver.retry()
    assert world.jobs[0][0] is job
    world.driver.retry()
    assert len(world.jobs) == 1, "stored twice"
    world.finish()
    world.finish()
    assert world.driver.committed == at(2)


def test_an_abandoned_driver_gives_its_bytes_back_and_stores_nothing_more() -> None:
    world = World().begin()
    idle: list[bool] = []
    world.append()
    world.append()
    world.driver.abandon()
    world.driver.when_idle(lambda: idle.append(True))
    assert idle == []
    world.finish()
    assert idle == [True]
    assert world.jobs == []
    released = sum(size for what, size in world.told if what == "released" and type(size) is int)
    assert released == 2 * len(BATCH)


def test_an_abandoned_job_that_waits_for_space_is_given_up() -> None:
    world = World().begin()
    idle: list[bool] = []
    world.append()
    world.finish(DiskFull("full"))
    world.driver.abandon()
    world.driver.when_idle(lambda: idle.append(True))
    assert idle == [True]
    world.driver.retry()
    assert world.jobs == []


def test_idleness_is_told_once_nothing_is_pending() -> None:
    world = World().begin()
    idle: list[bool] = []
    world.append()
    world.append()
    world.driver.when_idle(lambda: idle.append(True))
    world.finish()
    assert idle == []
    world.finish()
    assert idle == [True]
    world.append()
    world.finish()
    assert idle == [True]


def test_a_close_job_is_the_last_one() -> None:
    world = World().begin()
    world.append()
    world.finish()
    world.driver.close_job()
    world.driver.pump(sync=True)
    assert world.jobs == []


def test_only_a_leader_appends_and_never_above_the_high_watermark() -> None:
    world = World()
    with pytest.raises(AssertionError, match="only a leader"):
        world.driver.append(BATCH, read_header(BATCH), 0)
    world.begin()
    with pytest.raises(AssertionError, match="high watermark"):
        world.driver.propose_log_start(Offset(1))
