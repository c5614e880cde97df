"""The producer table from files, with and without its caches."""

import pytest

from ringlog.storage.errors import DamagedLog
from ringlog.storage.producer_replay import (
    PRODUCER_CACHES,
    ROLL_SNAPSHOT_NAME,
    producers_at,
    save_producers,
)
from ringlog.storage.producer_state import SNAPSHOT_NAME, TableSnapshot
from ringlog.storage.segment import segment_name
from ringlog.storage.simulated_files import Call, SimulatedDisk
from ringlog.storage.types import Offset, Position
from tests.crash.log_harness import NAME, Harness, replay


def filled() -> Harness:
    harness = Harness(SimulatedDisk())
    harness.start()
    for i in range(12):
        harness.append(1, i % 3, 1, 150)
    harness.flush()
    assert len(harness.log._segments) > 2
    return harness


def table_at(harness: Harness, offset: int) -> TableSnapshot:
    log = harness.log
    assert log._disk.start is not None
    return producers_at(
        Offset(offset), log._disk.place, log._disk.start, log._segments, log.raft_log.epoch_at
    )


def expected_at(harness: Harness, offset: int) -> TableSnapshot:
    entries = [entry for entry in harness.model.entries if entry.end.offset <= offset]
    return replay(harness.model.origin, entries)


def test_the_table_at_every_edge_with_and_without_caches() -> None:
    harness = filled()
    for offset in range(13):
        assert table_at(harness, offset) == expected_at(harness, offset)
    for name in PRODUCER_CACHES:
        harness.log._disk.place.directory.unlink(name)
    for offset in range(13):
        assert table_at(harness, offset) == expected_at(harness, offset)


def test_the_nearest_cache_below_saves_reading_what_it_covers() -> None:
    harness = filled()
    harness.disk.damage(f"{NAME}/{segment_name(Offset(0))}", 30, b"\xff")
    assert table_at(harness, 12) == expected_at(harness, 12)
    with pytest.raises(DamagedLog):
        table_at(harness, 2)


def test_another_partitions_cache_is_not_taken() -> None:
    harness = filled()
    place = harness.log._disk.place
    for name in (SNAPSHOT_NAME, ROLL_SNAPSHOT_NAME):
        place.directory.unlink(name)
    foreign = type(place)(place.directory, place.seed + 1, 100)
    save_producers(foreign, SNAPSHOT_NAME, TableSnapshot(), Position(Offset(11), 1))
    assert table_at(harness, 12) == expected_at(harness, 12)
    save_producers(place, SNAPSHOT_NAME, TableSnapshot(), Position(Offset(11), 1))
    assert table_at(harness, 12) != expected_at(harness, 12)


def test_a_read_error_is_not_taken_for_an_absent_cache() -> None:
    harness = filled()
    harness.disk.fail(Call.READ, name=ROLL_SNAPSHOT_NAME)
    with pytest.raises(Exception, match="simulated EIO"):
        table_at(harness, 12)
