"""The file seam in memory: files of a broker that keeps nothing (`storage=memory`).

Owns the tree of nodes and its rules, which `storage.simulated_files` extends by a disk below
it. Must not know the operating system, and has no notion of what is durable: `sync` does
nothing.

Invariants (F1 to F5 are those of `storage.files`):
    M1  An append costs its own bytes, not those before it.
    M2  The bytes of all files together never exceed the capacity.
"""

import copy
import threading
from collections.abc import Sequence
from typing import Final

from ringlog.storage.errors import (
    AccessRefused,
    DirectoryInUse,
    DiskFull,
    FileMissing,
    LogDirFailed,
)
from ringlog.storage.files import check_name
from ringlog.storage.types import Buffer

DEFAULT_CAPACITY_BYTES: Final = 1 << 40

_FULL_HINT: Final = "free space, raise the capacity, or lower retention.bytes"


class FileNode:
    """The bytes of one file, shared by all who have it open. `path` is relative to the root."""

    __slots__ = ("content", "gone", "lock", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.content = bytearray()
        self.gone = False
        self.lock = threading.Lock()


class DirectoryNode:
    """The entries of one directory."""

    __slots__ = ("entries", "locked")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.locked = False

    def link(self, name: str, node: "Node") -> None:
        """Add an entry."""
        self.entries[name] = node

    def unlink(self, name: str) -> None:
        """Remove an entry."""
        del self.entries[name]

    def move(self, old: str, new: str) -> None:
        """Rename an entry over `new`."""
        self.entries[new] = self.entries.pop(old)


Node = FileNode | DirectoryNode


class MemoryTree:
    """The root of a memory file system and the space its files take. Thread-safe."""

    def __init__(self, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.root: DirectoryNode | None = None
        self._used_bytes = 0
        self._lock = threading.Lock()

    def free_bytes(self) -> int:
        """Space left, in bytes."""
        return self.capacity_bytes - self._used_bytes

    def take(self, size_bytes: int) -> int:
        """Reserve space; returns what was left of it, at most `size_bytes`."""
        with self._lock:
            taken = min(size_bytes, self.capacity_bytes - self._used_bytes)
            self._used_bytes += taken
        return taken

    def give_back(self, size_bytes: int) -> None:
        """Free space."""
        with self._lock:
            self._used_bytes -= size_bytes

    def new_file(self, path: str) -> FileNode:
        """A node for a file about to be linked."""
        return FileNode(path)

    def new_directory(self) -> DirectoryNode:
        """A node for a directory about to be linked."""
        return DirectoryNode()


class MemoryFile:
    """One open file in memory (`storage.files.File`). Any thread may call."""

    __slots__ = ("_closed", "_node", "_tree")

    def __init__(self, tree: MemoryTree, node: FileNode) -> None:
        self._tree = tree
        self._node = node
        self._closed = False

    @property
    def name(self) -> str:
        """Path relative to the root."""
        return self._node.path

    def pread(self, size_bytes: int, position: int) -> bytes:
        """See `File.pread`."""
        node = self._live()
        with node.lock, memoryview(node.content) as view:  # a view held elsewhere stops appends
            return bytes(view[position : position + size_bytes])

    def pread_cached(self, size_bytes: int, position: int) -> bytes | None:
        """See `File.pread_cached`; memory never waits."""
        return self.pread(size_bytes, position)

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        """See `File.pwrite`. Writes what fits before it raises DiskFull, as a disk does."""
        node = self._live()
        with node.lock:
            size_bytes = sum(map(len, buffers))
            if not size_bytes:
                return
            growth = max(0, position + size_bytes - len(node.content))
            taken = self._tree.take(growth)
            if taken == growth:
                write_into(node.content, buffers, position)
                return
            room = len(node.content) + taken - position
            if room > 0:
                write_into(node.content, [b"".join(buffers)[:room]], position)
            else:
                self._tree.give_back(taken)
        raise DiskFull(f"writing {node.path}: no space is left", hint=_FULL_HINT)

    def sync(self) -> None:
        """See `File.sync`; nothing is durable here."""
        self._live()

    def truncate(self, size_bytes: int) -> None:
        """See `File.truncate`."""
        node = self._live()
        with node.lock:
            grown = size_bytes - len(node.content)
            if grown <= 0:
                del node.content[size_bytes:]
                self._tree.give_back(-grown)
            elif (taken := self._tree.take(grown)) == grown:
                node.content.extend(bytes(grown))
            else:
                self._tree.give_back(taken)
                raise LogDirFailed(f"truncating {node.path}: no space is left", hint=_FULL_HINT)

    def size_bytes(self) -> int:
        """See `File.size_bytes`."""
        return len(self._live().content)

    def close(self) -> None:
        """See `File.close`."""
        self._closed = True

    def _live(self) -> FileNode:
        assert not self._closed, f"{self._node.path} is used after close"
        if self._node.gone:
            raise FileMissing(f"{self._node.path} was removed while it was open")
        return self._node


def write_into(content: bytearray, buffers: Sequence[Buffer], position: int) -> None:
    """Write buffers behind one another at `position`; a gap before it becomes zeros."""
    if position > len(content):
        content.extend(bytes(position - len(content)))
    for buffer in buffers:
        if position == len(content):
            content += buffer
        else:
            content[position : position + len(buffer)] = buffer
        position += len(buffer)


class MemoryDirectory:
    """A directory in memory (`storage.files.Directory`).

    As with the real one, name changes and opens of one name are the caller's to order.
    """

    def __init__(self, tree: MemoryTree | None = None, steps: tuple[str, ...] = ()) -> None:
        self._tree = tree or MemoryTree()
        self._steps = steps

    @property
    def path(self) -> str:
        """A made-up path."""
        return "/".join(("/memory", *self._steps))

    def names(self) -> list[str]:
        """See `Directory.names`."""
        return sorted(self._node().entries)

    def exists(self, name: str) -> bool:
        """See `Directory.exists`."""
        node = self._find()
        return node is not None and check_name(name) in node.entries

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        """See `Directory.open`."""
        entries = self._node().entries
        node = entries.get(check_name(name))
        if node is None:
            if not create:
                raise FileMissing(f"{self.path}/{name} does not exist")
            node = self._create_file(name)
        if isinstance(node, DirectoryNode):
            raise AccessRefused(f"{self.path}/{name} is not a regular file")
        return self._opened(node)

    def subdirectory(self, name: str) -> "MemoryDirectory":
        """See `Directory.subdirectory`."""
        return MemoryDirectory(self._tree, self._below(name))

    def make_directory(self, name: str) -> None:
        """See `Directory.make_directory`."""
        node = self._node()
        present = node.entries.get(check_name(name))
        if present is None:
            node.link(name, self._tree.new_directory())
        elif isinstance(present, FileNode):
            raise LogDirFailed(f"{self.path}/{name} is a file, not a directory")

    def create(self) -> None:
        """See `Directory.create`."""
        if self._steps:
            parent = copy.copy(self)
            parent._steps = self._steps[:-1]  # noqa: SLF001 - the same class
            parent.create()
            if self._find() is None:
                parent.make_directory(self._steps[-1])
                parent.sync()
        elif self._find() is None:
            self._tree.root = self._tree.new_directory()

    def rename(self, old: str, new: str) -> None:
        """See `Directory.rename`."""
        node = self._node()
        moved = node.entries.get(check_name(old))
        replaced = node.entries.get(check_name(new))
        if moved is None:
            raise FileMissing(f"{self.path}/{old} does not exist")
        if moved is replaced:
            return
        if isinstance(replaced, DirectoryNode):
            raise LogDirFailed(f"renaming {self.path}/{old}: {new} is a directory")
        if isinstance(moved, DirectoryNode) and replaced is not None:
            raise LogDirFailed(f"renaming {self.path}/{old}: {new} is a file")
        node.move(old, new)
        if replaced is not None:
            self._drop(replaced)
        _set_paths(moved, "/".join((*self._steps, new)))

    def unlink(self, name: str) -> None:
        """See `Directory.unlink`."""
        node = self._node()
        removed = node.entries.get(check_name(name))
        if isinstance(removed, DirectoryNode):
            raise LogDirFailed(f"removing {self.path}/{name}: it is a directory")
        if removed is not None:
            node.unlink(name)
            self._drop(removed)

    def remove_tree(self, name: str) -> None:
        """See `Directory.remove_tree`."""
        node = self._node()
        removed = node.entries.get(check_name(name))
        if removed is None:
            return
        if isinstance(removed, FileNode):
            raise LogDirFailed(f"removing {self.path}/{name}: it is not a directory")
        below = self.subdirectory(name)
        for entry in below.names():
            if isinstance(removed.entries[entry], DirectoryNode):
                below.remove_tree(entry)
            else:
                below.unlink(entry)
        self._remove_empty(name)

    def sync(self) -> None:
        """See `Directory.sync`; nothing is durable here."""
        self._node()

    def free_bytes(self) -> int:
        """See `Directory.free_bytes`."""
        return self._tree.free_bytes()

    def lock(self) -> "MemoryLock":
        """See `Directory.lock`."""
        node = self._node()
        if node.locked:
            raise DirectoryInUse(f"{self.path} is in use by this process")
        return MemoryLock(node)

    def _below(self, name: str) -> tuple[str, ...]:
        return (*self._steps, check_name(name))

    def _opened(self, node: FileNode) -> MemoryFile:
        return MemoryFile(self._tree, node)

    def _create_file(self, name: str) -> FileNode:
        node = self._tree.new_file("/".join((*self._steps, name)))
        self._node().link(name, node)
        return node

    def _remove_empty(self, name: str) -> None:
        self._node().unlink(name)

    def _drop(self, node: FileNode) -> None:
        with node.lock:
            node.gone = True
            self._tree.give_back(len(node.content))

    def _find(self) -> DirectoryNode | None:
        node: Node | None = self._tree.root
        for step in self._steps:
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(step)
        return node if isinstance(node, DirectoryNode) else None

    def _node(self) -> DirectoryNode:
        node = self._find()
        if node is None:
            raise FileMissing(f"directory {self.path} does not exist")
        return node


def _set_paths(node: Node, path: str) -> None:
    if isinstance(node, FileNode):
        node.path = path
    else:
        for name, below in node.entries.items():
            _set_paths(below, f"{path}/{name}")


class MemoryLock:
    """The claim on a directory in memory (`storage.files.DirectoryLock`)."""

    def __init__(self, node: DirectoryNode) -> None:
        self._node: DirectoryNode | None = node
        node.locked = True

    def release(self) -> None:
        """See `DirectoryLock.release`."""
        node, self._node = self._node, None
        if node is not None:
            node.locked = False
