"""Which images a power cut makes of pending writes, and which it never makes."""

import itertools
import random

import pytest

from ringlog.storage.crash_images import (
    SECTOR_BYTES,
    CrashMode,
    SimulatedDirectoryNode,
    SimulatedFileNode,
    Truncate,
    Write,
    after_kill,
    after_power_cut,
)


def file_of(durable: bytes, *pending: Write | Truncate) -> SimulatedFileNode:
    node = SimulatedFileNode("a")
    node.durable = bytearray(durable)
    node.content = bytearray(durable)
    node.pending = list(pending)
    return node


def images(node: SimulatedFileNode, count: int = 300) -> list[bytes]:
    found = []
    for seed in range(count):
        image = after_power_cut(node, "a", random.Random(seed), CrashMode.POWER_CUT)
        assert isinstance(image, SimulatedFileNode)
        assert image.content == image.durable
        assert image.pending == []
        found.append(bytes(image.content))
    return found


def test_what_is_durable_is_in_every_image() -> None:
    node = file_of(b"d" * 1000, Write(1000, b"a" * 700), Write(1700, b"b" * 700))
    for image in images(node):
        assert image[:1000] == b"d" * 1000


def test_every_kind_of_loss_occurs() -> None:
    """A disk that is too kind would prove nothing."""
    old, one, two = b"d" * 1000, b"a" * 1000, b"b" * 1000
    found = images(file_of(old, Write(1000, one), Write(2000, two)))
    assert old in found, "all lost"
    assert old + one + two in found, "nothing lost"
    assert old + one in found, "the first survives alone"
    assert old + bytes(1000) + two in found, "the second survives alone: a hole before it"
    assert any(0 < len(i) - 1000 < 1000 for i in found), "size cut within a write"
    torn = old + b"a" * (SECTOR_BYTES * 2 - 1000)
    assert torn in found, "torn at a sector, short"
    zeros = [i for i in found if i.startswith(torn + b"\0") and len(i) <= 2000]
    assert zeros, "torn at a sector, zeros behind"
    known = set(b"dab\0")
    assert any(set(i) - known for i in found), "garbage behind the old end"


def test_a_sector_is_old_or_new_where_the_file_was() -> None:
    old = bytes(range(4)) * SECTOR_BYTES
    new = b"\xff" * (3 * SECTOR_BYTES)
    found = images(file_of(old, Write(100, new)))
    edges = [0, 100, 512, 1024, 1536, 1636, 2048]
    mixtures = set()
    for image in found:
        assert len(image) == len(old)
        parts = []
        for start, end in itertools.pairwise(edges):
            written = new[start - 100 : end - 100] if 100 <= start < 1636 else old[start:end]
            assert image[start:end] in {old[start:end], written}
            parts.append(image[start:end] == written)
        mixtures.add(tuple(parts[1:5]))
    assert len(mixtures) == 16, "any of the sectors may be the ones that survive"


def test_a_pending_truncation_survives_or_not() -> None:
    node = file_of(b"abcdef", Truncate(2), Write(2, b"XY"))
    found = set(images(node))
    assert {b"abcdef", b"ab", b"abXY", b"abXYef"} <= found


def test_two_files_lose_independently() -> None:
    root = SimulatedDirectoryNode()
    for name in ("a", "b"):
        node = file_of(b"", Write(0, b"x"))
        root.link(name, node)
    root.flush()
    found = set()
    for seed in range(100):
        image = after_power_cut(root, "", random.Random(seed), CrashMode.POWER_CUT)
        assert isinstance(image, SimulatedDirectoryNode)
        nodes = [image.entries[name] for name in ("a", "b")]
        found.add(tuple(isinstance(n, SimulatedFileNode) and n.content == b"x" for n in nodes))
    assert len(found) == 4


def test_names_survive_as_a_prefix() -> None:
    root = SimulatedDirectoryNode()
    root.link("old", file_of(b"old"))
    root.flush()
    root.link("a.tmp", file_of(b"new"))
    root.move("a.tmp", "old")
    root.link("b", file_of(b""))
    root.unlink("b")
    found = set()
    for seed in range(100):
        image = after_power_cut(root, "", random.Random(seed), CrashMode.POWER_CUT)
        assert isinstance(image, SimulatedDirectoryNode)
        old = image.entries["old"]
        assert isinstance(old, SimulatedFileNode)
        found.add((tuple(image.entries), bytes(old.durable)))
    assert found == {
        (("old",), b"old"),
        (("a.tmp", "old"), b"old"),
        (("old",), b"new"),
        (("b", "old"), b"new"),
    }


@pytest.mark.parametrize(
    ("mode", "content", "names"),
    [
        (CrashMode.LOSE_ALL, b"old", ["a"]),
        (CrashMode.SURVIVE_ALL, b"old-new", ["a", "b"]),
    ],
)
def test_the_two_extremes(mode: CrashMode, content: bytes, names: list[str]) -> None:
    root = SimulatedDirectoryNode()
    root.link("a", file_of(b"old", Write(3, b"-new")))
    root.flush()
    root.link("b", file_of(b""))
    image = after_power_cut(root, "", random.Random(0), mode)
    assert isinstance(image, SimulatedDirectoryNode)
    assert list(image.entries) == names
    node = image.entries["a"]
    assert isinstance(node, SimulatedFileNode)
    assert bytes(node.content) == content


def test_a_kill_loses_nothing_and_makes_nothing_durable() -> None:
    root = SimulatedDirectoryNode()
    node = file_of(b"old", Write(3, b"-new"))
    node.content = bytearray(b"old-new")
    root.link("a", node)
    image = after_kill(root, {})
    node.content.clear()
    node.pending.clear()
    assert isinstance(image, SimulatedDirectoryNode)
    copy = image.entries["a"]
    assert isinstance(copy, SimulatedFileNode)
    assert bytes(copy.content) == b"old-new"
    assert copy.pending == [Write(3, b"-new")]
    assert image.durable == {}
    image.flush()
    assert image.durable == {"a": copy}, "one copy, however often it is reached"


def test_equal_seeds_give_equal_images() -> None:
    node = file_of(b"d" * 100, *(Write(100 * n, b"%d" % n * 1000) for n in range(9)))
    assert images(node, 50) == images(node, 50)
