"""A disk that can be cut, filled and broken on command: the file seam for tests and simulation.

Owns the numbering of calls, the faults that wait for them, and the files and directories that
obey. What a crash leaves is `storage.crash_images`. Must not know a clock, a thread, or any
randomness but the one passed to `crash`.

Invariants (CI1 to CI3 are those of `storage.crash_images`):
    SF1 A failed flush loses its pages for good, while reads still show them (a clean lie). They
        outlive a kill of the process, not a power cut.
    SF2 After `SimulatedCrash` nothing changes any more: each call but `close` raises it again.
    SF3 Equal calls and seeds give equal disks.

Source: "Can applications recover from fsync failures?" (Rebello et al., ATC 2020).
"""

import contextlib
import enum
import errno
import random
from collections.abc import Iterator, Sequence
from typing import NoReturn

from ringlog.storage.crash_images import (
    CrashMode,
    SimulatedDirectoryNode,
    SimulatedFileNode,
    Truncate,
    Write,
    after_kill,
    after_power_cut,
)
from ringlog.storage.errors import DiskFull, LogDirFailed, ReadFailed, StorageError
from ringlog.storage.memory_files import (
    DEFAULT_CAPACITY_BYTES,
    FileNode,
    MemoryDirectory,
    MemoryFile,
    MemoryLock,
    MemoryTree,
    Node,
)
from ringlog.storage.types import Buffer


class SimulatedCrash(BaseException):
    """The machine stopped at a chosen call. No handler of errors may catch it."""


class Call(enum.Enum):
    """The calls of the seam that can fail. All but READ are counted and can crash."""

    CREATE = "creating"
    WRITE = "writing"
    TRUNCATE = "truncating"
    SYNC = "flushing"
    RENAME = "renaming"
    UNLINK = "removing"
    MAKE_DIRECTORY = "creating directory"
    REMOVE_DIRECTORY = "removing directory"
    SYNC_DIRECTORY = "flushing names of"
    READ = "reading"


class _Fault:
    """A failure that waits for its call."""

    __slots__ = ("amount", "call", "code", "name", "skip")

    def __init__(self, call: Call, name: str, skip: int, code: int, amount: int) -> None:
        self.call = call
        self.name = name
        self.skip = skip
        self.code = code
        self.amount = amount
        """Bytes a failing write still writes; the bit that a damaged read turns over."""

    def error(self, path: str) -> StorageError:
        """What the seam raises for it."""
        text = f"{self.call.value} {path} failed: simulated {errno.errorcode[self.code]}"
        if self.call is Call.READ:
            return ReadFailed(text)
        syncs = self.call in {Call.SYNC, Call.SYNC_DIRECTORY, Call.TRUNCATE}
        if self.code in {errno.ENOSPC, errno.EDQUOT} and not syncs:
            return DiskFull(text)
        return LogDirFailed(text)


