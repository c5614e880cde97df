"""Segments of two partitions of the same shape are exchanged; neither serves the other's records.

Nothing in a batch says of which partition it is: offsets, epochs and sizes are all the same here.
"""

import functools
import random
from dataclasses import dataclass
from uuid import UUID

import pytest

from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import DamagedLog
from ringlog.storage.findings import Severity
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.producer_replay import PRODUCER_CACHES
from ringlog.storage.raft_log import EntryKind
from ringlog.storage.record_batch import HEADER_SIZE, read_header
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.recovery import OpenedLog, create_partition, open_partition_log
from ringlog.storage.segment import CACHE_SUFFIXES, LOG_SUFFIX, segment_name
from ringlog.storage.simulated_files import SimulatedDisk, SimulatedFile
from ringlog.storage.types import LeaderEpoch, Offset, Position
from ringlog.storage.verify import verify_data_directory
from tests.crash.log_harness import KILL, read_all

CONFIG = LogConfig(segment_size_bytes=700, retention_ms=-1, index_interval_bytes=150)
IDENTITIES = tuple(
    PartitionIdentity(topic="t", topic_uuid=UUID(int=7), partition=i, created_ms=1) for i in (0, 1)
)
COUNT = 12
SEALED, ACTIVE = Offset(0), Offset(8)


def directory_name(i: int) -> str:
    return f"t-{i}"


def open_log(disk: SimulatedDisk, i: int) -> OpenedLog:
    root = disk.directory()
    root.create()
    marks, directory = DurableMarks.open(root), root.subdirectory(directory_name(i))
    if not root.exists(directory_name(i)):
        create_partition(directory, marks, IDENTITIES[i], configuration=["a"])
    return open_partition_log(directory, marks, IDENTITIES[i], CONFIG, now_ms=1)


def finish(log: PartitionLog, *, closing: bool) -> None:
    job = log.close_job() if closing else log.take_job(flush=True)
    if job is not None:
        job.write()
        job.sync()
        job.mark()
        log.on_job_done(job)
    if closing:
        log.close()


def append(log: PartitionLog, i: int, count: int) -> None:
    for n in range(count):
        payload = encode_batch([b"%d" % i * 90 + b"%03d" % n], timestamps=100 + n)
        log.append(payload, read_header(payload), leader_epoch=LeaderEpoch(1), now_ms=1)
    finish(log, closing=False)


def filled(disk: SimulatedDisk, i: int, *, closing: bool = True) -> bytes:
    log = open_log(disk, i).log
    log.append_own(EntryKind.TERM_OPENING, LeaderEpoch(1), b"")
    append(log, i, COUNT)
    data = read_all(log, Offset(0))
    finish(log, closing=closing)
    return data


@dataclass(frozen=True)
class Stopped:
    disk: SimulatedDisk
    data: tuple[bytes, bytes]

    def image(self) -> SimulatedDisk:
        return self.disk.image(random.Random(0), KILL)


@functools.cache
def stopped() -> Stopped:
    disk = SimulatedDisk()
    data = filled(disk, 0), filled(disk, 1)
    assert data[0] != data[1]
    return Stopped(disk, data)


def exchange(disk: SimulatedDisk, names: list[str]) -> None:
    directories = [disk.directory().subdirectory(directory_name(i)) for i in (0, 1)]
    for name in names:
        contents = []
        for directory in directories:
            file = directory.open(name)
            contents.append(file.pread(file.size_bytes(), 0))
        for directory, content in zip(directories, reversed(contents), strict=True):
            file = directory.open(name)
            file.pwrite([content], 0)
            file.truncate(len(content))


def names_of(disk: SimulatedDisk, base: Offset, *, caches: bool) -> list[str]:
    names = [segment_name(base, LOG_SUFFIX)]
    if caches:
        names += [segment_name(base, suffix) for suffix in CACHE_SUFFIXES]
        names += PRODUCER_CACHES
    directory = disk.directory().subdirectory(directory_name(0))
    return [name for name in names if directory.exists(name)]


def damage_of(disk: SimulatedDisk) -> list[str]:
    return [
        finding.path
        for verdict in verify_data_directory(disk.directory())
        for finding in verdict.findings
        if finding.severity is Severity.DAMAGE
    ]


