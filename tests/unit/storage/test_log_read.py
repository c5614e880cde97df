"""Reads: bounds, hot and cold pages, wrong indexes, damage."""

import pytest

from ringlog.storage.errors import DamagedLog, FileMissing, OffsetOutOfRange
from ringlog.storage.index import Coverage, SparseIndex
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.segment import segment_name, write_whole
from ringlog.storage.segment_list import KEPT_INDEXES
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import Offset, Position
from tests.crash.log_harness import NAME, Harness

CONFIG = LogConfig(segment_size_bytes=1000, index_interval_bytes=250, retention_ms=-1)


def filled(config: LogConfig = CONFIG) -> Harness:
    """Batches of two records, about 100 bytes each, in three segments."""
    harness = Harness(SimulatedDisk(), config)
    harness.start()
    for _i in range(24):
        harness.append(2, None, 1, 10)
    harness.flush()
    assert len(harness.log._segments) == 3
    return harness


def data_of(harness: Harness, first: int, end: int) -> bytes:
    return b"".join(
        e.data for e in harness.model.entries if first < e.end.offset <= end and e.header
    )


def offsets(log: PartitionLog, offset: int, max_bytes: int, end: int | None = None) -> range:
    found = log.read(Offset(offset), max_bytes, end=Offset(log.end.offset if end is None else end))
    assert found is not None
    return range(offset, found.next_offset)


def test_whole_batches_from_the_one_that_contains_the_offset() -> None:
    harness = filled()
    size = len(harness.model.entries[1].data)
    for offset in range(8):
        found = harness.log.read(Offset(offset), 3 * size, end=Offset(8))
        assert found is not None
        first = offset - offset % 2
        assert found.data == data_of(harness, first, found.next_offset)
        # perhaps fewer than fit: a read ends at an index entry
        assert offset < found.next_offset <= min(first + 6, 8)
        assert len(found.data) <= 3 * size


def test_one_batch_is_returned_even_when_it_is_larger_than_asked_for() -> None:
    harness = filled()
    assert offsets(harness.log, 5, 1) == range(5, 6)
    harness.append(1, None, 1, 50_000)
    harness.flush()
    last = harness.log.end.offset - 1
    assert offsets(harness.log, last, 1) == range(last, last + 1)


def test_a_read_ends_at_the_end_of_its_segment_and_at_the_end_given() -> None:
    harness = filled()
    bases = [segment.base_offset for segment in harness.log._segments]
    assert offsets(harness.log, 0, 10**6) == range(bases[1])
    assert offsets(harness.log, 0, 10**6, end=6) == range(6)
    assert offsets(harness.log, 0, 10**6, end=7) == range(6)  # not half a batch
    assert offsets(harness.log, 6, 10**6, end=7) == range(6, 6)


def test_nothing_beyond_what_is_written_is_read() -> None:
    harness = filled()
    end = harness.log.end.offset
    harness.append(2, None, 1)
    assert offsets(harness.log, end, 100) == range(end, end)
    with pytest.raises(OffsetOutOfRange, match=f"offset {end + 1} is outside"):
        harness.log.read(Offset(end + 1), 100, end=harness.log.end.offset)


def test_what_would_wait_for_a_disk_is_not_read_on_the_reactor() -> None:
    harness = filled()
    harness.restart_cleanly()
    log, end = harness.log, harness.log.end.offset
    assert log.read(Offset(0), 100, end=end, cached_only=True) is None  # not opened yet
    plan = log.plan_read(Offset(0), 100, end=end)
    assert plan is not None
    assert plan.run(cached_only=False) is not None
    assert log.read(Offset(0), 100, end=end, cached_only=True) is not None
    harness.disk.cold = True
    assert log.read(Offset(0), 100, end=end, cached_only=True) is None


@pytest.mark.parametrize(("cut", "appended"), [(20, 3), (46, 3), (46, 0)])
def test_a_plan_that_a_truncation_overtook_answers_none(cut: int, appended: int) -> None:
    """Its file is gone, other batches stand where its own were, or nothing does."""
    harness = filled()
    log = harness.log
    plan = log.plan_read(Offset(46), 1000, end=log.end.offset)
    assert plan is not None
    harness.truncate(Position(Offset(cut), 1))
    if appended:
        harness.append(appended, None, 1)
    harness.flush()
    assert plan.run(cached_only=False) is None


