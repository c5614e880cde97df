"""Calls that are counted, cut and broken on command."""

import errno
import random
from collections.abc import Callable

import pytest

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.errors import DiskFull, LogDirFailed, ReadFailed, StorageError
from ringlog.storage.simulated_files import (
    Call,
    SimulatedCrash,
    SimulatedDirectory,
    SimulatedDisk,
    SimulatedFile,
)

RNG = random.Random(0)


def make(capacity_bytes: int = 1 << 30) -> tuple[SimulatedDisk, SimulatedDirectory]:
    disk = SimulatedDisk(capacity_bytes=capacity_bytes)
    root = disk.directory()
    root.create()
    return disk, root


def opened(root: SimulatedDirectory, name: str, *, create: bool = False) -> SimulatedFile:
    file = root.open(name, create=create)
    assert isinstance(file, SimulatedFile)
    return file


def durable_file(root: SimulatedDirectory, name: str, data: bytes) -> SimulatedFile:
    file = opened(root, name, create=True)
    file.pwrite([data], 0)
    file.sync()
    root.sync()
    return file


def content(disk: SimulatedDisk, name: str) -> bytes:
    return disk.directory().open(name).pread(1 << 20, 0)


# Counting and crashing


def test_every_mutating_call_is_counted_and_no_other() -> None:
    disk, root = make()
    file = opened(root, "a", create=True)
    acts: list[Callable[[], object]] = [
        lambda: file.pwrite([b"abc"], 0),
        file.sync,
        lambda: file.truncate(1),
        lambda: root.rename("a", "b"),
        root.sync,
        lambda: root.make_directory("d"),
        lambda: root.unlink("b"),
        lambda: root.remove_tree("d"),
    ]
    for number, act in enumerate(acts, start=2):
        act()
        assert disk.call_count == number
    before = disk.call_count
    root.make_directory("d")
    below = root.subdirectory("d")
    opened(below, "one", create=True)
    opened(below, "two", create=True)
    root.remove_tree("d")
    assert disk.call_count == before + 6, "each step of a removal is one call"
    file = opened(root, "a", create=True)
    before = disk.call_count
    opened(root, "a", create=True)
    file.pread(1, 0)
    file.pread_cached(1, 0)
    file.size_bytes()
    root.names()
    root.exists("a")
    root.free_bytes()
    root.lock().release()
    file.close()
    assert disk.call_count == before


@pytest.mark.parametrize(("after", "expected"), [(False, b"ab"), (True, b"abcd")])
def test_a_crash_before_or_after_a_call(after: bool, expected: bytes) -> None:
    disk, root = make()
    file = opened(root, "a", create=True)
    file.pwrite([b"ab"], 0)
    disk.crash_at(disk.call_count + 1, after=after)
    with pytest.raises(SimulatedCrash, match="writing a"):
        file.pwrite([b"cd"], 2)
    assert content(disk.crash(RNG, CrashMode.KILL), "a") == expected


def test_after_a_crash_nothing_changes_any_more() -> None:
    disk, root = make()
    file = durable_file(root, "a", b"abc")
    disk.crash_at(disk.call_count + 1, after=False)
    calls: list[Callable[[], object]] = [
        file.sync,
        lambda: file.pwrite([b"X"], 0),
        lambda: file.truncate(0),
        lambda: file.pread(1, 0),
        lambda: file.pread_cached(1, 0),
        file.size_bytes,
        lambda: root.unlink("a"),
        lambda: root.rename("a", "b"),
        lambda: root.open("b", create=True),
        lambda: root.open("a"),
        lambda: root.make_directory("d"),
        lambda: root.remove_tree("a"),
        root.sync,
        root.names,
        root.create,
        lambda: root.exists("a"),
        root.lock,
    ]
    for call in calls:
        with pytest.raises(SimulatedCrash):
            call()
    file.close()
    assert content(disk.crash(RNG, CrashMode.LOSE_ALL), "a") == b"abc"