def refuse(disk: SimulatedDisk, i: int, base: Offset) -> DamagedLog:
    """Open and read the segment: at one of the two it is refused."""
    with pytest.raises(DamagedLog, match="of another log or of an older copy") as refused:
        open_log(disk, i).log.read(base, 300, end=Offset(COUNT))
    return refused.value


def test_the_shape_is_the_same_and_the_bases_are_those_used_here() -> None:
    ours, theirs = (
        [segment.base_offset for segment in open_log(stopped().image(), i).log._segments]
        for i in (0, 1)
    )
    assert ours == theirs
    assert (ours[0], ours[-1]) == (SEALED, ACTIVE)
    assert damage_of(stopped().image()) == []


@pytest.mark.parametrize("caches", [False, True])
@pytest.mark.parametrize("base", [SEALED, ACTIVE])
@pytest.mark.parametrize("i", [0, 1])
def test_an_exchanged_segment_is_refused_and_named(i: int, base: Offset, caches: bool) -> None:
    disk = stopped().image()
    exchange(disk, names_of(disk, base, caches=caches))
    assert damage_of(disk) == [segment_name(base)] * 2
    error = refuse(disk, i, base)
    assert error.path.endswith(f"{directory_name(i)}/{segment_name(base)}")
    assert (error.position, error.first_offset) == (0, base)
    assert error.end_offset == (COUNT if base == ACTIVE else 4)


@pytest.mark.parametrize("base", [SEALED, ACTIVE])
def test_the_reactor_serves_nothing_of_it_and_the_other_segments_are_served(base: Offset) -> None:
    disk = stopped().image()
    exchange(disk, names_of(disk, base, caches=False))
    log = open_log(disk, 0).log
    assert log.read(base, 300, end=Offset(COUNT), cached_only=True) is None
    for offset in (5, 7):
        result = log.read(Offset(offset), 1, end=Offset(COUNT))
        assert result is not None
        assert result.data in stopped().data[0]
    with pytest.raises(DamagedLog, match="of another log"):
        log.offset_for_timestamp(100 + base, end=Offset(COUNT))


def test_caches_that_were_exchanged_alone_cost_nothing_but_time() -> None:
    disk = stopped().image()
    for base in (SEALED, ACTIVE):
        exchange(disk, [n for n in names_of(disk, base, caches=True) if n[-4:] != LOG_SUFFIX])
    assert damage_of(disk) == []
    for i in (0, 1):
        assert read_all(open_log(disk, i).log, Offset(0)) == stopped().data[i]


def test_what_is_appended_behind_an_exchanged_segment_does_not_hide_it() -> None:
    """Nobody reads before the next stop: the note of the bytes goes on, it is not made anew."""
    disk = stopped().image()
    exchange(disk, names_of(disk, ACTIVE, caches=False))
    for i in (0, 1):
        log = open_log(disk, i).log
        append(log, i, 9)
        assert log._segments.active.base_offset > ACTIVE
        finish(log, closing=True)
    assert damage_of(disk) == [segment_name(ACTIVE)] * 2
    refuse(disk, 0, ACTIVE)


@pytest.mark.parametrize("base", [SEALED, ACTIVE])
def test_a_truncation_into_an_exchanged_segment_is_refused(base: Offset) -> None:
    """After the cut nobody could tell whose bytes they were."""
    disk = stopped().image()
    exchange(disk, names_of(disk, base, caches=False))
    log = open_log(disk, 0).log
    log.truncate(Position(Offset(base + 1), 1))
    assert log.read(base, 300, end=Offset(COUNT), cached_only=True) is None
    job = log.take_job()
    assert job is not None
    with pytest.raises(DamagedLog, match="of another log"):
        job.write()


def test_producers_are_not_learned_from_an_exchanged_segment() -> None:
    """A move of the log start replays what it drops."""
    disk = stopped().image()
    exchange(disk, names_of(disk, SEALED, caches=False))
    log = open_log(disk, 0).log
    log.move_log_start(Offset(4))
    job = log.take_job()
    assert job is not None
    with pytest.raises(DamagedLog, match="of another log"):
        job.write()


def test_a_plan_whose_segment_is_no_longer_of_the_log_finds_no_damage() -> None:
    disk = stopped().image()
    exchange(disk, names_of(disk, SEALED, caches=False))
    log = open_log(disk, 0).log
    plan = log.plan_read(SEALED, 300, end=Offset(COUNT))
    assert plan is not None
    log.move_log_start(Offset(4))
    assert plan.run(cached_only=False) is None


