"""State files under every flip, every truncation and every cut: old, new, or refused."""

import random
from collections.abc import Callable

import msgspec
import pytest

from ringlog.storage.crash_images import SECTOR_BYTES, CrashMode
from ringlog.storage.errors import DamagedState
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.simulated_files import SimulatedCrash, SimulatedDisk
from ringlog.storage.state_file import encode_state, load_state, write_state


class Vote(msgspec.Struct, frozen=True):
    term: int
    voted_for: str
    padding: str = ""


VALUE = Vote(41, "0f8b7c62-93f4-4d5b-8f3e-5d4e2b8a9c10")
GOOD = encode_state(VALUE, format=1)


def outcome(data: bytes) -> tuple[Vote, bool] | None:
    """Value and whether a copy is damaged; None when the file is refused as damaged."""
    root = MemoryDirectory()
    root.create()
    root.open("raft-state", create=True).pwrite([data], 0)
    try:
        loaded = load_state(root, "raft-state", Vote, format=1)
    except DamagedState:
        return None
    return loaded.value, loaded.damaged_copy


def test_any_one_byte_changed_leaves_the_value_and_is_reported() -> None:
    for place in range(len(GOOD)):
        for change in (*(1 << bit for bit in range(8)), 0xFF, GOOD[place]):
            data = bytearray(GOOD)
            data[place] ^= change
            assert outcome(bytes(data)) == (VALUE, True), (place, change)


def test_the_same_byte_changed_in_both_copies_is_refused() -> None:
    half = len(GOOD) // 2
    for place in range(half):
        for change in (*(1 << bit for bit in range(8)), 0xFF):
            data = bytearray(GOOD)
            data[place] ^= change
            data[place + half] ^= change
            assert outcome(bytes(data)) is None, (place, change)


def test_two_bytes_changed_anywhere_give_the_value_or_nothing() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(20_000):
        data = bytearray(GOOD)
        for place in rng.sample(range(len(GOOD)), 2):
            data[place] ^= 1 << rng.randrange(8)
        found = outcome(bytes(data))
        assert found in {None, (VALUE, True)}
        refused += found is None
    assert 0 < refused < 20_000


def test_every_truncation_gives_the_value_or_nothing() -> None:
    half = len(GOOD) // 2
    for size in range(len(GOOD)):
        assert outcome(GOOD[:size]) == ((VALUE, True) if size >= half else None), size
    assert outcome(GOOD) == (VALUE, False)


@pytest.mark.parametrize("fill", [bytes, random.Random(2).randbytes], ids=["zeros", "garbage"])
def test_every_lost_sector_gives_the_value_or_nothing(fill: Callable[[int], bytes]) -> None:
    value = Vote(1, "", "x" * 2_000)
    data = encode_state(value, format=1)
    for start in range(0, len(data), SECTOR_BYTES):
        lost = bytearray(data)
        lost[start : start + SECTOR_BYTES] = fill(len(lost[start : start + SECTOR_BYTES]))
        root = MemoryDirectory()
        root.create()
        root.open("raft-state", create=True).pwrite([lost], 0)
        try:
            assert load_state(root, "raft-state", Vote, format=1).value == value
        except DamagedState:
            middle = len(data) // 2
            assert start < middle < start + SECTOR_BYTES, "a sector across both copies"


OLD = Vote(1, "old", "o" * 700)
NEW = Vote(2, "new", "n" * 1_400)


def before_replacement() -> SimulatedDisk:
    disk = SimulatedDisk()
    directory = disk.directory()
    directory.create()
    write_state(directory, "raft-state", OLD, format=1)
    return disk


def calls_of_a_replacement() -> int:
    disk = before_replacement()
    before = disk.call_count
    write_state(disk.directory(), "raft-state", NEW, format=1)
    return disk.call_count - before


@pytest.mark.parametrize("mode", CrashMode)
@pytest.mark.parametrize("after", [False, True])
def test_a_cut_at_every_call_gives_the_old_value_or_the_new_one(
    mode: CrashMode, after: bool
) -> None:
    seen = set()
    for number in range(1, calls_of_a_replacement() + 1):
        disk = before_replacement()
        disk.crash_at(disk.call_count + number, after=after)
        with pytest.raises(SimulatedCrash):
            write_state(disk.directory(), "raft-state", NEW, format=1)
        for seed in range(40):
            directory = disk.crash(random.Random(seed), mode).directory()
            loaded = load_state(directory, "raft-state", Vote, format=1)
            assert loaded.value in {OLD, NEW}
            assert not loaded.damaged_copy
            seen.add(loaded.value)
            write_state(directory, "raft-state", Vote(3, ""), format=1)
            assert load_state(directory, "raft-state", Vote, format=1).value == Vote(3, "")
    if after or mode in {CrashMode.KILL, CrashMode.SURVIVE_ALL, CrashMode.POWER_CUT}:
        assert seen == {OLD, NEW}
    else:
        assert seen == {OLD}, "the new name is not durable before the last call"


def test_once_written_it_stays_whatever_happens_next() -> None:
    disk = before_replacement()
    write_state(disk.directory(), "raft-state", NEW, format=1)
    for mode in CrashMode:
        for seed in range(20):
            directory = disk.image(random.Random(seed), mode).directory()
            assert load_state(directory, "raft-state", Vote, format=1).value == NEW


def test_the_first_write_gives_nothing_or_the_value() -> None:
    for after in (False, True):
        for number in range(1, calls_of_a_replacement() + 1):
            disk = SimulatedDisk()
            directory = disk.directory()
            directory.create()
            disk.crash_at(number, after=after)
            with pytest.raises(SimulatedCrash):
                write_state(directory, "raft-state", NEW, format=1)
            for mode in CrashMode:
                for seed in range(20):
                    again = disk.crash(random.Random(seed), mode).directory()
                    if again.exists("raft-state"):
                        assert load_state(again, "raft-state", Vote, format=1).value == NEW
