"""The bounded set of open descriptors of a data directory, and the errors they end in.

Owns which descriptors are open, which files are poisoned, and the map from errno to an error
with a next step. Must not know directories or what the bytes mean.

Invariants (F1 to F5 are those of `storage.files`):
    FD1 At most `limit` descriptors stay open; more only while calls are under way on all of
        them. A descriptor is never closed under a running call (it is pinned).
    FD2 A descriptor with unflushed writes is flushed before it is evicted: the kernel reports
        a failed write-back through descriptors that were open, and forgets it without them.
    FD3 Flushes of one file are serial: of two at once the kernel tells one of the failure and
        the other of success.
    FD4 Lock order: names, then a file's flush lock, then the table. The table lock is never
        held across a call to the kernel.

Source: open(2), fsync(2); "fsyncgate" (Rebello et al., ATC 2020).
"""

import contextlib
import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from ringlog.storage.errors import AccessRefused, DiskFull, FileMissing, LogDirFailed, StorageError

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO}
)
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
OPEN_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC

_HINTS: Final = {
    errno.EIO: "the disk fails: see dmesg, replace it, then start the broker again",
    errno.EROFS: "the file system is read-only: see dmesg, remount it, start the broker again",
    errno.EACCES: "give the data directory to the user that runs the broker",
    errno.EPERM: "give the data directory to the user that runs the broker",
    errno.EMFILE: "raise the limit of open files (ulimit -n) of the broker",
    errno.ENFILE: "raise fs.file-max of this machine",
    errno.EFBIG: "raise the limit of file size (ulimit -f) of the broker",
    errno.EISDIR: "move that directory away, then start the broker again",
    errno.ELOOP: "replace the symbolic link by the file it points to",
}
RESTART_HINT: Final = "remove the cause, then start the broker again"


def errno_text(error: OSError) -> str:
    """The system's words and the code, for an error's text."""
    code = errno.errorcode.get(error.errno or 0, str(error.errno))
    return f"{os.strerror(error.errno or 0)} ({code})"


def failed(doing: str, path: str, error: OSError) -> LogDirFailed:
    """The error that stops the broker. `doing` is a word like `writing`."""
    hint = _HINTS.get(error.errno or 0, RESTART_HINT)
    return LogDirFailed(f"{doing} {path} failed: {errno_text(error)}", hint=hint)


def translated(doing: str, path: str, error: OSError) -> StorageError:
    """DiskFull without space, FileMissing without the file, else LogDirFailed."""
    if error.errno in _NO_SPACE:
        return DiskFull(
            f"{doing} {path} failed: {errno_text(error)}",
            hint="free space on the file system of the data directory, or lower retention.bytes",
        )
    if error.errno == errno.ENOENT:
        return FileMissing(f"{doing} {path} failed: it does not exist")
    return failed(doing, path, error)


@contextlib.contextmanager
def seam_errors(doing: str, path: str) -> Iterator[None]:
    """Raise each OSError of the body as `translated` says."""
    try:
        yield
    except OSError as error:
        raise translated(doing, path, error) from error


