"""A scripted life of a log is cut at every call of the file seam; nothing acknowledged is lost."""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringlog.storage.log_job import LogJob
from ringlog.storage.simulated_files import Call, SimulatedCrash, SimulatedDisk
from tests.crash.log_harness import (
    KILL,
    LOSE_ALL,
    POWER_CUT,
    Harness,
    check,
    open_on,
    random_step,
)

STEPS = 200


class WatchedDisk(SimulatedDisk):
    """Tells a watcher before each call that changes something."""

    def __init__(self) -> None:
        super().__init__()
        self.watch: Callable[[], None] | None = None

    @contextlib.contextmanager
    def counted(self, call: Call, path: str) -> Iterator[Any]:
        if self.watch is not None:
            self.watch()
        with super().counted(call, path) as fault:
            yield fault


def recover_and_check(
    image: SimulatedDisk, harness: Harness, rng: random.Random, *, killed: bool
) -> None:
    """Recover; crash again, losing all that is unflushed; recover: the same log, all of it."""
    expected = harness.model.versions()
    _marks, opened = open_on(image)
    check(opened.log, expected, killed=killed)
    first = opened.log
    again = image.crash(rng, LOSE_ALL)
    _marks, opened = open_on(again)
    second = opened.log
    assert (second.end, second.log_start, second.base) == (first.end, first.log_start, first.base)
    check(second, expected, killed=killed)


def crash_in_recovery(
    image: SimulatedDisk, spare: SimulatedDisk, harness: Harness, rng: random.Random
) -> None:
    """Cut the recovery itself at a random call; the next one still gives all that was acked."""
    _marks, opened = open_on(spare)
    calls = spare.call_count
    if not calls:
        return
    image.crash_at(rng.randint(1, calls), after=bool(rng.getrandbits(1)))
    with pytest.raises(SimulatedCrash):
        open_on(image)
    _marks, opened = open_on(image.crash(rng, rng.choice([KILL, POWER_CUT, LOSE_ALL])))
    check(opened.log, harness.model.versions())


class Cutter:
    """Cuts a life before each call on its disk, which is also after the one before it."""

    def __init__(self, disk: WatchedDisk, seed: int) -> None:
        self.harness = Harness(disk)
        self.cuts = 0
        self._disk = disk
        self._rng = random.Random(seed)

    def begin(self) -> None:
        """Cut from now on."""
        self._disk.watch = self.cut

    def cut(self) -> None:
        """Try three kinds of crash, and one that is followed by a crash of the recovery."""
        self.cuts += 1
        rng, disk = self._rng, self._disk
        for mode in (KILL, LOSE_ALL, POWER_CUT):
            image = disk.image(rng, mode)
            recover_and_check(image, self.harness, rng, killed=mode is KILL)
        seed = rng.getrandbits(32)
        crash_in_recovery(
            disk.image(random.Random(seed), POWER_CUT),
            disk.image(random.Random(seed), POWER_CUT),
            self.harness,
            rng,
        )


def run_script(seed: int, steps: int) -> tuple[int, set[str]]:
    """Live `steps` steps, cut at every call; return the number of cuts and the kinds of steps."""
    rng, cutter = random.Random(seed), Cutter(WatchedDisk(), seed + 1)
    harness = cutter.harness
    cutter.begin()
    harness.start()
    for _step in range(steps):
        random_step(harness, rng)
    harness.flush()
    cutter.cut()
    return cutter.cuts, set(harness.seen)


ALL_STEPS = {"WriteOwn", "WriteBatches", "Roll", "Truncate", "MoveLogStart", "Reset"}


def test_every_call_of_two_lives_of_200_steps_may_be_the_last() -> None:
    """Cut before each call, which is also after the one before it; with three kinds of crash."""
    seen: set[str] = set()
    for seed in (1, 3):
        cuts, kinds = run_script(seed, STEPS)
        assert cuts > 500
        seen |= kinds
    assert seen == ALL_STEPS


@pytest.mark.parametrize("ahead", [-9, -8, -1, 0, 3])
def test_a_reset_may_be_cut_at_every_call(ahead: int) -> None:
    """Also where the log that goes is longer than the begin of the one that comes."""
    cutter = Cutter(WatchedDisk(), seed=ahead + 20)
    harness = cutter.harness
    harness.start()
    for _i in range(5):
        harness.append(2, 1, 1, 200)
    harness.append_own()
    harness.flush()
    harness.reset(ahead, 2, 1)
    cutter.begin()
    harness.flush()
    harness.append(1, 1, 1)
    harness.flush()
    cutter.cut()
    assert cutter.cuts > 20


@pytest.mark.long
def test_every_call_of_60_lives_of_200_steps_may_be_the_last() -> None:
    for seed in range(10, 70):
        run_script(seed, STEPS)


def test_a_recovery_may_be_cut_at_every_one_of_its_calls() -> None:
    """And the recovery after that one again: what was acknowledged is there each time."""
    harness = Harness(SimulatedDisk())
    harness.start()
    rng = random.Random(7)
    for _step in range(150):
        random_step(harness, rng)
    for _turn in range(3):
        harness.append(2, 1, 5, 200)
        harness.append_own()
    harness.drain()
    harness.job = harness.log.take_job()
    assert harness.job is not None
    harness.job.write()
    for mode, seed in ((KILL, 0), (POWER_CUT, 1), (POWER_CUT, 2), (POWER_CUT, 3)):
        spare = harness.disk.image(random.Random(seed), mode)
        open_on(spare)
        for call in range(1, spare.call_count + 1):
            for after in (False, True):
                image = harness.disk.image(random.Random(seed), mode)
                image.crash_at(call, after=after)
                with pytest.raises(SimulatedCrash):
                    open_on(image)
                again = image.crash(random.Random(call), POWER_CUT)
                _marks, opened = open_on(again)
                check(opened.log, harness.model.versions())


def test_the_sweep_sees_the_loss_when_jobs_do_not_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the tests above would prove nothing (fault D5)."""
    monkeypatch.setattr(LogJob, "sync", lambda _job: None)
    with pytest.raises(AssertionError, match="acknowledged entries are missing"):
        run_script(1, STEPS)
