"""Making and opening a partition."""

import random

import msgspec
import pytest

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import DamagedLog, DamagedState, WrongDirectory
from ringlog.storage.files import Directory
from ringlog.storage.log_config import LogConfig
from ringlog.storage.partition_identity import PARTITION_IDENTITY_NAME
from ringlog.storage.raft_log import EntryKind
from ringlog.storage.raft_state import RaftState, load_raft_state, save_raft_state
from ringlog.storage.recovery import create_partition, open_partition_log
from ringlog.storage.segment import segment_name, write_whole
from ringlog.storage.simulated_files import Call, SimulatedCrash, SimulatedDisk
from ringlog.storage.start_state import StartState, load_start_state, save_start_state
from ringlog.storage.types import LOG_BEGIN, LeaderEpoch, Offset, Position
from tests.crash.log_harness import IDENTITY, KILL, LOSE_ALL, NAME, Harness, check, open_on

SEED = IDENTITY.checksum_seed
NOWHERE = random.Random(0)


def empty() -> tuple[SimulatedDisk, Directory, DurableMarks]:
    disk = SimulatedDisk()
    root = disk.directory()
    root.create()
    return disk, root.subdirectory(NAME), DurableMarks.open(root)


def filled() -> Harness:
    harness = Harness(SimulatedDisk())
    harness.start()
    for i in range(8):
        harness.append(2, i % 2, i, 100)
    harness.append_own()
    harness.append(1, None, 9)
    harness.flush()
    return harness


def stopped() -> SimulatedDisk:
    harness = filled()
    job = harness.log.close_job()
    job.write()
    job.sync()
    job.mark()
    harness.log.close()
    return harness.disk.image(NOWHERE, KILL)


def test_making_a_partition_may_be_cut_anywhere_and_repeated() -> None:
    disk, directory, marks = empty()
    before = disk.call_count
    create_partition(directory, marks, IDENTITY, configuration=["b", "a"])
    calls = disk.call_count - before
    for call in range(1, calls + 1):
        disk, directory, marks = empty()
        disk.crash_at(disk.call_count + call, after=bool(call % 2))
        with pytest.raises(SimulatedCrash):
            create_partition(directory, marks, IDENTITY, configuration=["b", "a"])
        for mode in (CrashMode.KILL, CrashMode.LOSE_ALL):
            again = disk.crash(NOWHERE, mode)
            marks = DurableMarks.open(again.directory())
            directory = again.directory().subdirectory(NAME)
            create_partition(directory, marks, IDENTITY, configuration=["b", "a"])
            opened = open_partition_log(directory, marks, IDENTITY, LogConfig(), now_ms=0)
            assert opened.log.end == LOG_BEGIN
            start = opened.log.start_state
            assert start is not None
            assert start.configuration == ("a", "b")


def test_another_partitions_directory_is_refused() -> None:
    _disk, directory, marks = empty()
    create_partition(directory, marks, IDENTITY, configuration=["a"])
    create_partition(directory, marks, IDENTITY, configuration=["a"])
    other = msgspec.structs.replace(IDENTITY, partition=4)
    with pytest.raises(WrongDirectory, match="holds partition 3"):
        create_partition(directory, marks, other, configuration=["a"])
    with pytest.raises(WrongDirectory, match="holds partition 3"):
        open_partition_log(directory, marks, other, LogConfig(), now_ms=0)


def test_a_blank_replica_takes_a_reset_first_and_then_lives() -> None:
    disk, directory, marks = empty()
    create_partition(directory, marks, IDENTITY, configuration=None)
    log = open_partition_log(directory, marks, IDENTITY, LogConfig(), now_ms=0).log
    assert log.is_blank
    assert not log.start_state
    start = StartState(
        base_offset=Offset(40),
        base_own=3,
        term_before=LeaderEpoch(2),
        configuration=("a",),
        log_start=Offset(41),
    )
    log.reset(start, now_ms=5)
    job = log.take_job()
    assert job is not None
    job.write()
    assert not log.start_state
    job.sync()
    job.mark()
    log.on_job_done(job)
    assert log.start_state == start
    for mode in (KILL, LOSE_ALL):
        _marks, opened = open_on(disk.image(NOWHERE, mode))
        assert not opened.log.is_blank
        assert (opened.log.end, opened.log.log_start) == (Position(Offset(40), 3), 41)


