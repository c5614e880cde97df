"""Verification of whole partitions."""

import random

import pytest

from ringlog.storage.findings import Finding, Severity
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import Position
from ringlog.storage.verify import verify_data_directory, verify_partition
from tests.crash.log_harness import KILL, NAME, Harness
from tests.unit.storage.test_recovery import filled, stopped

NOWHERE = random.Random(0)


def findings(disk: SimulatedDisk) -> list[Finding]:
    (verdict,) = verify_data_directory(disk.directory())
    return verdict.findings


def test_a_partition_in_order_gives_its_counts_and_no_finding() -> None:
    (verdict,) = verify_data_directory(stopped().directory())
    assert verdict.findings == []
    assert not verdict.is_damaged
    assert (verdict.batch_count, verdict.record_count) == (9, 17)
    assert verdict.end == Position(verdict.end.offset, 2)
    assert verdict.end.offset == 17
    assert verdict.identity is not None
    assert verdict.identity.topic == "orders"


def test_a_torn_tail_above_the_mark_is_told_from_damage() -> None:
    harness = filled()
    harness.append(1, None, 1)
    harness.append_own()
    harness.write_only()
    disk = harness.disk.image(NOWHERE, KILL)
    active = harness.log._segments.active
    name = f"{active.base_offset:020d}.log"
    disk.damage(f"{NAME}/{name}", active.size_bytes - 3, b"\xff")
    torn = [finding for finding in findings(disk) if finding.path == name]
    assert [finding.severity for finding in torn] == [Severity.TORN_TAIL]
    disk.directory().subdirectory(NAME).open("raft-log").pwrite([b"rest"], 500)
    torn = [finding for finding in findings(disk) if finding.path == "raft-log"]
    assert [finding.severity for finding in torn] == [Severity.TORN_TAIL]


def test_foreign_files_and_copies_of_a_repair_are_named() -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    directory.open("notes.txt", create=True)
    directory.open("x.log.damaged-5", create=True)
    assert {finding.path for finding in findings(disk)} == {"notes.txt", "x.log.damaged-5"}
    assert {finding.severity for finding in findings(disk)} == {Severity.HARMLESS}


@pytest.mark.parametrize("name", ["partition.json", "raft-state", "start-state"])
def test_a_lost_state_file_is_damage(name: str) -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    directory.open(name).truncate(20)
    (verdict,) = verify_data_directory(disk.directory())
    assert verdict.is_damaged
    assert name in {finding.path for finding in verdict.findings}


def test_a_lost_mark_is_damage() -> None:
    disk = stopped()
    verdict = verify_partition(disk.directory().subdirectory(NAME), None)
    assert [finding.text for finding in verdict.findings] == ["holds no mark of this partition"]
    assert verdict.is_damaged


def test_a_blank_replica_and_a_reset_under_way_are_no_damage() -> None:
    harness = Harness(SimulatedDisk())
    harness.start()
    harness.append(1, None, 1)
    harness.flush()
    harness.reset(2, 0, 0)
    harness.advance_job()
    disk = harness.disk
    disk.crash_at(disk.call_count + 8, after=False)
    with pytest.raises(BaseException, match="crash"):
        harness.advance_job()
    (verdict,) = verify_data_directory(disk.crash(NOWHERE, KILL).directory())
    assert not verdict.is_damaged
    assert any("reset" in finding.text for finding in verdict.findings)
