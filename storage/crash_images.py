"""What a crash leaves: nodes that know what is durable, and the images a crash may make of them.

Owns the durable and pending state of simulated files and directories, and the choice of what
survives. Must not know calls, faults or when a crash happens (`storage.simulated_files`).

Invariants:
    CI1 A power cut never loses what was made durable by `flush`.
    CI2 Pending operations of a file survive as a prefix or as any subset, the last one torn at
        sectors of 512 bytes (a sector itself is old or new; beyond the old end also zeros or
        garbage). Different files, and files and names, are independent.
    CI3 Pending name changes of a directory survive as a prefix. A rename is one change.

Source: ALICE (Pillai et al., OSDI 2014).
"""

import enum
import itertools
import random
from typing import Final, NamedTuple

from ringlog.storage.memory_files import DirectoryNode, FileNode, Node, write_into

SECTOR_BYTES: Final = 512


class CrashMode(enum.Enum):
    """What a crash keeps."""

    KILL = "kill"
    """The process dies; the page cache and with it every write survives, durable or not."""
    POWER_CUT = "power cut"
    """Each pending operation may survive or not (CI2, CI3)."""
    LOSE_ALL = "lose all"
    """A power cut that keeps nothing but what is durable."""
    SURVIVE_ALL = "survive all"
    """A power cut just after the disk wrote everything that was pending."""


class Write(NamedTuple):
    """Bytes written at a position, not flushed."""

    position: int
    data: bytes


class Truncate(NamedTuple):
    """A size set, not flushed."""

    size_bytes: int


class Link(NamedTuple):
    """An entry made."""

    name: str
    node: Node


class Unlink(NamedTuple):
    """An entry removed."""

    name: str


class Move(NamedTuple):
    """An entry renamed."""

    old: str
    new: str


class SimulatedFileNode(FileNode):
    """`content` is the page cache, `durable` what the disk holds for certain."""

    __slots__ = ("durable", "failed", "pending")

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.durable = bytearray()
        self.pending: list[Write | Truncate] = []
        self.failed = False

    def flush(self) -> None:
        """Make all pending operations durable."""
        for operation in self.pending:
            _apply(self.durable, operation)
        self.pending.clear()

    def lose_pages(self) -> None:
        """Forget pending operations as a failed flush does: `content` still shows them."""
        self.pending.clear()
        self.failed = True


class SimulatedDirectoryNode(DirectoryNode):
    """`entries` is what calls see, `durable` what the disk holds for certain."""

    __slots__ = ("durable", "failed", "pending")

    def __init__(self) -> None:
        super().__init__()
        self.durable: dict[str, Node] = {}
        self.pending: list[Link | Unlink | Move] = []
        self.failed = False

    def link(self, name: str, node: Node) -> None:
        """Add an entry."""
        super().link(name, node)
        self.pending.append(Link(name, node))

    def unlink(self, name: str) -> None:
        """Remove an entry."""
        super().unlink(name)
        self.pending.append(Unlink(name))

    def move(self, old: str, new: str) -> None:
        """Rename an entry over `new`."""
        super().move(old, new)
        self.pending.append(Move(old, new))

    def flush(self) -> None:
        """Make all pending name changes durable."""
        self.durable = dict(self.entries)
        self.pending.clear()

    def lose_pages(self) -> None:
        """Forget pending name changes as a failed flush does: `entries` still shows them."""
        self.pending.clear()
        self.failed = True


def after_kill(node: Node, copies: dict[int, Node]) -> Node:
    """A copy of a tree as the next process finds it: nothing is lost, nothing more durable.

    Args:
        node: root of the tree.
        copies: copies made so far by identity of the original; pass an empty one.
    """
    known = copies.get(id(node))
    if known is not None:
        return known
    if isinstance(node, SimulatedFileNode):
        file = SimulatedFileNode(node.path)
        file.content = bytearray(node.content)
        file.durable = bytearray(node.durable)
        file.pending = list(node.pending)
        copies[id(node)] = file
        return file
    assert isinstance(node, SimulatedDirectoryNode)
    directory = SimulatedDirectoryNode()
    copies[id(node)] = directory
    directory.entries = {name: after_kill(n, copies) for name, n in node.entries.items()}
    directory.durable = {name: after_kill(n, copies) for name, n in node.durable.items()}
    directory.pending = [
        Link(change.name, after_kill(change.node, copies)) if isinstance(change, Link) else change
        for change in node.pending
    ]
    return directory