def test_a_truncation_into_a_good_segment_is_served_and_stopped() -> None:
    disk = stopped().image()
    log = open_log(disk, 0).log
    log.truncate(Position(Offset(ACTIVE + 1), 1))
    finish(log, closing=False)
    finish(log, closing=True)
    opened = open_log(disk, 0)
    assert opened.report.clean
    assert not opened.report.rebuilt
    assert stopped().data[0].startswith(read_all(opened.log, Offset(0)))
    assert damage_of(disk) == []


def test_after_a_kill_closed_segments_are_refused_and_the_next_stop_binds_the_active_one() -> None:
    disk = SimulatedDisk()
    for i in (0, 1):
        filled(disk, i, closing=False)
    killed = disk.image(random.Random(0), KILL)
    exchange(killed, names_of(killed, SEALED, caches=True))
    assert damage_of(killed) == [segment_name(SEALED)] * 2
    refuse(killed, 0, SEALED)
    again = disk.image(random.Random(0), KILL)
    for i in (0, 1):
        opened = open_log(again, i)
        assert not opened.report.clean
        finish(opened.log, closing=True)
    exchange(again, names_of(again, ACTIVE, caches=False))
    assert damage_of(again) == [segment_name(ACTIVE)] * 2
    refuse(again, 1, ACTIVE)


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Name, size and position of each read of a segment from now on."""
    reads: list[tuple[str, int, int]] = []
    pread = SimulatedFile.pread

    def counted(file: SimulatedFile, size_bytes: int, position: int) -> bytes:
        if file.name.endswith(LOG_SUFFIX):
            reads.append((file.name, size_bytes, position))
        return pread(file, size_bytes, position)

    monkeypatch.setattr(SimulatedFile, "pread", counted)
    return reads


def test_a_stop_after_a_crash_notes_what_the_recovery_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    filled(disk, 0, closing=False)
    killed = disk.image(random.Random(0), KILL)
    log = open_log(killed, 0).log
    reads = counted_reads(monkeypatch)
    append(log, 0, 1)
    assert log._segments.active.base_offset > ACTIVE
    finish(log, closing=True)
    assert reads == []


def test_opening_reads_no_segment_and_reading_compares_each_file_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = stopped().image()
    reads = counted_reads(monkeypatch)
    log = open_log(disk, 0).log
    assert reads == []
    for base in (SEALED, ACTIVE):
        assert log.read(base, 1, end=Offset(COUNT), cached_only=True) is None
        assert reads == []
        assert log.read(base, 1, end=Offset(COUNT)) is not None
        assert len(reads) == 2, "the whole file, then what was asked for"
        reads.clear()
        assert log.read(Offset(base + 1), 1, end=Offset(COUNT), cached_only=True) is not None
        assert log.read(Offset(base + 1), 1, end=Offset(COUNT)) is not None
        assert [size for _name, size, _position in reads] == [reads[0][1]] * 2
        assert reads[0][1] < log._segments.containing(base).size_bytes
        reads.clear()


def test_a_read_that_fails_leaves_the_comparison_for_the_next() -> None:
    disk = stopped().image()
    log = open_log(disk, 0).log
    disk.flip_read(9, name=segment_name(SEALED))
    with pytest.raises(DamagedLog, match="or damaged"):
        log.read(SEALED, 1, end=Offset(COUNT))
    assert log.read(SEALED, 1, end=Offset(COUNT)) is not None


@pytest.mark.parametrize("base", [SEALED, ACTIVE])
def test_a_damaged_batch_is_told_where_it_is_and_the_good_ones_before_it_are_served(
    base: Offset,
) -> None:
    disk = stopped().image()
    name = f"{directory_name(0)}/{segment_name(base)}"
    whole = disk.durable_bytes(name)
    assert whole is not None
    second = read_header(whole).size_bytes
    disk.damage(name, second + HEADER_SIZE, bytes([whole[second + HEADER_SIZE] ^ 1]))
    log = open_log(disk, 0).log
    first = log.read(base, 1, end=Offset(COUNT))
    assert first is not None
    assert first.data == whole[:second]
    with pytest.raises(DamagedLog) as caught:
        log.read(first.next_offset, 1, end=Offset(COUNT))
    assert (caught.value.position, caught.value.first_offset) == (second, first.next_offset)
