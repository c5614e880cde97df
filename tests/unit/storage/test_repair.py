"""Repairs: what they keep, what they cost, and a crash in the middle."""

import random

import msgspec
import pytest

from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import StorageError
from ringlog.storage.findings import Severity
from ringlog.storage.repair import RepairPlan, apply_repair, plan_repair
from ringlog.storage.seal import encode_seal
from ringlog.storage.segment import load_seal, segment_base, segment_name
from ringlog.storage.simulated_files import SimulatedCrash, SimulatedDisk
from ringlog.storage.types import Offset
from ringlog.storage.verify import verify_partition
from tests.crash.log_harness import KILL, LOSE_ALL, NAME, POWER_CUT, Harness, open_on, read_all
from tests.unit.storage.test_recovery import filled, stopped
from tests.unit.storage.test_verify_segments import filled as with_indexes

NOWHERE = random.Random(0)


def plan_of(disk: SimulatedDisk) -> RepairPlan | None:
    root = disk.directory()
    return plan_repair(root.subdirectory(NAME), DurableMarks.open(root))


def repair(disk: SimulatedDisk) -> RepairPlan:
    root = disk.directory()
    plan = plan_of(disk)
    assert plan is not None
    apply_repair(root.subdirectory(NAME), DurableMarks.open(root), plan)
    return plan


def prefix(harness: Harness, end: int) -> bytes:
    return b"".join(e.data for e in harness.model.entries if e.header and e.end.offset <= end)


def test_a_healthy_partition_has_no_plan() -> None:
    assert plan_of(stopped()) is None


def test_a_repair_says_what_it_costs_keeps_the_rest_and_a_copy_of_what_it_cuts() -> None:
    harness, disk = with_indexes()
    name = segment_name(Offset(0))
    directory = disk.directory().subdirectory(NAME)
    original = directory.open(name).pread(10_000, 0)
    position = sum(len(entry.data) for entry in harness.model.entries[:4])
    disk.damage(f"{NAME}/{name}", position + 70, b"\xff")
    plan = repair(disk)
    end = harness.model.end.offset
    assert (plan.end.offset, plan.lost_first, plan.lost_end) == (6, 6, end)
    assert any(f"LOSES offsets 6 to {end} (exclusive)" in line for line in plan.lines())
    copy = directory.open(f"{name}.damaged-{position}").pread(10_000, 0)
    assert len(copy) == len(original) - position
    assert copy[:70] == original[position : position + 70]
    bases = [base for n in directory.names() if (base := segment_base(n)) is not None]
    assert bases == [0]
    assert len([n for n in directory.names() if ".damaged-0" in n]) == 2  # the later segments
    _marks, opened = open_on(disk)
    assert opened.log.end.offset == 6
    assert read_all(opened.log, Offset(0)) == prefix(harness, 6)
    assert opened.report.cut_bytes == 0
    assert plan_of(disk) is None


def test_a_repair_removes_an_empty_segment_behind_the_end_and_no_hole_is_left() -> None:
    harness = Harness(SimulatedDisk())
    harness.start()
    for _i in range(3):
        harness.append(3, None, 1)
    harness.now_ms += 10 * harness.config.roll_age_ms
    harness.log.roll_if_old(harness.now_ms)
    harness.flush()
    disk = harness.disk.image(NOWHERE, KILL)
    directory = disk.directory().subdirectory(NAME)
    last = segment_name(max(b for n in directory.names() if (b := segment_base(n)) is not None))
    assert directory.open(last).size_bytes() == 0
    disk.damage(f"{NAME}/{segment_name(Offset(0))}", 70, b"\xff")
    plan = repair(disk)
    assert f"removes {last}, which is empty" in plan.lines()
    assert not directory.exists(last)
    assert not directory.exists(f"{last}.damaged-0")
    findings = verify_partition(directory, DurableMarks.open(disk.directory())).findings
    assert {finding.severity for finding in findings} == {Severity.HARMLESS}
    _marks, opened = open_on(disk)
    assert opened.log.end.offset == 0


def test_lost_own_entries_take_the_batches_of_their_terms_with_them() -> None:
    harness = filled()
    disk = harness.disk.image(NOWHERE, KILL)
    directory = disk.directory().subdirectory(NAME)
    size = directory.open("raft-log").size_bytes()
    directory.open("raft-log").truncate(size - 1)
    plan = repair(disk)
    assert (plan.lost_first, plan.lost_end) == (16, 17)
    _marks, opened = open_on(disk)
    assert (opened.log.end.offset, opened.log.end.own) == (16, 1)
    assert read_all(opened.log, Offset(0)) == prefix(harness, 16)