def test_a_plan_whose_segment_was_dropped_answers_none() -> None:
    harness = filled()
    log = harness.log
    plan = log.plan_read(Offset(0), 1000, end=log.end.offset)
    assert plan is not None
    harness.move_log_start(Offset(30))
    harness.flush()
    assert plan.run(cached_only=False) is None


def test_a_file_that_somebody_removed_is_an_error() -> None:
    harness = filled()
    harness.disk.directory().subdirectory(NAME).unlink(segment_name(Offset(0)))
    with pytest.raises(FileMissing):
        harness.log.read(Offset(0), 100, end=harness.log.end.offset)


def test_a_wrong_index_with_a_right_crc_costs_time_and_is_made_again() -> None:
    harness = filled()
    harness.restart_cleanly()
    log, place = harness.log, harness.log._disk.place
    segment = log._segments.containing(Offset(0))
    wrong = SparseIndex(Offset(0), 250)
    for i in range(6):
        wrong.note(Offset(2 * i + 1), 260 * i, -1)
    coverage = Coverage(Offset(0), segment.size_bytes, segment.next_offset, 1, 0, 0)
    offset_file, time_file = wrong.encode(coverage, seed=place.seed)
    write_whole(place.directory, segment_name(Offset(0), ".index"), offset_file)
    write_whole(place.directory, segment_name(Offset(0), ".timeindex"), time_file)
    for offset in range(segment.next_offset):
        found = log.read(Offset(offset), 1, end=log.end.offset)
        assert found is not None
        assert found.data == data_of(harness, offset - offset % 2, found.next_offset)
    index = segment.index_if_loaded()
    assert index is not None
    assert list(index.entries()) != list(wrong.entries())


def test_damage_names_file_byte_and_offsets_and_costs_only_its_batch() -> None:
    harness = filled()
    size = len(harness.model.entries[1].data)
    harness.disk.damage(f"{NAME}/{segment_name(Offset(0))}", 4 * size + 70, b"\xff")
    log, end = harness.log, harness.log.end.offset
    with pytest.raises(DamagedLog) as caught:
        log.read(Offset(8), 100, end=end)
    error = caught.value
    assert error.path.endswith(segment_name(Offset(0)))
    assert error.position == 4 * size
    assert error.first_offset == 8
    assert 10 <= error.end_offset <= log._segments.containing(Offset(8)).next_offset
    assert offsets(log, 4, size) == range(4, 6)
    assert offsets(log, 6, size) == range(6, 8)
    after = error.end_offset
    assert offsets(log, after, size) == range(after, after + 2)


def test_a_length_that_points_beyond_the_segment_is_damage() -> None:
    harness = filled()
    log = harness.log
    active = log._segments.active
    name = f"{NAME}/{segment_name(active.base_offset)}"
    harness.disk.damage(name, 8, (2**31 - 100).to_bytes(4, "big"))
    with pytest.raises(DamagedLog, match="states 2147483560 bytes"):
        log.read(active.base_offset, 100, end=log.end.offset)


def test_closed_segments_that_are_not_read_give_their_index_back() -> None:
    harness = Harness(SimulatedDisk(), LogConfig(segment_size_bytes=100, retention_ms=-1))
    harness.start()
    for _i in range(20):
        harness.append(1, None, 1)
        harness.flush()
    log, end = harness.log, harness.log.end.offset

    def loaded() -> int:
        return sum(segment.index_if_loaded() is not None for segment in log._segments)

    assert loaded() <= KEPT_INDEXES + 1
    for _turn in range(2):
        for offset in range(end):
            found = log.read(Offset(offset), 1, end=end)
            assert found is not None
            assert found.data == data_of(harness, offset, offset + 1)
        assert loaded() <= KEPT_INDEXES + 1
    assert log.offset_for_timestamp(1, end=end) == (0, 1)
    assert log.offset_for_timestamp(2, end=end) is None
    assert loaded() <= KEPT_INDEXES + 1