def test_one_crash_has_many_outcomes_and_each_is_a_life_of_its_own() -> None:
    disk, root = make()
    file = durable_file(root, "a", b"old")
    file.pwrite([b"new"], 0)
    lost = disk.crash(RNG, CrashMode.LOSE_ALL)
    kept = disk.crash(RNG, CrashMode.SURVIVE_ALL)
    opened(lost.directory(), "a").pwrite([b"X"], 0)
    assert content(kept, "a") == b"new"
    assert content(lost, "a") == b"Xld"
    with pytest.raises(SimulatedCrash):
        file.sync()


def test_a_new_life_counts_from_one_and_holds_no_lock_and_no_fault() -> None:
    disk, root = make()
    root.lock()
    disk.fail(Call.WRITE)
    survivor = disk.crash(RNG, CrashMode.KILL)
    survivor.directory().lock()
    opened(survivor.directory(), "a", create=True).pwrite([b"x"], 0)
    assert survivor.call_count == 2


def test_a_crash_of_a_disk_never_used() -> None:
    assert SimulatedDisk().crash(RNG, CrashMode.POWER_CUT).root is None


def test_free_space_is_that_of_the_surviving_bytes() -> None:
    disk, root = make(capacity_bytes=1000)
    file = durable_file(root, "a", b"x" * 100)
    file.pwrite([b"x" * 100], 100)
    assert disk.crash(RNG, CrashMode.LOSE_ALL).free_bytes() == 900
    assert disk.crash(RNG, CrashMode.KILL).free_bytes() == 800


# Durability


def test_a_file_needs_its_own_flush_and_that_of_its_name() -> None:
    disk, root = make()
    file = opened(root, "a", create=True)
    file.pwrite([b"abc"], 0)
    assert disk.durable_bytes("a") is None
    file.sync()
    assert disk.durable_bytes("a") is None, "flushed, but nobody would find it"
    assert disk.image(RNG, CrashMode.LOSE_ALL).directory().names() == []
    root.sync()
    assert disk.durable_bytes("a") == b"abc"
    assert content(disk.image(RNG, CrashMode.LOSE_ALL), "a") == b"abc"


def test_a_name_may_be_durable_before_the_bytes() -> None:
    disk, root = make()
    opened(root, "a", create=True).pwrite([b"abc"], 0)
    root.sync()
    assert disk.durable_bytes("a") == b""


def test_an_unflushed_removal_may_come_back_with_its_bytes() -> None:
    disk, root = make()
    durable_file(root, "a", b"abc")
    root.unlink("a")
    assert disk.durable_bytes("a") == b"abc"
    assert content(disk.image(RNG, CrashMode.LOSE_ALL), "a") == b"abc"
    assert disk.image(RNG, CrashMode.SURVIVE_ALL).directory().names() == []


def test_an_unflushed_replacement_is_undone() -> None:
    disk, root = make()
    durable_file(root, "a", b"old")
    durable_file(root, "b", b"new")
    root.rename("b", "a")
    lost = disk.crash(RNG, CrashMode.LOSE_ALL)
    assert (content(lost, "a"), content(lost, "b")) == (b"old", b"new")
    root_again = disk.crash(RNG, CrashMode.SURVIVE_ALL).directory()
    assert root_again.names() == ["a"]


def test_paths_after_a_crash_are_those_of_the_surviving_names() -> None:
    disk, root = make()
    root.make_directory("d")
    root.sync()
    durable_file(root.subdirectory("d"), "a", b"abc")
    root.rename("d", "e")
    lost = disk.crash(RNG, CrashMode.LOSE_ALL)
    assert lost.directory().subdirectory("d").open("a").name == "d/a"


def test_a_directory_lost_takes_its_flushed_files_with_it() -> None:
    disk, root = make()
    root.make_directory("d")
    durable_file(root.subdirectory("d"), "a", b"abc")
    assert disk.durable_bytes("d/a") is None
    assert disk.crash(RNG, CrashMode.LOSE_ALL).directory().names() == []