def test_a_lost_mark_is_set_to_the_end_and_costs_nothing() -> None:
    disk = stopped()
    disk.directory().unlink("durable-marks")
    plan = repair(disk)
    assert plan.lost_first == plan.lost_end
    _marks, opened = open_on(disk)
    assert opened.log.end.offset == 17


def test_a_lost_vote_state_is_written_anew_in_the_newest_term() -> None:
    disk = stopped()
    disk.directory().subdirectory(NAME).unlink("raft-state")
    plan = repair(disk)
    assert plan.new_raft_state_term == 2
    _marks, opened = open_on(disk)
    assert opened.log.end.offset == 17


@pytest.mark.parametrize("name", ["start-state", "partition.json"])
def test_a_lost_state_file_is_refused_by_name(name: str) -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    directory.open(name).truncate(20)
    plan = plan_of(disk)
    assert plan is not None
    assert name in plan.lines()[0]
    with pytest.raises(StorageError, match="cannot be repaired"):
        apply_repair(directory, DurableMarks.open(disk.directory()), plan)


def test_a_segment_that_is_not_the_one_closed_is_dropped_with_all_behind_it() -> None:
    harness, disk = with_indexes()
    segments = list(harness.log._segments)
    name = segment_name(segments[1].base_offset, ".seal")
    directory = disk.directory().subdirectory(NAME)

    place = harness.log._disk.place
    seal = load_seal(place, segments[1].base_offset)
    assert seal is not None
    wrong = msgspec.structs.replace(seal, segment_crc=seal.segment_crc ^ 1)
    directory.open(name).pwrite([encode_seal(wrong, seed=place.seed)], 0)
    plan = repair(disk)
    assert plan.end.offset == segments[1].base_offset
    _marks, opened = open_on(disk)
    assert opened.log.end == plan.end
    assert read_all(opened.log, Offset(0)) == prefix(harness, plan.end.offset)


def test_a_plan_for_something_else_is_not_carried_out() -> None:
    _harness, disk = with_indexes()
    name = f"{NAME}/{segment_name(Offset(0))}"
    disk.damage(name, 300, b"\xff")
    plan = plan_of(disk)
    assert plan is not None
    disk.damage(name, 70, b"\xff")
    root = disk.directory()
    with pytest.raises(StorageError, match="changed since the plan"):
        apply_repair(root.subdirectory(NAME), DurableMarks.open(root), plan)


def test_a_repair_may_be_cut_anywhere_and_the_copy_is_there_before_anything_goes() -> None:
    harness, disk = with_indexes()
    position = sum(len(entry.data) for entry in harness.model.entries[:4])
    disk.damage(f"{NAME}/{segment_name(Offset(0))}", position + 70, b"\xff")
    spare = disk.image(NOWHERE, KILL)
    plan = repair(spare)
    for call in range(1, spare.call_count + 1):
        image = disk.image(NOWHERE, KILL)
        image.crash_at(call, after=False)
        with pytest.raises(SimulatedCrash):
            repair(image)
        for mode in (KILL, LOSE_ALL, POWER_CUT):
            again = image.crash(random.Random(call), mode)
            if plan_of(again) is not None:
                repair(again)
            _marks, opened = open_on(again)
            assert opened.log.end == plan.end
            directory = again.directory().subdirectory(NAME)
            copies = [n for n in directory.names() if ".damaged-" in n]
            sizes = [directory.open(name).size_bytes() for name in copies]
            assert sorted(sizes) == sorted(cut.size_bytes for cut in plan.cuts)


def test_a_second_repair_leaves_the_copy_of_the_first_one_alone() -> None:
    _harness, disk = with_indexes()
    directory = disk.directory().subdirectory(NAME)
    name = f"{segment_name(Offset(0))}.damaged-0"
    directory.open(name, create=True).pwrite([b"older"], 0)
    disk.damage(f"{NAME}/{segment_name(Offset(0))}", 70, b"\xff")
    plan = repair(disk)
    assert directory.open(name).pread(100, 0) == b"older"
    assert directory.open(f"{name}.2").size_bytes() == plan.cuts[0].size_bytes
