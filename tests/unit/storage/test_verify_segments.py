"""Verification of segments, beyond damage too."""

import random

from ringlog.storage.findings import PartitionVerdict, Severity
from ringlog.storage.log_config import LogConfig
from ringlog.storage.segment import segment_name, whole_crc
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import Offset
from ringlog.storage.verify import verify_data_directory
from tests.crash.log_harness import KILL, NAME, Harness

NOWHERE = random.Random(0)
CONFIG = LogConfig(segment_size_bytes=1000, index_interval_bytes=1, retention_ms=-1)


def filled() -> tuple[Harness, SimulatedDisk]:
    """Three segments with an index entry per batch."""
    harness = Harness(SimulatedDisk(), CONFIG)
    harness.start()
    for _i in range(24):
        harness.append(2, None, 1, 10)
    harness.restart_cleanly()
    return harness, harness.disk.image(NOWHERE, KILL)


def verdict_of(disk: SimulatedDisk) -> PartitionVerdict:
    (verdict,) = verify_data_directory(disk.directory())
    return verdict


def test_damage_costs_its_batch_only_where_the_index_shows_the_next_one() -> None:
    harness, disk = filled()
    data = harness.model.entries[4].data  # offsets 6 and 7
    name = segment_name(Offset(0))
    position = sum(len(entry.data) for entry in harness.model.entries[:4])
    disk.damage(f"{NAME}/{name}", position + 70, b"\xff")
    verdict = verdict_of(disk)
    (finding,) = verdict.findings
    assert (finding.severity, finding.path, finding.position) == (Severity.DAMAGE, name, position)
    assert (finding.first_offset, finding.end_offset) == (6, 8)
    assert verdict.end.offset == 6
    assert verdict.batch_count == 23
    assert verdict.size_bytes + len(data) == harness.log.size_bytes


def test_without_an_index_the_rest_of_the_segment_counts_as_lost() -> None:
    harness, disk = filled()
    directory = disk.directory().subdirectory(NAME)
    directory.unlink(segment_name(Offset(0), ".index"))
    disk.damage(f"{NAME}/{segment_name(Offset(0))}", 70, b"\xff")
    damage = [f for f in verdict_of(disk).findings if f.severity is Severity.DAMAGE]
    next_base = [segment.base_offset for segment in harness.log._segments][1]
    assert [(f.first_offset, f.end_offset) for f in damage] == [(0, next_base)]


def test_two_damaged_places_are_two_findings() -> None:
    _harness, disk = filled()
    name = segment_name(Offset(0))
    for position in (70, 400):
        disk.damage(f"{NAME}/{name}", position, b"\xff")
    assert [f.severity for f in verdict_of(disk).findings] == [Severity.DAMAGE] * 2


def test_an_index_of_another_moment_is_named() -> None:
    harness, disk = filled()
    directory = disk.directory().subdirectory(NAME)
    place = harness.log._disk.place
    segment = harness.log._segments.containing(Offset(0))
    index = segment.index(place, harness.log.raft_log.epoch_at).prefix(segment.size_bytes)
    index._positions[2] += 1
    offsets, _times = index.encode(segment.coverage(whole_crc(place, segment)), seed=place.seed)
    directory.open(segment_name(Offset(0), ".index")).pwrite([offsets], 0)
    (finding,) = verdict_of(disk).findings
    assert finding.severity is Severity.HARMLESS
    assert "does not fit" in finding.text


def test_leftovers_are_named() -> None:
    _harness, disk = filled()
    directory = disk.directory().subdirectory(NAME)
    directory.open(segment_name(Offset(999), ".seal"), create=True)
    (finding,) = verdict_of(disk).findings
    assert (finding.severity, finding.text) == (Severity.HARMLESS, "has no segment")


def test_a_segment_behind_the_end_is_named_and_the_hole_before_it_is_no_torn_tail() -> None:
    harness = Harness(SimulatedDisk(), CONFIG)
    harness.start()
    harness.append(2, None, 1, 10)
    harness.restart_cleanly()
    disk = harness.disk.image(NOWHERE, KILL)
    directory = disk.directory().subdirectory(NAME)
    left = segment_name(Offset(99))
    directory.open(left, create=True)
    (finding,) = (f for f in verdict_of(disk).findings if f.path == left)
    assert (finding.severity, finding.first_offset, finding.end_offset) == (
        Severity.HARMLESS, 99, 99,
    )  # fmt: skip
    assert "lies behind the end of the log, which is offset 2" in finding.text
    directory.open(left).pwrite([b"bytes"], 0)
    torn = [f for f in verdict_of(disk).findings if f.path == left and f.position == 0]
    assert torn[0].severity is Severity.TORN_TAIL
    assert torn[0].first_offset == torn[0].end_offset
