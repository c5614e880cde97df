"""Where a batch begins that becomes the end of the log."""

import pytest

from ringlog.storage.errors import DamagedLog
from ringlog.storage.log_tail import UnwrittenBatches, place_of
from ringlog.storage.segment import segment_name
from ringlog.storage.types import Offset
from tests.crash.log_harness import NAME, Harness
from tests.unit.storage.test_log_read import filled


def test_places_of_batches_that_are_not_written() -> None:
    batches = UnwrittenBatches()
    for i in range(5):
        batches.add(Offset(10 + 2 * i), 100 * i, i)
    found = batches.find(Offset(14))
    assert found is not None
    assert (found.size_bytes, found.max_before) == (200, 2)
    assert batches.find(Offset(13)) is None
    batches.forget_below(Offset(14))
    assert batches.find(Offset(12)) is None
    assert batches.find(Offset(14)) is not None
    batches.cut(Offset(16))
    assert batches.find(Offset(16)) is None
    assert batches.find(Offset(14)) is not None


def test_every_edge_of_a_segment_is_found_by_reading_less_than_all_of_it() -> None:
    harness: Harness = filled()
    log = harness.log
    segment = log._segments.containing(Offset(0))
    batches = [entry.data for entry in harness.model.entries if entry.header is not None]
    for i in range(segment.next_offset // 2 + 1):
        size = sum(map(len, batches[:i]))
        place = place_of(log._disk.place, segment, Offset(2 * i), log.raft_log.epoch_at)
        assert (place.size_bytes, place.max_before) == (size, 1 if i else -1)


def test_damage_on_the_way_is_damage() -> None:
    harness = filled()
    log = harness.log
    harness.disk.damage(f"{NAME}/{segment_name(Offset(0))}", 30, b"\xff")
    with pytest.raises(DamagedLog):
        place_of(
            log._disk.place,
            log._segments.containing(Offset(0)),
            Offset(2),
            log.raft_log.epoch_at,
        )