def test_a_blank_replica_can_be_closed_and_opened() -> None:
    _disk, directory, marks = empty()
    create_partition(directory, marks, IDENTITY, configuration=None)
    for _turn in range(2):
        log = open_partition_log(directory, marks, IDENTITY, LogConfig(), now_ms=0).log
        assert log.is_blank
        job = log.close_job()
        job.write()
        job.sync()
        job.mark()
        log.on_job_done(job)
        log.close()


def test_a_reset_that_was_cut_off_is_finished() -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    start = StartState(
        base_offset=Offset(70), base_own=9, log_start=Offset(70), reset_under_way=True
    )
    save_start_state(directory, start, seed=SEED)
    _marks, opened = open_on(disk)
    assert opened.log.end == opened.log.base == Position(Offset(70), 9)
    names = directory.names()
    assert segment_name(Offset(70)) in names
    assert segment_name(Offset(0)) not in names
    saved = load_start_state(directory, seed=SEED)
    assert saved is not None
    assert not saved.reset_under_way


def test_a_clean_start_reads_no_segment() -> None:
    disk = stopped()
    disk.fail(Call.READ, name=".log")
    _marks, opened = open_on(disk)
    assert opened.report.clean
    assert opened.report.notes() == []


@pytest.mark.parametrize(
    "name", ["index", "timeindex", "seal", "producer-snapshot", "producer-snapshot-roll"]
)
def test_caches_that_are_gone_are_made_again(name: str) -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    for found in directory.names():
        if found.endswith(name):
            directory.unlink(found)
    _marks, opened = open_on(disk)
    assert opened.log.end == Position(Offset(17), 2)
    made_again = any("made again" in note for note in opened.report.notes())
    assert made_again == (name != "producer-snapshot-roll")


def test_without_its_durable_mark_a_partition_is_not_opened() -> None:
    disk = stopped()
    disk.directory().unlink("durable-marks")
    with pytest.raises(DamagedState, match="no durable mark"):
        open_on(disk)


def test_without_its_start_state_a_partition_is_not_taken_for_a_blank_one() -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    directory.unlink("start-state")
    with pytest.raises(DamagedState, match="start-state is gone"):
        open_on(disk)
    for name in directory.names():
        if name not in {PARTITION_IDENTITY_NAME, "raft-state"}:
            directory.unlink(name)
    with pytest.raises(DamagedState, match="start-state is gone"):
        open_on(disk)


def test_lost_own_entries_are_told_from_lost_batches() -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    directory.open("raft-log").truncate(10)
    with pytest.raises(DamagedLog, match="own entries from number 0 on") as caught:
        open_on(disk)
    assert caught.value.path.endswith("raft-log")


def test_files_below_the_base_and_half_written_ones_are_removed() -> None:
    disk = filled().disk.image(NOWHERE, KILL)
    directory = disk.directory().subdirectory(NAME)
    write_whole(directory, segment_name(Offset(900)), b"torn")
    write_whole(directory, segment_name(Offset(900), ".seal"), b"torn")
    _marks, opened = open_on(disk)
    assert opened.log.end == Position(Offset(17), 2)
    assert segment_name(Offset(900)) not in directory.names()
    assert segment_name(Offset(900), ".seal") not in directory.names()
    assert opened.report.cut_bytes == 4


def test_the_vote_state_is_written_again_but_never_changed() -> None:
    disk = filled().disk.image(NOWHERE, KILL)
    directory = disk.directory().subdirectory(NAME)
    state = RaftState(term=LeaderEpoch(9), voted_for="a", life=2)
    save_raft_state(directory, state, seed=SEED)
    disk.damage(f"{NAME}/raft-state", 12, b"?")
    _marks, opened = open_on(disk)
    assert not opened.report.clean
    assert load_raft_state(directory, seed=SEED) == state
    disk.damage(f"{NAME}/raft-state", 0, b"?" * 30)
    half = len(directory.open("raft-state").pread(10_000, 0)) // 2
    disk.damage(f"{NAME}/raft-state", half, b"?" * 30)
    with pytest.raises(DamagedState):
        open_on(disk)


