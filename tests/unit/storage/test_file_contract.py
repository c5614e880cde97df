"""What every implementation of the file seam does, real, in memory and simulated."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringlog.storage.errors import DirectoryInUse, FileMissing, LogDirFailed
from ringlog.storage.files import Directory
from tests.unit.storage.file_seams import SEAMS


@pytest.fixture(params=SEAMS)
def absent(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return SEAMS[request.param](tmp_path)


@pytest.fixture
def root(absent: Directory) -> Directory:
    absent.create()
    return absent


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads take turns so often that a missing lock shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def content(directory: Directory, name: str) -> bytes:
    file = directory.open(name)
    try:
        return file.pread(file.size_bytes(), 0)
    finally:
        file.close()


def put(directory: Directory, name: str, data: bytes) -> None:
    file = directory.open(name, create=True)
    file.pwrite([data], 0)
    file.close()


# Files


def test_a_new_file_is_empty_and_named_from_the_root(root: Directory) -> None:
    root.make_directory("orders-0")
    file = root.subdirectory("orders-0").open("a.log", create=True)
    assert (file.size_bytes(), file.name) == (0, "orders-0/a.log")
    assert file.pread(10, 0) == b""


def test_open_without_create_refuses_an_absent_file(root: Directory) -> None:
    with pytest.raises(FileMissing, match=r"a\.log"):
        root.open("a.log")
    assert root.names() == []


def test_open_in_an_absent_directory_is_refused(root: Directory) -> None:
    with pytest.raises(FileMissing):
        root.subdirectory("orders-0").open("a.log", create=True)


def test_open_does_not_truncate(root: Directory) -> None:
    put(root, "a", b"abc")
    assert root.open("a", create=True).pread(9, 0) == b"abc"


def test_a_directory_can_not_be_opened_as_a_file(root: Directory) -> None:
    root.make_directory("orders-0")
    with pytest.raises(LogDirFailed):
        root.open("orders-0")


def test_writes_land_where_told_and_buffers_follow_one_another(root: Directory) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abc", bytearray(b"def"), memoryview(b"-ghi-")[1:4]], 0)
    file.pwrite([b"XY"], 2)
    file.pwrite([b"", b"!"], 9)
    assert file.pread(100, 0) == b"abXYefghi!"
    assert file.size_bytes() == 10


def test_a_write_over_the_end_keeps_what_is_before_it(root: Directory) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abcd"], 0)
    file.pwrite([b"123456"], 2)
    assert file.pread(100, 0) == b"ab123456"


def test_a_gap_before_a_write_reads_as_zeros(root: Directory) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"x"], 3)
    assert file.pread(100, 0) == b"\0\0\0x"


def test_writing_nothing_changes_nothing(root: Directory) -> None:
    file = root.open("a", create=True)
    file.pwrite([], 5)
    file.pwrite([b"", b""], 5)
    assert file.size_bytes() == 0


def test_more_buffers_than_one_system_call_takes(root: Directory) -> None:
    file = root.open("a", create=True)
    parts = [b"%05d" % n for n in range(5_000)]
    file.pwrite(parts, 7)
    assert file.pread(1 << 20, 7) == b"".join(parts)


def test_reads_are_short_only_at_the_end(root: Directory) -> None:
    put(root, "a", b"abcdef")
    file = root.open("a")
    assert file.pread(3, 1) == b"bcd"
    assert file.pread(9, 4) == b"ef"
    assert file.pread(9, 6) == b""
    assert file.pread(9, 60) == b""
    assert file.pread(0, 0) == b""


def test_a_cached_read_gives_the_same_bytes_or_none(root: Directory) -> None:
    put(root, "a", bytes(range(256)) * 64)
    file = root.open("a")
    for size_bytes, position in [(3, 1), (1 << 20, 16_000), (9, 16_384), (9, 99_999), (0, 0)]:
        assert file.pread_cached(size_bytes, position) in {None, file.pread(size_bytes, position)}
    assert file.pread_cached(10, 0) == bytes(range(10)), "it was read just before"


def test_truncate_cuts_and_extends_with_zeros(root: Directory) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abcdef"], 0)
    file.truncate(2)
    assert file.pread(9, 0) == b"ab"
    file.truncate(4)
    assert file.pread(9, 0) == b"ab\0\0"
    file.pwrite([b"Z"], 4)
    assert file.pread(9, 0) == b"ab\0\0Z"


def test_two_openers_see_one_file(root: Directory) -> None:
    one = root.open("a", create=True)
    two = root.open("a")
    one.pwrite([b"abc"], 0)
    assert two.pread(9, 0) == b"abc"
    one.close()
    one.close()
    two.pwrite([b"d"], 3)
    two.sync()
    assert two.pread(9, 0) == b"abcd"


def test_a_closed_file_is_not_used_again(root: Directory) -> None:
    file = root.open("a", create=True)
    file.close()
    calls: list[Callable[[], object]] = [
        lambda: file.pread(1, 0),
        lambda: file.pread_cached(1, 0),
        lambda: file.pwrite([b"x"], 0),
        lambda: file.truncate(0),
        file.sync,
        file.size_bytes,
    ]
    for call in calls:
        with pytest.raises(AssertionError):
            call()


# Open files and their names


def uses(file_of: Directory, name: str) -> list[Callable[[], object]]:
    file = file_of.open(name)
    return [
        lambda: file.pread(1, 0),
        lambda: file.pread_cached(1, 0),
        lambda: file.pwrite([b"x"], 0),
        lambda: file.truncate(0),
        file.sync,
        file.size_bytes,
    ]


def assert_gone(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        with pytest.raises(FileMissing):
            call()


def test_an_open_file_ends_with_its_name(root: Directory) -> None:
    put(root, "a", b"old")
    calls = uses(root, "a")
    file = root.open("a")
    root.unlink("a")
    assert_gone(calls)
    put(root, "a", b"new")
    assert_gone(calls)
    assert content(root, "a") == b"new"
    file.close()
    assert content(root, "a") == b"new"


def test_an_open_file_that_is_replaced_never_reaches_the_new_one(root: Directory) -> None:
    put(root, "a", b"old")
    put(root, "b", b"new")
    calls = uses(root, "a")
    root.rename("b", "a")
    assert_gone(calls)
    assert content(root, "a") == b"new"


def test_an_open_file_follows_its_rename(root: Directory) -> None:
    put(root, "a", b"abc")
    file = root.open("a")
    root.rename("a", "b")
    for n in range(9):
        root.open(f"other-{n}", create=True).size_bytes()  # evicts descriptors of the real one
    assert (file.pread(9, 0), file.name) == (b"abc", "b")
    file.pwrite([b"d"], 3)
    file.close()
    assert content(root, "b") == b"abcd"


def test_an_open_file_follows_the_rename_of_its_directory(root: Directory) -> None:
    root.make_directory("orders-0")
    put(root.subdirectory("orders-0"), "a", b"abc")
    root.make_directory("orders-00")
    put(root.subdirectory("orders-00"), "a", b"other")
    file = root.subdirectory("orders-0").open("a")
    other = root.subdirectory("orders-00").open("a")
    root.rename("orders-0", "orders-0.deleted")
    for n in range(9):
        root.open(f"other-{n}", create=True).size_bytes()
    assert (file.pread(9, 0), file.name) == (b"abc", "orders-0.deleted/a")
    assert (other.pread(9, 0), other.name) == (b"other", "orders-00/a")


def test_files_of_a_removed_tree_are_gone(root: Directory) -> None:
    root.make_directory("orders-0")
    put(root.subdirectory("orders-0"), "a", b"abc")
    calls = uses(root.subdirectory("orders-0"), "a")
    root.remove_tree("orders-0")
    assert_gone(calls)


# Directories


def test_names_are_sorted_and_exist(root: Directory) -> None:
    for name in ("b", "a", "c"):
        put(root, name, b"")
    root.make_directory("aa")
    assert root.names() == ["a", "aa", "b", "c"]
    assert root.exists("aa")
    assert root.exists("b")
    assert not root.exists("d")
    assert not root.subdirectory("d").exists("e")


def test_an_absent_directory_has_no_names(absent: Directory) -> None:
    for directory in (absent, absent.subdirectory("orders-0")):
        with pytest.raises(FileMissing):
            directory.names()
        with pytest.raises(FileMissing):
            directory.sync()


def test_create_makes_the_parents_too_and_may_be_repeated(absent: Directory) -> None:
    below = absent.subdirectory("a").subdirectory("b")
    below.create()
    put(below, "file", b"abc")
    below.create()
    assert absent.names() == ["a"]
    assert content(below, "file") == b"abc"


def test_make_directory_may_be_repeated(root: Directory) -> None:
    root.make_directory("orders-0")
    put(root.subdirectory("orders-0"), "a", b"abc")
    root.make_directory("orders-0")
    root.sync()
    assert content(root.subdirectory("orders-0"), "a") == b"abc"


def test_make_directory_refuses_a_file_and_an_absent_parent(root: Directory) -> None:
    put(root, "a", b"abc")
    with pytest.raises(LogDirFailed):
        root.make_directory("a")
    with pytest.raises(FileMissing):
        root.subdirectory("b").make_directory("c")
    assert content(root, "a") == b"abc"


def test_rename_replaces_a_file(root: Directory) -> None:
    put(root, "a", b"old")
    put(root, "b", b"new")
    root.rename("b", "a")
    assert root.names() == ["a"]
    assert content(root, "a") == b"new"


def test_rename_to_itself_changes_nothing(root: Directory) -> None:
    put(root, "a", b"abc")
    file = root.open("a")
    root.rename("a", "a")
    assert file.pread(9, 0) == b"abc"


def test_rename_refuses_an_absent_name(root: Directory) -> None:
    put(root, "a", b"abc")
    with pytest.raises(FileMissing):
        root.rename("b", "a")
    assert content(root, "a") == b"abc"


@pytest.mark.parametrize("full", [False, True])
def test_rename_does_not_replace_a_directory(root: Directory, full: bool) -> None:
    for name in ("one", "two"):
        root.make_directory(name)
    if full:
        put(root.subdirectory("two"), "a", b"abc")
    put(root, "file", b"abc")
    for old, new in [("one", "two"), ("file", "two"), ("one", "file")]:
        with pytest.raises(LogDirFailed):
            root.rename(old, new)
    assert root.names() == ["file", "one", "two"]


def test_unlink_removes_a_file_and_may_be_repeated(root: Directory) -> None:
    put(root, "a", b"abc")
    root.unlink("a")
    root.unlink("a")
    assert root.names() == []


def test_unlink_refuses_a_directory(root: Directory) -> None:
    root.make_directory("orders-0")
    with pytest.raises(LogDirFailed):
        root.unlink("orders-0")
    assert root.names() == ["orders-0"]


def test_remove_tree_takes_all_below_and_may_be_repeated(root: Directory) -> None:
    deep = root.subdirectory("a").subdirectory("b")
    deep.create()
    put(deep, "file", b"abc")
    put(root, "other", b"abc")
    root.remove_tree("a")
    root.remove_tree("a")
    assert root.names() == ["other"]


def test_remove_tree_refuses_a_file(root: Directory) -> None:
    put(root, "a", b"abc")
    file = root.open("a")
    with pytest.raises(LogDirFailed):
        root.remove_tree("a")
    assert file.pread(9, 0) == b"abc"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "/etc", "a\0b", "x" * 256, "é" * 128])
def test_a_name_is_one_component(root: Directory, name: str) -> None:
    put(root, "a", b"abc")
    calls: list[Callable[[], object]] = [
        lambda: root.open(name, create=True),
        lambda: root.exists(name),
        lambda: root.subdirectory(name),
        lambda: root.make_directory(name),
        lambda: root.rename("a", name),
        lambda: root.rename(name, "a"),
        lambda: root.unlink(name),
        lambda: root.remove_tree(name),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="name"):
            call()
    assert root.names() == ["a"]


def test_free_bytes_is_a_count(root: Directory) -> None:
    assert root.free_bytes() > 0


def test_one_lock_at_a_time(root: Directory) -> None:
    lock = root.lock()
    with pytest.raises(DirectoryInUse, match="in use by"):
        root.lock()
    lock.release()
    again = root.lock()
    lock.release()
    with pytest.raises(DirectoryInUse):
        root.lock()
    again.release()
    with pytest.raises(FileMissing):
        root.subdirectory("absent").lock()


def test_reads_run_beside_appends(root: Directory, many_switches: None) -> None:
    """Each read sees whole what was appended before it began."""
    file = root.open("a", create=True)
    others = [root.open(f"other-{n}", create=True) for n in range(6)]
    appended = 0
    ended = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not ended.is_set():
                end = appended
                data = file.pread(end * 10, 0)
                assert data == b"".join(b"%010d" % n for n in range(end))
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        while appended < 400:
            file.pwrite([b"%010d" % appended], appended * 10)
            others[appended % 6].size_bytes()
            appended += 1
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert failures == []
