"""The file seam: every call to the operating system's files goes through here.

Owns the two protocols `File` and `Directory` and their real implementation. Must not know
what the bytes mean. `storage.simulated_files` implements the same protocols in memory, with
faults on command; one contract suite holds both to the same behaviour.

Invariants:
    F1  A write is whole or raises; a short write is continued, never reported as success.
    F2  After `sync` raises, the file is poisoned: each later write or sync raises too. A
        failed flush is never retried, because the kernel may have dropped the pages.
    F3  Nothing is durable before `File.sync`; no name is durable before `Directory.sync`.
"""

from collections.abc import Sequence
from typing import Protocol

from ringlog.storage.types import Buffer


class File(Protocol):
    """One open regular file. Any thread may call; calls on one file are not ordered here."""

    @property
    def name(self) -> str:
        """Path relative to the data directory, for messages."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes` at `position`; short only at the end of the file."""

    def pread_cached(self, size_bytes: int, position: int) -> bytes | None:
        """Like `pread`, or None when the answer would wait for a disk."""

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one behind the other, at `position`.

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


class Directory(Protocol):
    """One directory. Names are single components, never paths."""

    @property
    def path(self) -> str:
        """Absolute path (real) or a made-up root (simulated), for messages."""

    def names(self) -> list[str]:
        """Names of all entries, sorted."""

    def exists(self, name: str) -> bool:
        """Whether an entry of that name exists."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises FileMissing without `create`."""

    def subdirectory(self, name: str) -> "Directory":
        """The directory of that name below this one; not checked to exist."""

    def make_directory(self, name: str) -> None:
        """Create it, mode 0700; no error when it exists. Durable after `sync`."""

    def rename(self, old: str, new: str) -> None:
        """Rename an entry, replacing `new` if it is a file. Durable after `sync`."""

    def unlink(self, name: str) -> None:
        """Remove a file; no error when it is absent. Durable after `sync`."""

    def remove_tree(self, name: str) -> None:
        """Remove a directory and all in it; no error when it is absent."""

    def sync(self) -> None:
        """Make the names in this directory durable. Raises LogDirFailed."""

    def free_bytes(self) -> int:
        """Space left for this process on the file system, in bytes."""