def test_what_lies_above_the_mark_is_written_again_before_it_counts() -> None:
    harness = filled()
    harness.append(1, None, 1)
    harness.write_only()
    disk = harness.disk.image(NOWHERE, KILL)
    marks, opened = open_on(disk)
    assert opened.log.end == harness.log.end
    mark = marks.get(IDENTITY.mark_key)
    assert mark is not None
    assert mark.position == opened.log.end  # from now on it is damage that cuts it
    assert opened.report.rewritten_bytes == len(harness.model.entries[-1].data)
    assert any("wrote" in note for note in opened.report.notes())
    _marks, again = open_on(disk.crash(NOWHERE, LOSE_ALL))
    check(again.log, harness.model.versions())
    assert again.log.end == harness.log.end


def test_a_truncation_that_was_killed_does_not_come_undone_behind_a_clean_mark() -> None:
    """The log is as long as its clean mark says, but the cut was never flushed."""
    for call in range(1, 9):
        harness = Harness(SimulatedDisk())
        harness.start()
        harness.append(1, None, 1)
        harness.restart_cleanly()
        end = harness.log.end
        harness.append(1, None, 1)
        job = harness.log.take_job()
        assert job is not None
        job.write()
        job.sync()
        harness.log.on_job_done(job)
        harness.log.truncate(end)
        job = harness.log.take_job()
        assert job is not None
        harness.disk.crash_at(harness.disk.call_count + call, after=False)
        try:
            job.write()
        except SimulatedCrash:
            killed = harness.disk.crash(NOWHERE, KILL)
            _marks, opened = open_on(killed)
            _marks, again = open_on(killed.crash(NOWHERE, LOSE_ALL))
            assert again.log.end == opened.log.end


def test_what_was_cut_never_comes_back() -> None:
    """A good batch behind a torn one must not follow the one that takes its place."""
    harness = Harness(SimulatedDisk())
    harness.start()
    harness.append_own()
    harness.flush()
    harness.append(1, None, 1)
    harness.append(1, None, 1)
    harness.write_only()
    disk = harness.disk.image(NOWHERE, KILL)
    disk.damage(f"{NAME}/{segment_name(Offset(0))}", 70, b"?")
    marks, opened = open_on(disk)
    harness.take_over(opened, marks, disk)
    assert opened.log.end.offset == 0
    harness.append(1, None, 1)  # as long as the one that was torn
    harness.write_only()
    _marks, again = open_on(disk.crash(NOWHERE, KILL))
    assert again.log.end.offset == 1


@pytest.mark.parametrize("name", ["raft-log", "raft-state", "start-state"])
def test_a_file_of_another_partition_does_not_pass(name: str) -> None:
    """Two partitions with the same history: only what binds a file to its own tells them apart."""
    disk = SimulatedDisk()
    root = disk.directory()
    root.create()
    marks = DurableMarks.open(root)
    other = msgspec.structs.replace(IDENTITY, partition=IDENTITY.partition + 1)
    for identity in (IDENTITY, other):
        directory = root.subdirectory(str(identity.topic_partition))
        create_partition(directory, marks, identity, configuration=["a"])
        log = open_partition_log(directory, marks, identity, LogConfig(), now_ms=0).log
        log.append_own(EntryKind.TERM_OPENING, LeaderEpoch(1), b"")
        job = log.close_job()
        job.write()
        job.sync()
        job.mark()
        log.on_job_done(job)
        log.close()
    mine = root.subdirectory(str(IDENTITY.topic_partition))
    theirs = root.subdirectory(str(other.topic_partition)).open(name)
    data = theirs.pread(theirs.size_bytes(), 0)
    file = mine.open(name)
    file.truncate(0)
    file.pwrite([data], 0)
    with pytest.raises((DamagedLog, DamagedState)):
        open_partition_log(mine, marks, IDENTITY, LogConfig(), now_ms=0)