def test_create_is_durable() -> None:
    disk, root = make()
    root.subdirectory("a").subdirectory("b").create()
    lost = disk.crash(RNG, CrashMode.LOSE_ALL).directory()
    assert lost.subdirectory("a").names() == ["b"]


def test_what_a_kill_leaves_can_still_be_lost_by_a_power_cut() -> None:
    disk, root = make()
    file = durable_file(root, "a", b"old")
    file.pwrite([b"new"], 0)
    killed = disk.crash(RNG, CrashMode.KILL)
    assert content(killed, "a") == b"new"
    assert killed.durable_bytes("a") == b"old"
    assert content(killed.crash(RNG, CrashMode.LOSE_ALL), "a") == b"old"
    twice = disk.crash(RNG, CrashMode.KILL)
    opened(twice.directory(), "a").sync()
    assert content(twice.crash(RNG, CrashMode.LOSE_ALL), "a") == b"new"


# Faults

FAILING: list[tuple[Call, Callable[[SimulatedDirectory, SimulatedFile], object]]] = [
    (Call.CREATE, lambda root, file: root.open("new", create=True)),
    (Call.WRITE, lambda root, file: file.pwrite([b"X"], 0)),
    (Call.TRUNCATE, lambda root, file: file.truncate(0)),
    (Call.SYNC, lambda root, file: file.sync()),
    (Call.RENAME, lambda root, file: root.rename("a", "new")),
    (Call.UNLINK, lambda root, file: root.unlink("a")),
    (Call.MAKE_DIRECTORY, lambda root, file: root.make_directory("new")),
    (Call.REMOVE_DIRECTORY, lambda root, file: root.remove_tree("d")),
    (Call.SYNC_DIRECTORY, lambda root, file: root.sync()),
    (Call.READ, lambda root, file: file.pread(9, 0)),
]


@pytest.mark.parametrize(("call", "act"), FAILING, ids=[row[0].name for row in FAILING])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_each_call_fails_on_command_once_and_without_effect(
    call: Call, act: Callable[[SimulatedDirectory, SimulatedFile], object], code: int
) -> None:
    disk, root = make()
    file = durable_file(root, "a", b"abc")
    root.make_directory("d")
    root.sync()
    disk.fail(call, code=code)
    with pytest.raises(StorageError, match=errno.errorcode[code]) as failed:
        act(root, file)
    full = code == errno.ENOSPC
    expected: type[StorageError] = DiskFull if full else LogDirFailed
    if call in {Call.SYNC, Call.SYNC_DIRECTORY, Call.TRUNCATE}:
        expected = LogDirFailed
    if call is Call.READ:
        expected = ReadFailed
    assert type(failed.value) is expected
    assert root.names() == ["a", "d"]
    assert file.pread(9, 0) == b"abc"
    if call not in {Call.SYNC, Call.SYNC_DIRECTORY}:
        act(root, file)


def test_a_fault_waits_for_its_file_and_its_turn() -> None:
    disk, root = make()
    one, two = opened(root, "one", create=True), opened(root, "two", create=True)
    disk.fail(Call.WRITE, name="two", skip=1)
    one.pwrite([b"1"], 0)
    two.pwrite([b"1"], 0)
    one.pwrite([b"2"], 1)
    with pytest.raises(LogDirFailed, match="two"):
        two.pwrite([b"2"], 1)
    two.pwrite([b"3"], 1)
    assert two.pread(9, 0) == b"13"


def test_two_faults_on_one_call_strike_one_after_the_other() -> None:
    disk, root = make()
    file = opened(root, "a", create=True)
    disk.fail(Call.WRITE, skip=1)
    disk.fail(Call.WRITE, code=errno.ENOSPC)
    with pytest.raises(DiskFull):
        file.pwrite([b"1"], 0)
    with pytest.raises(LogDirFailed):
        file.pwrite([b"1"], 0)
    file.pwrite([b"1"], 0)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_short_write_leaves_its_first_bytes(code: int) -> None:
    disk, root = make()
    file = durable_file(root, "a", b"abc")
    disk.fail(Call.WRITE, code=code, short=2)
    with pytest.raises(StorageError):
        file.pwrite([b"d", b"efg"], 3)
    assert file.pread(9, 0) == b"abcde"
    assert disk.durable_bytes("a") == b"abc"
    file.sync()
    assert disk.durable_bytes("a") == b"abcde"


