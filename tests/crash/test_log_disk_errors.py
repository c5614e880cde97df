"""A flush fails once and then seems to work; the disk is full for a while; a read fails."""

import errno
import random

import pytest

from ringlog.storage.errors import DamagedLog, LogDirFailed, ReadFailed
from ringlog.storage.record_batch import HEADER_SIZE
from ringlog.storage.simulated_files import Call, SimulatedDisk
from tests.crash.log_harness import KILL, LOSE_ALL, Harness, check, open_on, random_step

STEPS = 120


def run_until_failure(harness: Harness, seed: int) -> bool:
    """Live until a flush fails; False when all steps were done."""
    rng = random.Random(seed)
    try:
        for _step in range(STEPS):
            random_step(harness, rng)
    except LogDirFailed:
        return True
    return False


@pytest.mark.parametrize("call", [Call.SYNC, Call.SYNC_DIRECTORY])
def test_each_flush_may_fail_once_and_its_clean_lies_are_not_believed(call: Call) -> None:
    """The process stops at once (the broker's rule); the next one sees pages that the disk never
    got, writes them again, and only then counts on them: the power cut after it costs nothing.
    """
    skip, failures = 0, 0
    while True:
        harness = Harness(SimulatedDisk())
        harness.start()
        harness.disk.fail(call, skip=skip)
        if not run_until_failure(harness, seed=5):
            break
        failures += 1
        skip += 1 if skip < 40 else 3
        versions = harness.model.versions()
        killed = harness.disk.crash(random.Random(skip), KILL)
        _marks, opened = open_on(killed)
        check(opened.log, versions)
        _marks, again = open_on(killed.crash(random.Random(skip), LOSE_ALL))
        assert (again.log.end, again.log.log_start) == (opened.log.end, opened.log.log_start)
        check(again.log, versions)
    assert failures > 40


def test_a_failed_write_is_not_acknowledged() -> None:
    harness = Harness(SimulatedDisk())
    harness.start()
    harness.append(2, 1, 1)
    harness.flush()
    harness.append(2, 1, 1)
    harness.disk.fail(Call.WRITE, name=".log", code=errno.EIO, short=HEADER_SIZE)
    with pytest.raises(LogDirFailed):
        harness.flush()
    assert harness.log.durable < harness.log.end
    _marks, opened = open_on(harness.disk.crash(random.Random(1), KILL))
    check(opened.log, harness.model.versions())
    assert opened.report.cut_bytes == HEADER_SIZE
    assert "CRC" in opened.report.cut_reason or "bytes" in opened.report.cut_reason


def test_a_full_disk_delays_a_job_and_loses_nothing() -> None:
    """Each write of a life fails once with ENOSPC, partly done; the job is simply run again."""
    full = 0
    for skip in range(60):
        harness = Harness(SimulatedDisk())
        harness.start()
        harness.disk.fail(Call.WRITE, name="orders-3", skip=skip, code=errno.ENOSPC, short=30)
        rng = random.Random(11)
        for _step in range(60):
            random_step(harness, rng)
        harness.flush()
        full += harness.full
        assert harness.log.durable == harness.log.end == harness.model.end
        _marks, opened = open_on(harness.disk.crash(rng, LOSE_ALL))
        check(opened.log, harness.model.versions())
    assert full > 30


def test_a_read_error_is_told_as_one_and_a_wrong_bit_is_damage() -> None:
    harness = Harness(SimulatedDisk())
    harness.start()
    harness.append(2, 1, 1)
    harness.flush()
    end = harness.log.end.offset
    harness.disk.fail(Call.READ, name=".log")
    with pytest.raises(ReadFailed):
        harness.log.read(harness.log.log_start, 100, end=end)
    harness.disk.flip_read(700, name=".log")
    with pytest.raises(DamagedLog) as caught:
        harness.log.read(harness.log.log_start, 100, end=end)
    assert (caught.value.position, caught.value.first_offset, caught.value.end_offset) == (0, 0, 2)
    result = harness.log.read(harness.log.log_start, 100, end=end)
    assert result is not None
    assert result.next_offset == 2