def after_power_cut(node: Node, path: str, rng: random.Random, mode: CrashMode) -> Node:
    """A copy of a tree as the next boot finds it, chosen by `rng`. `path` is that of `node`."""
    if isinstance(node, SimulatedFileNode):
        file = SimulatedFileNode(path)
        file.durable = _surviving_bytes(node, rng, mode)
        file.content = bytearray(file.durable)
        return file
    assert isinstance(node, SimulatedDirectoryNode)
    entries = dict(node.durable)
    for change in node.pending[: _surviving_count(len(node.pending), rng, mode)]:
        if isinstance(change, Link):
            entries[change.name] = change.node
        elif isinstance(change, Unlink):
            del entries[change.name]
        else:
            entries[change.new] = entries.pop(change.old)
    directory = SimulatedDirectoryNode()
    for name in sorted(entries):
        below = f"{path}/{name}" if path else name
        directory.durable[name] = after_power_cut(entries[name], below, rng, mode)
    directory.entries = dict(directory.durable)
    return directory


def _surviving_count(pending: int, rng: random.Random, mode: CrashMode) -> int:
    if mode is CrashMode.POWER_CUT:
        return rng.randint(0, pending)
    return pending if mode is CrashMode.SURVIVE_ALL else 0


def _surviving_bytes(node: SimulatedFileNode, rng: random.Random, mode: CrashMode) -> bytearray:
    image = bytearray(node.durable)
    if mode is CrashMode.POWER_CUT and rng.getrandbits(1):
        kept = [operation for operation in node.pending if rng.getrandbits(1)]
        torn = kept.pop() if kept else None
        ordered = False
    else:
        count = _surviving_count(len(node.pending), rng, mode)
        kept = node.pending[:count]
        torn = (
            node.pending[count]
            if mode is CrashMode.POWER_CUT and count < len(node.pending)
            else None
        )
        ordered = True
    for operation in kept:
        _apply(image, operation)
    if isinstance(torn, Write):
        _apply_torn(image, torn, rng, ordered=ordered)
    return image


def _apply(image: bytearray, operation: Write | Truncate) -> None:
    if isinstance(operation, Write):
        write_into(image, [operation.data], operation.position)
    elif operation.size_bytes <= len(image):
        del image[operation.size_bytes :]
    else:
        image.extend(bytes(operation.size_bytes - len(image)))


def _apply_torn(image: bytearray, write: Write, rng: random.Random, *, ordered: bool) -> None:
    """Write some sectors of a write: the first ones, or (not `ordered`) any of them.

    Where a lost sector lies behind the old end, but the size was written out, the file holds
    zeros or whatever was on the disk before.
    """
    sectors = _sectors(write)
    if ordered:
        kept = sectors[: rng.randint(0, len(sectors))]
    else:
        kept = [sector for sector in sectors if rng.getrandbits(1)]
    old_end = len(image)
    if rng.getrandbits(1):  # the size was written out, for some of the sectors or all
        end = rng.choice(sectors)
        new_end = max(old_end, end.position + len(end.data))
        fill = rng.randbytes if rng.getrandbits(1) else bytes
        image.extend(fill(new_end - old_end))
    for sector in kept:
        write_into(image, [sector.data], sector.position)


def _sectors(write: Write) -> list[Write]:
    end = write.position + len(write.data)
    first_edge = (write.position // SECTOR_BYTES + 1) * SECTOR_BYTES
    edges = [write.position, *range(first_edge, end, SECTOR_BYTES), end]
    return [
        Write(start, write.data[start - write.position : stop - write.position])
        for start, stop in itertools.pairwise(edges)
    ]
