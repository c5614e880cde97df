"""The files of one partition as its jobs and its recovery change them.

Owns what a worker needs between two jobs: open files, which of them are unflushed, the mark
put last, `start-state` as it is on disk. Must not know the log in memory; the reactor never
touches this object.

Invariants:
    K1  No batch is written while an own entry before it is unflushed (raft-log.md, order 1).
    K2  `marked` is never above what is flushed, and both slots of the mark are at or below it.
    K3  Nothing below `start.base` is needed: its files may or may not be there.

Source: ringlog's raft-log rules, "Order on disk".
"""

from typing import Final

from ringlog.storage.durable_marks import DurableMarks, Mark, MarkKey
from ringlog.storage.files import File
from ringlog.storage.producer_replay import PRODUCER_CACHES
from ringlog.storage.raft_log import RAFT_LOG_NAME
from ringlog.storage.segment import (
    CACHE_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    Place,
    Segment,
    segment_base,
    segment_name,
)
from ringlog.storage.start_state import StartState, save_start_state
from ringlog.storage.types import LOG_BEGIN, Buffer, Offset, Position

RAFT_LOG_NEW_NAME: Final = f"{RAFT_LOG_NAME}.new"


class PartitionDisk:
    """Used by one job at a time, in order."""

    __slots__ = ("_dirty", "_raft_dirty", "_raft_file", "_raft_size", "key", "marked", "marks",
                 "place", "start")  # fmt: skip

    def __init__(self, place: Place, marks: DurableMarks, key: MarkKey) -> None:
        self.place = place
        self.marks = marks
        self.key = key
        self.start: StartState | None = None
        self.marked = LOG_BEGIN
        self._raft_file: File | None = None
        self._raft_size = 0
        self._raft_dirty = False
        self._dirty: dict[int, Segment] = {}

    # -- own entries

    def open_raft_log(self, size_bytes: int) -> File:
        """Take `raft-log` with that many good bytes as the file to append to."""
        self._raft_file = self.place.directory.open(RAFT_LOG_NAME)
        self._raft_size = size_bytes
        return self._raft_file

    def append_own(self, data: bytes) -> None:
        """Write own entries behind the last one."""
        assert self._raft_file is not None
        self._raft_file.pwrite([data], self._raft_size)
        self._raft_size += len(data)
        self._raft_dirty = True

    def sync_own(self) -> None:
        """Flush own entries, if any are not. Raises LogDirFailed."""
        if self._raft_dirty:
            assert self._raft_file is not None
            self._raft_file.sync()
            self._raft_dirty = False

    def truncate_own(self, size_bytes: int) -> None:
        """Cut `raft-log`, durably."""
        assert self._raft_file is not None
        assert size_bytes <= self._raft_size, f"{size_bytes} > {self._raft_size}"
        self._raft_file.truncate(size_bytes)
        self._raft_file.sync()
        self._raft_size, self._raft_dirty = size_bytes, False

    def replace_own(self, data: bytes) -> None:
        """Put a new `raft-log` in the place of the old one, durably."""
        directory = self.place.directory
        new = directory.open(RAFT_LOG_NEW_NAME, create=True)
        new.truncate(0)
        new.pwrite([data], 0)
        new.sync()
        if self._raft_file is not None:
            self._raft_file.close()
        directory.rename(RAFT_LOG_NEW_NAME, RAFT_LOG_NAME)
        directory.sync()
        # The open file follows its rename (F4 of storage.files).
        self._raft_file, self._raft_size, self._raft_dirty = new, len(data), False

    # -- batches

    def write_batches(self, segment: Segment, position: int, buffers: list[Buffer]) -> None:
        """Write batches at byte `position` of `segment`, own entries before them flushed (K1)."""
        self.sync_own()
        segment.file(self.place).pwrite(buffers, position)
        segment.note_written(buffers, position)
        self._dirty[id(segment)] = segment

    def sync_segment(self, segment: Segment) -> None:
        """Flush one segment, if it is not. Raises LogDirFailed."""
        if id(segment) in self._dirty:
            segment.file(self.place).sync()
            del self._dirty[id(segment)]

    def forget_dirty(self) -> None:
        """All segments are flushed or dropped."""
        self._dirty.clear()

    def dirty_files(self) -> list[File]:
        """Files with unflushed writes, `raft-log` first."""
        files = [segment.file(self.place) for segment in self._dirty.values()]
        if self._raft_dirty:
            assert self._raft_file is not None
            files.insert(0, self._raft_file)
        return files

    def note_synced(self) -> None:
        """All of `dirty_files` have been flushed."""
        self._dirty.clear()
        self._raft_dirty = False

    # -- marks and names

    def put_mark(self, mark: Mark) -> None:
        """Move the mark up to what is flushed."""
        assert mark.position >= self.marked, "K2: a mark is lowered by lower_mark"
        self.marks.put(self.key, mark)
        self.marked = mark.position

    def set_mark(self, mark: Mark) -> None:
        """Set the mark in both slots, durably."""
        self.marks.lower(self.key, mark)
        self.marked = mark.position

    def save_start(self, start: StartState) -> None:
        """Replace `start-state`, durably."""
        save_start_state(self.place.directory, start, seed=self.place.seed)
        self.start = start

    def remove_segments(self, bases: list[Offset]) -> None:
        """Remove all files of the segments with these bases, the last segment first, durably."""
        directory = self.place.directory
        for base in sorted(bases, reverse=True):
            for suffix in reversed(SEGMENT_SUFFIXES):
                directory.unlink(segment_name(base, suffix))
        directory.sync()

    def remove_caches(self, base: Offset) -> None:
        """Remove seal and indexes of a segment that is about to change. Durable after a sync."""
        for suffix in CACHE_SUFFIXES:
            self.place.directory.unlink(segment_name(base, suffix))

    def remove_producers(self) -> None:
        """Remove the caches of the producer table. Durable after a sync of the directory."""
        for name in PRODUCER_CACHES:
            self.place.directory.unlink(name)

    def segment_bases(self) -> list[Offset]:
        """Base offsets of all `.log` files, ascending."""
        bases = (segment_base(name, LOG_SUFFIX) for name in self.place.directory.names())
        return sorted(base for base in bases if base is not None)

    def cache_bases(self) -> list[Offset]:
        """Base offsets of all caches, ascending."""
        names = self.place.directory.names()
        found = {segment_base(name, suffix) for suffix in CACHE_SUFFIXES for name in names}
        return sorted(base for base in found if base is not None)

    def close(self) -> None:
        """Let go of `raft-log`."""
        if self._raft_file is not None:
            self._raft_file.close()


def mark_at(position: Position, segment: Segment, *, clean: bool = False) -> Mark:
    """Return the mark of a log that ends at `position` in `segment`, as it is now."""
    return Mark(position, segment.base_offset, segment.size_bytes, clean)
