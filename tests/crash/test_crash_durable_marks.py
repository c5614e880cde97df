"""`durable-marks` under a power cut at every call, and under every flipped byte.

DM1: after a crash a partition's mark is the one flushed last or one put since, never another.
DM3: what `lower` set is all there is once it has returned, whatever is damaged later but both.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from uuid import UUID

import pytest

from ringlog.storage.crash_images import CrashMode, SimulatedFileNode, Write
from ringlog.storage.durable_marks import DURABLE_MARKS_NAME, DurableMarks, Mark, MarkKey
from ringlog.storage.errors import DamagedState, LogDirFailed
from ringlog.storage.simulated_files import Call, SimulatedCrash, SimulatedDisk
from ringlog.storage.types import Offset, Position

MODES = list(CrashMode)
Cut = Callable[[SimulatedDisk, random.Random], SimulatedDisk]


def torn_at_any_byte(disk: SimulatedDisk, rng: random.Random) -> SimulatedDisk:
    """A power cut of a disk that does not even keep sectors whole: a piece of each write."""
    survivor = disk.crash(rng, CrashMode.LOSE_ALL)
    assert disk.root is not None
    node = disk.root.entries.get(DURABLE_MARKS_NAME)
    if isinstance(node, SimulatedFileNode) and survivor.directory().exists(DURABLE_MARKS_NAME):
        file = survivor.directory().open(DURABLE_MARKS_NAME)
        for write in node.pending:
            assert isinstance(write, Write)
            begin, end = sorted(rng.choices(range(len(write.data) + 1), k=2))
            file.pwrite([write.data[begin:end]], write.position + begin)
        file.sync()
    return survivor


CUTS: dict[str, Cut] = {
    **{mode.name.lower(): partial(SimulatedDisk.crash, mode=mode) for mode in MODES},
    "torn_at_any_byte": torn_at_any_byte,
}


def key(number: int) -> MarkKey:
    return MarkKey(UUID(int=1 + number // 3), number % 3)


def mark(offset: int, own: int) -> Mark:
    return Mark(Position(Offset(offset), own), Offset(0), offset * 3, clean=offset % 2 == 0)


class Expected:
    """Per partition: what a crash now may leave. None = no mark."""

    def __init__(self) -> None:
        self.allowed: dict[MarkKey, list[Mark | None]] = {}
        self._newest: dict[MarkKey, Mark | None] = {}

    def begin(self, partition: MarkKey, value: Mark | None) -> None:
        """A change has begun: from here a crash may leave the new value as well."""
        self.allowed.setdefault(partition, [None]).append(value)
        self._newest[partition] = value

    def flushed(self, *partitions: MarkKey) -> None:
        """All that was put for these is durable (no partition named: for all)."""
        for partition in partitions or self.allowed:
            self.allowed[partition] = [self._newest[partition]]


def history(marks: DurableMarks, expected: Expected, rng: random.Random) -> None:
    """Some life of a data directory. `expected` is kept before and after each step."""
    live: dict[MarkKey, int] = {}
    for step in range(24):
        partition = key(rng.randrange(5))
        if partition not in live or rng.random() < 0.15:
            # a first mark and a lowering, also to another history, are durable on return
            offset = rng.randrange(live.get(partition, 50) + 1)
            expected.begin(partition, mark(offset, step))
            marks.lower(partition, mark(offset, step))
            expected.flushed(partition)
            live[partition] = offset
        elif rng.random() < 0.1:
            expected.begin(partition, None)
            marks.forget(partition)
            expected.flushed(partition)
            del live[partition]
        elif rng.random() < 0.5:
            live[partition] += rng.randrange(5)
            expected.begin(partition, mark(live[partition], step))
            marks.put(partition, mark(live[partition], step))
        else:
            marks.flush()
            expected.flushed()


def check(disk: SimulatedDisk, expected: Expected) -> DurableMarks:
    marks = DurableMarks.open(disk.directory())
    for partition, allowed in expected.allowed.items():
        assert marks.get(partition) in allowed, partition
    return marks


def lives(seed: int, cut: Cut) -> Iterator[int]:
    """Crash the same history at each of its calls; yield the call after which all held."""
    call = 0
    while True:
        call += 1
        disk = SimulatedDisk()
        disk.directory().create()
        disk.directory().sync()
        expected = Expected()
        disk.crash_at(disk.call_count + call // 2 + 1, after=bool(call % 2))
        try:
            history(DurableMarks.open(disk.directory()), expected, random.Random(seed))
        except SimulatedCrash:
            survivor = cut(disk, random.Random(call))
            marks = check(survivor, expected)
            # a second life on top of what the first one left, and a second crash
            for partition in expected.allowed:
                left = marks.get(partition)
                if left is None:
                    continue
                expected.allowed[partition] = [left]
                expected.begin(partition, left)
                marks.put(partition, left)
            check(torn_at_any_byte(survivor, random.Random(call + 1)), expected)
            yield call
        else:
            return


@pytest.mark.parametrize("cut", CUTS)
def test_a_crash_at_any_call_leaves_a_mark_that_was_put(cut: str) -> None:
    calls = sum(1 for seed in range(4) for _call in lives(seed, CUTS[cut]))
    assert calls > 4 * 2 * 24


@pytest.mark.parametrize("cut", CUTS)
def test_a_crash_while_the_file_grows_is_not_taken_for_damage(cut: str) -> None:
    """What lies behind the old end may be anything afterwards, the pages between included."""
    for call in range(2 * 4):
        for seed, before in product(range(5), (0, 1, 31, 32, 33)):
            disk = SimulatedDisk()
            disk.directory().create()
            marks = DurableMarks.open(disk.directory())
            for number in range(before):
                marks.put(key(number), mark(1, number))
            disk.crash_at(disk.call_count + call // 2 + 1, after=bool(call % 2))
            with pytest.raises(SimulatedCrash):
                marks.put(key(99), mark(7, 99))
            found = DurableMarks.open(CUTS[cut](disk, random.Random(seed)).directory())
            assert found.get(key(99)) in {mark(7, 99), None}
            assert all(found.get(key(n)) == mark(1, n) for n in range(before))


def test_after_a_failed_flush_an_earlier_mark_may_come_back_but_no_other() -> None:
    """The pages of a failed flush are shown to the next process and are not on disk."""
    came_back = set()
    for seed in range(200):
        disk = SimulatedDisk()
        disk.directory().create()
        marks = DurableMarks.open(disk.directory())
        for offset in range(1, 4 + seed % 2):
            marks.put(key(0), mark(offset, 0))
            marks.flush()
        marks.put(key(0), mark(5, 0))
        disk.fail(Call.SYNC, name=DURABLE_MARKS_NAME)
        with pytest.raises(LogDirFailed):
            marks.flush()
        second = disk.crash(random.Random(seed), CrashMode.KILL)
        marks = DurableMarks.open(second.directory())
        assert marks.get(key(0)) == mark(5, 0)
        marks.put(key(0), mark(6, 0))
        third = DurableMarks.open(torn_at_any_byte(second, random.Random(seed)).directory())
        found = third.get(key(0))
        assert found in {mark(offset, 0) for offset in range(1, 7)}
        came_back.add(found)
    assert len(came_back) > 1


def test_lower_is_durable_before_it_returns() -> None:
    for seed in range(50):
        disk = SimulatedDisk()
        disk.directory().create()
        disk.directory().sync()
        marks = DurableMarks.open(disk.directory())
        for offset in range(50, 50 + seed % 4):
            marks.put(key(0), mark(offset, 1))
        marks.lower(key(0), mark(10, 1))
        survivor = disk.crash(random.Random(seed), MODES[seed % len(MODES)])
        # even when one of the slots is lost afterwards
        survivor.damage(DURABLE_MARKS_NAME, 4096 * (seed % 2), b"\xff" * 128)
        assert DurableMarks.open(survivor.directory()).get(key(0)) == mark(10, 1)


def test_every_flipped_byte_leaves_the_other_slot_or_is_damage() -> None:
    disk = SimulatedDisk()
    disk.directory().create()
    marks = DurableMarks.open(disk.directory())
    for number in range(3):
        marks.put(key(number), mark(10, number))
        marks.put(key(number), mark(20, number))
        marks.flush()
    data = disk.durable_bytes(DURABLE_MARKS_NAME)
    assert data is not None
    newest_lost = older_lost = 0
    for number in range(3):
        values = {mark(10, number): 0, mark(20, number): 0}
        for slot in (0, 1):
            for place in range(4096 * slot + 128 * number, 4096 * slot + 128 * (number + 1)):
                disk.damage(DURABLE_MARKS_NAME, place, bytes([data[place] ^ 0x21]))
                found = DurableMarks.open(disk.directory())
                assert all(found.get(key(n)) == mark(20, n) for n in range(3) if n != number)
                value = found.get(key(number))
                assert value in values
                newest_lost += value == mark(10, number)
                older_lost += value == mark(20, number)
                disk.damage(DURABLE_MARKS_NAME, place, bytes([data[place]]))
    assert newest_lost == older_lost == 3 * 128


def test_two_flipped_bytes_in_one_pair_are_told_as_damage() -> None:
    disk = SimulatedDisk()
    disk.directory().create()
    marks = DurableMarks.open(disk.directory())
    marks.put(key(0), mark(10, 0))
    marks.put(key(1), mark(10, 1))
    data = disk.durable_bytes(DURABLE_MARKS_NAME)
    assert data is not None
    rng = random.Random(4)
    for first in range(128):
        second = 4096 + rng.randrange(128)
        for place in (first, second):
            disk.damage(DURABLE_MARKS_NAME, place, bytes([data[place] ^ 0x80]))
        found = DurableMarks.open(disk.directory())
        with pytest.raises(DamagedState):
            found.get(key(0))
        assert found.get(key(1)) == mark(10, 1)
        for place in (first, second):
            disk.damage(DURABLE_MARKS_NAME, place, bytes([data[place]]))


def test_a_file_cut_anywhere_never_gives_another_mark() -> None:
    disk = SimulatedDisk()
    disk.directory().create()
    marks = DurableMarks.open(disk.directory())
    for number in range(2):
        marks.put(key(number), mark(10, number))
    file = disk.directory().open(DURABLE_MARKS_NAME)
    for size in range(file.size_bytes(), -1, -61):
        file.truncate(size)
        found = DurableMarks.open(disk.directory())
        for number in range(2):
            try:
                assert found.get(key(number)) in {mark(10, number), None}
            except DamagedState:
                assert size < file.size_bytes() + 256
