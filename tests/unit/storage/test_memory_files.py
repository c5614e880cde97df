"""What only the memory seam does: capacity, cost of an append, nothing shared between trees."""

import pytest

from ringlog.storage.errors import DiskFull, LogDirFailed
from ringlog.storage.memory_files import MemoryDirectory, MemoryTree


def make(capacity_bytes: int) -> MemoryDirectory:
    root = MemoryDirectory(MemoryTree(capacity_bytes))
    root.create()
    return root


def test_a_write_over_the_capacity_writes_what_fits_and_says_so() -> None:
    root = make(10)
    file = root.open("a", create=True)
    file.pwrite([b"abcdef"], 0)
    with pytest.raises(DiskFull, match="a: no space") as refused:
        file.pwrite([b"gh", b"ijkl"], 6)
    assert refused.value.hint
    assert file.pread(99, 0) == b"abcdefghij"
    assert root.free_bytes() == 0
    with pytest.raises(DiskFull):
        root.open("b", create=True).pwrite([b"x"], 0)
    file.pwrite([b"XYZ"], 0)
    assert file.pread(99, 0) == b"XYZdefghij"


def test_a_gap_that_does_not_fit_leaves_the_file_as_it_was() -> None:
    root = make(10)
    file = root.open("a", create=True)
    file.pwrite([b"ab"], 0)
    with pytest.raises(DiskFull):
        file.pwrite([b"x"], 30)
    assert (file.pread(99, 0), root.free_bytes()) == (b"ab", 8)


def test_space_comes_back_by_truncation_unlink_and_replacement() -> None:
    root = make(10)
    for name in ("a", "b"):
        root.open(name, create=True).pwrite([b"12345"], 0)
    assert root.free_bytes() == 0
    root.open("a").truncate(2)
    assert root.free_bytes() == 3
    root.rename("a", "b")
    assert root.free_bytes() == 8
    root.unlink("b")
    assert root.free_bytes() == 10


def test_space_comes_back_from_a_removed_tree() -> None:
    root = make(10)
    root.make_directory("orders-0")
    root.subdirectory("orders-0").open("a", create=True).pwrite([b"12345"], 0)
    root.remove_tree("orders-0")
    assert root.free_bytes() == 10


def test_growing_over_the_capacity_changes_nothing() -> None:
    root = make(10)
    file = root.open("a", create=True)
    with pytest.raises(LogDirFailed, match="no space"):
        file.truncate(11)
    file.truncate(10)
    file.truncate(0)
    assert root.free_bytes() == 10


def test_an_append_does_not_copy_what_is_before_it() -> None:
    """A file of 64 MiB grows by a byte 20,000 times: copied each time, that were 1.3 TB."""
    file = make(1 << 30).open("a", create=True)
    file.truncate(64 << 20)
    for n in range(20_000):
        file.pwrite([b"x"], (64 << 20) + n)
    assert file.size_bytes() == (64 << 20) + 20_000


def test_reading_the_end_of_a_large_file_copies_the_end_only() -> None:
    file = make(1 << 30).open("a", create=True)
    file.truncate(64 << 20)
    for n in range(20_000):
        assert file.pread(4, (64 << 20) - 4 - n) == b"\0\0\0\0"


def test_trees_share_nothing() -> None:
    one, two = make(10), make(10)
    one.open("a", create=True)
    assert two.names() == []
