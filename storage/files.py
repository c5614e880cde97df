"""The file seam: every use of files goes through these protocols.

Owns `File`, `Directory`, `DirectoryLock` and the rule for names. Must not know what the bytes
mean. Three implementations, held to one behaviour by one contract suite:
`storage.real_files` (with `storage.descriptors` the only one to call the operating system's
files), `storage.memory_files` (nothing survives the process), and `storage.simulated_files`
(in memory, with power cuts and faults on command).

Invariants:
    F1  A write is whole or raises; a short write is continued, never reported as success.
    F2  After `sync` raises, the file is poisoned, also when it is opened again: each later
        write or sync raises too until the process ends. A failed flush is never retried,
        because the kernel may have dropped the pages and would report success.
    F3  Nothing is durable before `File.sync`; no name is durable before `Directory.sync`.
    F4  An open file follows a rename of itself or of a directory above it. Once its name is
        removed or replaced, each call but `close` raises FileMissing; a call already under way
        ends normally. No call ever reaches another file that took the name.
    F5  Names are single components; none can lead out of its directory.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from ringlog.storage.types import Buffer

MAX_NAME_BYTES: Final = 255
"""Longest name of one directory entry, in bytes of UTF-8 (Linux NAME_MAX)."""


def check_name(name: str) -> str:
    """Return `name` if it is one path component.

    Raises:
        ValueError: empty, too long, `.`, `..`, or holds a slash or a NUL. Such a name never
            comes from a correct caller; refusing it here keeps a wrong one inside the data
            directory.
    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a directory entry")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"name of {len(name.encode())} bytes is over {MAX_NAME_BYTES}: {name!r}")
    return name


class File(Protocol):
    """One open regular file. Any thread may call; calls on one file are not ordered here."""

    @property
    def name(self) -> str:
        """Path relative to the data directory, for messages."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes` at `position`; short only at the end of the file.

        Raises:
            ReadFailed: the disk cannot give the bytes back.
            FileMissing: the name was removed (F4).
        """

    def pread_cached(self, size_bytes: int, position: int) -> bytes | None:
        """Like `pread`, or None when the answer would wait for a disk."""

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one behind the other, at `position`; a gap reads as zeros.

        Raises:
            DiskFull: no space (ENOSPC, EDQUOT). Bytes behind the old end may be garbage.
            LogDirFailed: any other failure.
        """

    def sync(self) -> None:
        """Make data and size durable (fdatasync). Raises LogDirFailed."""

    def truncate(self, size_bytes: int) -> None:
        """Set the size. Not durable before `sync`. Raises LogDirFailed."""

    def size_bytes(self) -> int:
        """Present size in bytes."""

    def close(self) -> None:
        """Release the descriptor. Idempotent."""


class DirectoryLock(Protocol):
    """A claim on a directory, held by one process at a time."""

    def release(self) -> None:
        """Give it up. Idempotent."""


class Directory(Protocol):
    """One directory. Names are single components, never paths."""

    @property
    def path(self) -> str:
        """Absolute path (real) or a made-up root (memory, simulated), for messages."""

    def names(self) -> list[str]:
        """Names of all entries, sorted. Raises FileMissing when the directory is absent."""

    def exists(self, name: str) -> bool:
        """Whether an entry of that name exists. Raises AccessRefused when it cannot be told."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing, creating it (mode 0600) if asked to.

        Raises:
            FileMissing: it does not exist and `create` is false, or the directory is absent.
            DiskFull: no space to create it.
            AccessRefused: it is not a regular file, or may not be opened.
            LogDirFailed: it cannot be opened.
        """

    def subdirectory(self, name: str) -> "Directory":
        """The directory of that name below this one; not checked to exist."""

    def make_directory(self, name: str) -> None:
        """Create it, mode 0700; no error when it exists. Durable after `sync`.

        Raises:
            FileMissing: this directory is absent.
            DiskFull: no space.
            LogDirFailed: any other failure, also when a file has that name.
        """

    def create(self) -> None:
        """Create this directory with its parents, durably; an existing one becomes mode 0700."""

    def rename(self, old: str, new: str) -> None:
        """Rename an entry, replacing `new` if it is a file. Durable after `sync`.

        Raises:
            FileMissing: `old` is absent.
            DiskFull: no space for the new entry.
            LogDirFailed: any other failure, also when `new` is a directory.
        """

    def unlink(self, name: str) -> None:
        """Remove a file; no error when it is absent. Durable after `sync`. Raises LogDirFailed."""

    def remove_tree(self, name: str) -> None:
        """Remove a directory and all in it; no error when it is absent. Raises LogDirFailed."""

    def sync(self) -> None:
        """Make the names in this directory durable. Raises LogDirFailed."""

    def free_bytes(self) -> int:
        """Space left for this process on the file system, in bytes."""

    def lock(self) -> DirectoryLock:
        """Claim this directory for this process until `release` or the end of the process.

        Raises:
            DirectoryInUse: somebody holds it; the text names the process.
        """