class SimulatedDisk(MemoryTree):
    """One machine's disk. `directory()` is the data directory, absent until its `create`.

    Attributes:
        call_count: mutating calls so far; the first one has number 1.
        cold: while true, `pread_cached` answers None.
    """

    def __init__(self, *, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        super().__init__(capacity_bytes)
        self.call_count = 0
        self.cold = False
        self._faults: list[_Fault] = []
        self._crash_number = 0
        self._crash_after = False
        self._dead = ""

    def directory(self) -> "SimulatedDirectory":
        """The root directory."""
        return SimulatedDirectory(self)

    def crash_at(self, call_number: int, *, after: bool) -> None:
        """Raise SimulatedCrash at the mutating call of that number, before or after its effect."""
        self._crash_number = call_number
        self._crash_after = after

    def fail(
        self, call: Call, *, name: str = "", skip: int = 0, code: int = errno.EIO, short: int = 0
    ) -> None:
        """Let one later call fail.

        Args:
            call: kind of call.
            name: only calls on paths that contain this count.
            skip: how many such calls still succeed.
            code: errno; ENOSPC makes DiskFull where the seam says so.
            short: how many bytes a failing write writes all the same.
        """
        self._faults.append(_Fault(call, name, skip, code, short))

    def flip_read(self, bit: int, *, name: str = "", skip: int = 0) -> None:
        """Let one later read return its data with one bit turned over (counted modulo)."""
        self._faults.append(_Fault(Call.READ, name, skip, 0, bit))

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Put bytes into a file behind everybody's back: flips, stale or misdirected blocks."""
        node = self._file(path)
        for image in (node.content, node.durable):
            kept = data[: max(0, len(image) - position)]
            image[position : position + len(kept)] = kept

    def durable_bytes(self, path: str) -> bytes | None:
        """What LOSE_ALL would leave of a file; None if not even its name."""
        node: Node | None = self.root
        for step in path.split("/"):
            if not isinstance(node, SimulatedDirectoryNode):
                return None
            node = node.durable.get(step)
        return bytes(node.durable) if isinstance(node, SimulatedFileNode) else None

    def crash(self, rng: random.Random, mode: CrashMode) -> "SimulatedDisk":
        """End this life; return the disk the next one finds.

        May be called again on the same disk for another outcome of the same crash.
        """
        self._dead = self._dead or f"crash ({mode.value})"
        return self.image(rng, mode)

    def image(self, rng: random.Random, mode: CrashMode) -> "SimulatedDisk":
        """The disk that a crash at this moment would leave. This life goes on."""
        survivor = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        if self.root is not None:
            kill = mode is CrashMode.KILL
            root = after_kill(self.root, {}) if kill else after_power_cut(self.root, "", rng, mode)
            assert isinstance(root, SimulatedDirectoryNode)
            survivor.root = root
            survivor.take(_content_bytes(root))
        return survivor

    def new_file(self, path: str) -> SimulatedFileNode:
        """A node for a file about to be linked."""
        return SimulatedFileNode(path)

    def new_directory(self) -> SimulatedDirectoryNode:
        """A node for a directory about to be linked."""
        return SimulatedDirectoryNode()

    def check_alive(self) -> None:
        """Raise SimulatedCrash after a crash (SF2)."""
        if self._dead:
            raise SimulatedCrash(self._dead)

    @contextlib.contextmanager
    def counted(self, call: Call, path: str) -> Iterator[_Fault | None]:
        """Number one mutating call and crash at its number. Gives the fault that is due."""
        self.check_alive()
        self.call_count += 1
        crash = self.call_count == self._crash_number
        if crash and not self._crash_after:
            self._stop("before", call, path)
        try:
            yield self.due(call, path)
        finally:
            if crash and self._crash_after:
                self._stop("after", call, path)

    @contextlib.contextmanager
    def all_or_nothing(self, call: Call, path: str) -> Iterator[None]:
        """Like `counted`, for a call that has no effect when it fails."""
        with self.counted(call, path) as fault:
            if fault is not None:
                raise fault.error(path)
            yield

    def due(self, call: Call, path: str) -> _Fault | None:
        """Take the fault whose turn is this call."""
        due = None
        for fault in [f for f in self._faults if f.call is call and f.name in path]:
            if fault.skip:
                fault.skip -= 1
            elif due is None:
                due = fault
        if due is not None:
            self._faults.remove(due)
        return due

    def _stop(self, when: str, call: Call, path: str) -> NoReturn:
        self._dead = f"crash {when} call {self.call_count}: {call.value} {path}"
        raise SimulatedCrash(self._dead)

    def _file(self, path: str) -> SimulatedFileNode:
        node: Node | None = self.root
        for step in path.split("/"):
            assert isinstance(node, SimulatedDirectoryNode), path
            node = node.entries.get(step)
        assert isinstance(node, SimulatedFileNode), path
        return node


def _content_bytes(node: Node) -> int:
    if isinstance(node, FileNode):
        return len(node.content)
    return sum(map(_content_bytes, node.entries.values()))


class SimulatedFile(MemoryFile):
    """One open file of a simulated disk (`storage.files.File`)."""

    __slots__ = ("_disk", "_file")

    def __init__(self, disk: SimulatedDisk, node: SimulatedFileNode) -> None:
        super().__init__(disk, node)
        self._disk = disk
        self._file = node

    def pread(self, size_bytes: int, position: int) -> bytes:
        """See `File.pread`."""
        self._disk.check_alive()
        data = super().pread(size_bytes, position)
        fault = self._disk.due(Call.READ, self.name)
        if fault is None:
            return data
        if fault.code:
            raise fault.error(self.name)
        flipped = bytearray(data)
        if flipped:
            flipped[fault.amount // 8 % len(flipped)] ^= 1 << fault.amount % 8
        return bytes(flipped)

    def pread_cached(self, size_bytes: int, position: int) -> bytes | None:
        """See `File.pread_cached`."""
        self._disk.check_alive()
        return None if self._disk.cold else self.pread(size_bytes, position)

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        """See `File.pwrite`."""
        data = b"".join(buffers)
        with self._disk.counted(Call.WRITE, self.name) as fault:
            self._check_not_failed()
            if fault is None:
                self._write(data, position)
                return
            self._write(data[: fault.amount], position)
            raise fault.error(self.name)

    def sync(self) -> None:
        """See `File.sync`."""
        with self._disk.counted(Call.SYNC, self.name) as fault:
            self._live()
            self._check_not_failed()
            if fault is not None:
                self._file.lose_pages()
                raise fault.error(self.name)
            self._file.flush()

    def truncate(self, size_bytes: int) -> None:
        """See `File.truncate`."""
        with self._disk.all_or_nothing(Call.TRUNCATE, self.name):
            self._check_not_failed()
            super().truncate(size_bytes)
            self._file.pending.append(Truncate(size_bytes))

    def size_bytes(self) -> int:
        """See `File.size_bytes`."""
        self._disk.check_alive()
        return super().size_bytes()

    def _write(self, data: bytes, position: int) -> None:
        try:
            super().pwrite([data], position)
        except DiskFull:
            data = data[: max(0, len(self._file.content) - position)]
            raise
        finally:
            if data and not self._file.gone:
                self._file.pending.append(Write(position, data))

    def _check_not_failed(self) -> None:
        if self._file.failed:
            raise LogDirFailed(f"{self.name} is not written any more, because a flush failed")


class SimulatedDirectory(MemoryDirectory):
    """A directory of a simulated disk (`storage.files.Directory`)."""

    def __init__(self, disk: SimulatedDisk, steps: tuple[str, ...] = ()) -> None:
        super().__init__(disk, steps)
        self._disk = disk

    @property
    def path(self) -> str:
        """A made-up path."""
        return "/".join(("/simulated", *self._steps))

    def subdirectory(self, name: str) -> "SimulatedDirectory":
        """See `Directory.subdirectory`."""
        return SimulatedDirectory(self._disk, self._below(name))

    def make_directory(self, name: str) -> None:
        """See `Directory.make_directory`."""
        with self._disk.all_or_nothing(Call.MAKE_DIRECTORY, f"{self.path}/{name}"):
            super().make_directory(name)

    def rename(self, old: str, new: str) -> None:
        """See `Directory.rename`."""
        with self._disk.all_or_nothing(Call.RENAME, f"{self.path}/{old}"):
            super().rename(old, new)

    def unlink(self, name: str) -> None:
        """See `Directory.unlink`."""
        with self._disk.all_or_nothing(Call.UNLINK, f"{self.path}/{name}"):
            super().unlink(name)

    def sync(self) -> None:
        """See `Directory.sync`."""
        with self._disk.counted(Call.SYNC_DIRECTORY, self.path) as fault:
            node = self._node()
            assert isinstance(node, SimulatedDirectoryNode)
            if node.failed:
                raise LogDirFailed(f"names in {self.path}: an earlier flush failed")
            if fault is not None:
                node.lose_pages()
                raise fault.error(self.path)
            node.flush()

    def lock(self) -> MemoryLock:
        """See `Directory.lock`."""
        self._disk.check_alive()
        return super().lock()

    def _opened(self, node: FileNode) -> SimulatedFile:
        assert isinstance(node, SimulatedFileNode)
        return SimulatedFile(self._disk, node)

    def _create_file(self, name: str) -> FileNode:
        with self._disk.all_or_nothing(Call.CREATE, f"{self.path}/{name}"):
            return super()._create_file(name)

    def _remove_empty(self, name: str) -> None:
        with self._disk.all_or_nothing(Call.REMOVE_DIRECTORY, f"{self.path}/{name}"):
            super()._remove_empty(name)

    def _find(self) -> SimulatedDirectoryNode | None:
        self._disk.check_alive()
        node = super()._find()
        assert node is None or isinstance(node, SimulatedDirectoryNode)
        return node