def test_a_full_disk_takes_what_fits() -> None:
    disk, root = make(capacity_bytes=5)
    file = durable_file(root, "a", b"abc")
    with pytest.raises(DiskFull):
        file.pwrite([b"defg"], 3)
    assert file.pread(9, 0) == b"abcde"
    assert content(disk.image(RNG, CrashMode.SURVIVE_ALL), "a") == b"abcde"
    with pytest.raises(DiskFull):
        file.pwrite([b"X"], 5)
    file.truncate(1)
    file.pwrite([b"XYZ"], 1)
    file.sync()
    assert disk.durable_bytes("a") == b"aXYZ"


def test_a_failed_flush_loses_the_pages_and_lies_about_it() -> None:
    disk, root = make()
    file = durable_file(root, "a", b"old")
    file.pwrite([b"new"], 0)
    disk.fail(Call.SYNC)
    with pytest.raises(LogDirFailed, match="EIO"):
        file.sync()
    assert file.pread(9, 0) == b"new", "the page cache still shows them"
    for again in (file, opened(root, "a")):
        for act in (again.sync, lambda f=again: f.pwrite([b"x"], 0), lambda f=again: f.truncate(0)):
            with pytest.raises(LogDirFailed, match="not written any more"):
                act()
    assert content(disk.crash(RNG, CrashMode.SURVIVE_ALL), "a") == b"old", "lost, nobody is told"
    killed = disk.crash(RNG, CrashMode.KILL)
    file = opened(killed.directory(), "a")
    assert file.pread(9, 0) == b"new", "the lie outlives the process"
    file.sync()
    assert killed.durable_bytes("a") == b"old", "a flush without a new write saves nothing"
    file.pwrite([b"new"], 0)
    file.sync()
    assert killed.durable_bytes("a") == b"new"


def test_a_failed_flush_of_names_loses_them() -> None:
    disk, root = make()
    opened(root, "a", create=True)
    disk.fail(Call.SYNC_DIRECTORY)
    with pytest.raises(LogDirFailed):
        root.sync()
    with pytest.raises(LogDirFailed, match="earlier"):
        root.sync()
    assert root.names() == ["a"]
    assert disk.crash(RNG, CrashMode.SURVIVE_ALL).directory().names() == []


def test_a_read_turns_one_bit_over_once() -> None:
    disk, root = make()
    file = durable_file(root, "a", b"\0\0\0")
    disk.flip_read(8 + 3, name="a")
    assert file.pread(3, 0) == b"\0\x08\0"
    assert file.pread(3, 0) == b"\0\0\0"
    disk.flip_read(24)
    assert file.pread(3, 0) == b"\1\0\0"
    disk.flip_read(5)
    assert file.pread(3, 3) == b""


def test_damage_changes_the_bytes_for_good_and_never_the_size() -> None:
    disk, root = make()
    file = durable_file(root, "a", b"abcdef")
    disk.damage("a", 4, b"XYZ")
    assert file.pread(9, 0) == b"abcdXY"
    assert content(disk.image(RNG, CrashMode.LOSE_ALL), "a") == b"abcdXY"
    disk.damage("a", 60, b"XYZ")
    assert file.size_bytes() == 6


def test_a_cold_disk_answers_no_cached_read() -> None:
    disk, root = make()
    file = durable_file(root, "a", b"abc")
    assert file.pread_cached(3, 0) == b"abc"
    disk.cold = True
    assert file.pread_cached(3, 0) is None
    assert file.pread(3, 0) == b"abc"