@contextlib.contextmanager
def access_errors(doing: str, path: str) -> Iterator[None]:
    """Like `seam_errors`, for calls that only look or open: AccessRefused where they may not."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise translated(doing, path, error) from error
        hint = _HINTS.get(error.errno, RESTART_HINT)
        raise AccessRefused(f"{doing} {path} failed: {errno_text(error)}", hint=hint) from error


class Handle:
    """One file as all its openers share it. `fd` is -1 while no descriptor is open."""

    __slots__ = ("dirty", "failure", "fd", "flush_lock", "gone", "path", "pins", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.pins = 0
        self.users = 0
        self.dirty = False
        self.gone = False
        self.failure = ""
        self.flush_lock = threading.Lock()

    def check_not_failed(self) -> None:
        """Raise LogDirFailed after a failed flush (F2)."""
        if self.failure:
            raise LogDirFailed(
                f"{self.path} is not written any more, because a flush failed: {self.failure}",
                hint=RESTART_HINT,
            )


class Descriptors:
    """The descriptors of one data directory: least recently used ones are closed. Thread-safe."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self.nowait_supported = True
        self.names_lock = threading.RLock()
        self.failed_directories: set[str] = set()
        self._limit = limit
        self._table_lock = threading.Lock()
        self._handles: dict[str, Handle] = {}
        self._open: OrderedDict[Handle, None] = OrderedDict()

    def acquire(self, path: str, *, create: bool) -> Handle:
        """The shared handle of a file, with one user more. Raises as `Directory.open`."""
        with self.names_lock:
            with self._table_lock:
                handle = self._handles.get(path) or Handle(path)
            if self.pin_if_open(handle) < 0:
                self._install(handle, OPEN_FLAGS | (os.O_CREAT if create else 0))
            with self._table_lock:
                handle.users += 1
                self._handles[path] = handle
        self._shrink()
        self.unpin(handle)  # only now, so that the new one is not the first to go
        return handle

    def release(self, handle: Handle) -> None:
        """One user less; the last one closes the descriptor, at once or after running calls."""
        with self._table_lock:
            handle.users -= 1
            if handle.users:
                return
            if not handle.failure and not handle.gone:
                del self._handles[handle.path]  # a poisoned one stays: F2 survives a reopen
            fd = self._detach_if_idle(handle)
        close_fd(fd)

    def pin(self, handle: Handle) -> int:
        """A descriptor that stays open until `unpin`. Raises FileMissing, LogDirFailed."""
        fd = self.pin_if_open(handle)
        if fd >= 0:
            return fd
        with self.names_lock:
            fd = self.pin_if_open(handle)
            if fd < 0:
                fd = self._install(handle, OPEN_FLAGS)
        self._shrink()
        return fd

    def pin_if_open(self, handle: Handle) -> int:
        """Like `pin`, or -1 when no descriptor is open."""
        with self._table_lock:
            if handle.gone:
                raise FileMissing(f"{handle.path} was removed while it was open")
            if handle.fd >= 0:
                handle.pins += 1
                self._open.move_to_end(handle)
            return handle.fd

    def unpin(self, handle: Handle) -> None:
        """End a call."""
        with self._table_lock:
            handle.pins -= 1
            fd = self._detach_if_idle(handle) if handle.gone or not handle.users else -1
        close_fd(fd)

    def sync(self, handle: Handle) -> None:
        """Flush one file. Raises LogDirFailed, now and ever after (F2)."""
        fd = self.pin(handle)
        try:
            with handle.flush_lock:
                handle.check_not_failed()
                handle.dirty = False  # before the call: a write beside it makes it dirty again
                try:
                    os.fdatasync(fd)
                except OSError as error:
                    handle.failure = errno_text(error)
                    raise failed("flushing", handle.path, error) from error
        finally:
            self.unpin(handle)

    def forget(self, path: str, *, tree: bool = False) -> None:
        """Let go of a removed or replaced file, or of all files of a `tree` (F4)."""
        with self.names_lock, self._table_lock:
            closing = []
            for handle in self._known(path, tree=tree):
                handle.gone = True
                del self._handles[handle.path]
                closing.append(self._detach_if_idle(handle))
        for fd in closing:
            close_fd(fd)

    def move(self, old: str, new: str, *, tree: bool) -> None:
        """Let a renamed file, or all files of a `tree`, keep their handle. Needs `names_lock`."""
        with self._table_lock:
            for handle in self._known(old, tree=tree):
                del self._handles[handle.path]
                handle.path = new + handle.path[len(old) :]
                self._handles[handle.path] = handle

    def _known(self, path: str, *, tree: bool) -> list[Handle]:
        """Handles of a file, or (a scan of all) of the files in a tree."""
        if not tree:
            return [self._handles[path]] if path in self._handles else []
        inside = path + os.sep
        return [handle for known, handle in self._handles.items() if known.startswith(inside)]

    def open_raw(self, path: str, flags: int) -> int:
        """`os.open`, closing other descriptors while the process or machine has none left."""
        while True:
            try:
                return os.open(path, flags, 0o600)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self._evict():
                    raise

    def _install(self, handle: Handle, flags: int) -> int:
        """Open a file and pin its descriptor."""
        with access_errors("opening", handle.path):
            fd = self.open_raw(handle.path, flags)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise AccessRefused(
                f"{handle.path} is not a regular file",
                hint="move it away, then start the broker again",
            )
        with self._table_lock:
            handle.fd = fd
            handle.pins += 1
            self._open[handle] = None
        return fd

    def _detach_if_idle(self, handle: Handle) -> int:
        """Take the descriptor out of an unpinned handle for closing, else -1."""
        if handle.pins or handle.fd < 0:
            return -1
        fd, handle.fd = handle.fd, -1
        del self._open[handle]
        return fd

    def _shrink(self) -> None:
        while len(self._open) > self._limit and self._evict():
            pass

    def _evict(self) -> bool:
        """Close the oldest descriptor that no call uses, clean ones first; False if none is."""
        with self._table_lock:
            idle = [handle for handle in self._open if not handle.pins]
            if not idle:
                return False
            victim = next((h for h in idle if not h.dirty or h.failure), idle[0])
            clean = bool(not victim.dirty or victim.failure)
            fd = self._detach_if_idle(victim) if clean else -1
        if not clean:
            # A failure is not lost: it poisons the file, and its next write or flush raises (FD2).
            with contextlib.suppress(LogDirFailed, FileMissing):
                self.sync(victim)
        close_fd(fd)
        return True


def close_fd(fd: int) -> None:
    """Close a descriptor unless it is -1."""
    if fd >= 0:
        os.close(fd)
