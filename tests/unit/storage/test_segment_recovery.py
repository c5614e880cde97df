"""Which segments a start reads, and what it reports."""

import random

import pytest

from ringlog.storage.errors import DamagedLog
from ringlog.storage.segment import segment_name
from ringlog.storage.segment_recovery import RecoveryReport
from ringlog.storage.simulated_files import Call, SimulatedDisk
from ringlog.storage.types import LOG_BEGIN, Offset, Position
from tests.crash.log_harness import KILL, NAME, Harness, check, open_on
from tests.unit.storage.test_recovery import filled, stopped

NOWHERE = random.Random(0)


def sealed(harness: Harness) -> list[int]:
    return [segment.base_offset for segment in harness.log._segments if segment.is_sealed]


def test_after_a_kill_closed_segments_below_the_mark_are_not_read() -> None:
    harness = filled()
    assert len(sealed(harness)) > 1
    disk = harness.disk.image(NOWHERE, KILL)
    for base in sealed(harness):
        disk.fail(Call.READ, name=segment_name(Offset(base)))
    _marks, opened = open_on(disk)
    assert opened.log.end == harness.log.end


def test_a_closed_segment_without_a_good_seal_is_read_and_sealed_again() -> None:
    harness = filled()
    disk = harness.disk.image(NOWHERE, KILL)
    directory = disk.directory().subdirectory(NAME)
    name = segment_name(Offset(sealed(harness)[0]), ".seal")
    directory.unlink(name)
    _marks, opened = open_on(disk)
    check(opened.log, harness.model.versions())
    assert name in opened.report.rebuilt
    assert directory.exists(name)


def test_a_closed_segment_that_is_too_short_is_refused_at_the_start() -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    name = segment_name(Offset(0))
    directory.open(name).truncate(directory.open(name).size_bytes() - 1)
    with pytest.raises(DamagedLog, match=name):
        open_on(disk)


def test_a_hole_above_the_mark_ends_the_log_and_below_it_is_damage() -> None:
    harness = Harness(SimulatedDisk())
    harness.start()
    harness.append(1, None, 1, 600)
    harness.flush()
    for _i in range(3):
        harness.append(1, None, 1, 600)
    harness.write_only()
    disk = harness.disk.image(NOWHERE, KILL)
    disk.directory().subdirectory(NAME).unlink(segment_name(Offset(2)))
    _marks, opened = open_on(disk)
    assert opened.log.end == Position(Offset(2), 1)
    assert "no segment begins at offset 2" in opened.report.cut_reason
    assert opened.report.cut_bytes > 600


def test_a_report_is_silent_about_nothing() -> None:
    assert RecoveryReport(clean=True, end=LOG_BEGIN, mark=LOG_BEGIN).notes() == []
    report = RecoveryReport(
        clean=False,
        end=LOG_BEGIN,
        mark=LOG_BEGIN,
        cut_bytes=3,
        cut_own_entries=1,
        cut_reason="the CRC-32C differs",
        rewritten_bytes=9,
        rebuilt=["x.seal"],
    )
    assert len(report.notes()) == 4
    assert "cut 3 bytes and 1 own entries" in report.notes()[1]
