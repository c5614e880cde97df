"""Everything a partition does to the disk, as ordered steps that a worker runs.

Owns the order on disk. Must not know the reactor's view of the log: a step uses only what it
captured. The simulator runs the same jobs on the spot.

    write()          all steps in order, with the flushes that the order on disk demands
    sync()           flush what write() left unflushed (or flush `files_to_sync()` elsewhere)
    mark()           put the durable mark; after it the job may be acked

With `flush.policy` `interval` or `os` a job may end after write().

One job per partition is under way at a time. `write()` may be called again after `DiskFull`:
it goes on with the step that failed, and each step can be repeated. Any other error ends the
partition or the broker; the job is then never called again.

Invariants:
    J1  A mark is put only after every file was flushed up to it.
    J2  Truncation: mark down, flushed; segments cut, flushed; `raft-log` cut, flushed; and
        only then something new is written. The mark stays where it is if it is not above.
    J3  Log start: `start-state` flushed; then segments unlinked; then `raft-log` replaced.
    J4  Reset: `start-state` with the flag; mark; segments; `raft-log`; `start-state` without.
    J5  Roll: the old segment is flushed before its seal and the new segment exist.

Source: ringlog's raft-log rules, "Order on disk" 1 to 5.
"""

from typing import Protocol

import msgspec

from ringlog.storage.batch_scan import EpochAt
from ringlog.storage.durable_marks import Mark
from ringlog.storage.files import File
from ringlog.storage.partition_disk import PartitionDisk
from ringlog.storage.producer_replay import (
    ROLL_SNAPSHOT_NAME,
    note_producers,
    producers_at,
    save_producers,
)
from ringlog.storage.producer_state import SNAPSHOT_NAME, ProducerTable, TableSnapshot
from ringlog.storage.raft_log import RaftLog
from ringlog.storage.segment import Segment, save_index, save_seal
from ringlog.storage.start_state import StartState
from ringlog.storage.types import Buffer, Offset, Position


class Step(Protocol):
    """One change on disk. May be repeated after it failed with DiskFull."""

    def run(self, disk: PartitionDisk) -> None:
        """Do it. On a worker."""


class WriteOwn:
    """Own entries are appended to `raft-log`."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Add one more entry."""
        self._chunks.append(data)

    def run(self, disk: PartitionDisk) -> None:
        """Write them; flushed before the next batch, or with the job."""
        disk.append_own(b"".join(self._chunks))


class WriteBatches:
    """Batches, adjacent in one segment, are written by one call."""

    __slots__ = ("_buffers", "_position", "end_position", "segment")

    def __init__(self, segment: Segment, position: int) -> None:
        self.segment = segment
        self.end_position = position
        self._position = position
        self._buffers: list[Buffer] = []

    def add(self, head: bytes, payload: Buffer) -> None:
        """Add one more batch: `head` takes the place of the first bytes of `payload`."""
        self._buffers += (head, memoryview(payload)[len(head) :])
        self.end_position += len(payload)

    def run(self, disk: PartitionDisk) -> None:
        """Write them behind what was written before."""
        disk.write_batches(self.segment, self._position, self._buffers)


class Roll:
    """The active segment is closed and a new one begins (J5)."""

    __slots__ = ("_at", "_new", "_producers", "old")

    def __init__(
        self, old: Segment, new: Segment, at: Position, producers: TableSnapshot | None
    ) -> None:
        self.old = old
        self._new = new
        self._at = at
        self._producers = producers

    def run(self, disk: PartitionDisk) -> None:
        """Flush and seal the old segment, then make the new one."""
        disk.sync_segment(self.old)
        save_seal(disk.place, self.old)
        save_index(disk.place, self.old)
        self._new.create_file(disk.place)
        disk.place.directory.sync()
        if self._producers is not None:
            save_producers(disk.place, ROLL_SNAPSHOT_NAME, self._producers, self._at)


class Truncate:
    """The log is cut back to `position` (J2)."""

    __slots__ = ("_dropped", "_mark", "_own_size", "_replay_with", "_segments", "_shortened",
                 "producers")  # fmt: skip

    def __init__(
        self,
        mark: Mark,
        segments: tuple[Segment, ...],
        dropped: list[Segment],
        own_size: int,
        *,
        shortened: bool,
        replay_with: EpochAt | None,
    ) -> None:
        """Plan the cut.

        Args:
            mark: the new end of the log.
            segments: those that stay, in order.
            dropped: those that go.
            own_size: bytes of `raft-log` that stay.
            shortened: whether the last segment that stays is cut.
            replay_with: epochs of the log, when the producer table has to be read from it.
        """
        self._mark = mark
        self._segments = segments
        self._dropped = dropped
        self._own_size = own_size
        self._shortened = shortened
        self._replay_with = replay_with
        self.producers: TableSnapshot | None = None

    @property
    def offset(self) -> Offset:
        """First offset that is cut."""
        return self._mark.position.offset

    def run(self, disk: PartitionDisk) -> None:
        """Cut, in the order of J2."""
        if self._mark.position < disk.marked:
            disk.set_mark(self._mark)
        disk.forget_dirty()
        # The last segment goes first, so that what a crash leaves is a log without a hole.
        disk.remove_segments([segment.base_offset for segment in self._dropped])
        for segment in self._dropped:
            segment.close()
        active = self._segments[-1]
        file = active.file(disk.place)
        if self._shortened:
            # Afterwards nobody could tell whose bytes they were.
            active.check(disk.place, self._replay_with)
            disk.remove_caches(active.base_offset)
            file.truncate(self._mark.position_bytes)
        file.sync()
        if self._replay_with is not None:
            self.producers = self._replay(disk, self._replay_with)
        # A table of a history that is cut off must not be found again.
        disk.remove_producers()
        disk.place.directory.sync()
        disk.truncate_own(self._own_size)

    def _replay(self, disk: PartitionDisk, epoch_at: EpochAt) -> TableSnapshot:
        assert disk.start is not None
        return producers_at(self.offset, disk.place, disk.start, self._segments, epoch_at)


class MoveLogStart:
    """`start-state` moves up, and what lies whole below it goes (J3)."""

    __slots__ = ("_base", "_configuration", "_dropped", "_epoch_at", "_log_start", "_own_rest",
                 "_term_before", "start")  # fmt: skip

    def __init__(
        self,
        log_start: Offset,
        *,
        base: Position,
        dropped: list[Segment],
        configuration: tuple[str, ...] | None,
        epoch_at: EpochAt,
        raft_log: RaftLog,
    ) -> None:
        """Plan the move.

        Args:
            log_start: first offset that may be read from now on.
            base: at or below it; the begin of the first segment kept.
            dropped: segments below the base.
            configuration: at the base, when one of the entries dropped tells it.
            epoch_at: of the Raft log as it was before it was trimmed.
            raft_log: as it is after it was trimmed to the base.
        """
        self._log_start = log_start
        self._base = base
        self._dropped = dropped
        self._configuration = configuration
        self._epoch_at = epoch_at
        self._term_before = raft_log.term_before(base)
        self._own_rest = raft_log.copy()
        self.start: StartState | None = None

    def run(self, disk: PartitionDisk) -> None:
        """Move, in the order of J3."""
        old = disk.start
        assert old is not None
        if self._dropped and old.base != self._base:
            configuration = self._configuration
            self.start = StartState(
                base_offset=self._base.offset,
                base_own=self._base.own,
                term_before=self._term_before,
                configuration=old.configuration if configuration is None else configuration,
                producers=self._producers_at_base(disk, old),
                log_start=self._log_start,
            )
        else:
            self.start = msgspec.structs.replace(old, log_start=self._log_start)
        disk.save_start(self.start)
        if self._dropped:
            disk.remove_segments([segment.base_offset for segment in self._dropped])
            for segment in self._dropped:
                segment.close()
            disk.replace_own(self._own_rest.encode(seed=disk.place.seed))

    def _producers_at_base(self, disk: PartitionDisk, old: StartState) -> TableSnapshot:
        """Producer table at the new base: that at the old one and every batch between."""
        table = ProducerTable()
        table.restore(old.producers)
        for segment in self._dropped:
            note_producers(table, disk.place, segment, self._epoch_at)
        return table.snapshot()


class Reset:
    """All of the log is dropped for that of a leader, which begins at `start` (J4)."""

    __slots__ = ("_active", "_dropped", "start")

    def __init__(self, start: StartState, active: Segment, dropped: tuple[Segment, ...]) -> None:
        self.start = msgspec.structs.replace(start, reset_under_way=False)
        self._active = active
        self._dropped = dropped

    def run(self, disk: PartitionDisk) -> None:
        """Reset, in the order of J4."""
        disk.save_start(msgspec.structs.replace(self.start, reset_under_way=True))
        finish_reset(disk, self._active)
        for segment in self._dropped:
            segment.close()


class SaveCaches:
    """Indexes and producers are saved, so that a clean start reads no segment."""

    __slots__ = ("_active", "_at", "_producers")

    def __init__(self, active: Segment, at: Position, producers: TableSnapshot | None) -> None:
        self._active = active
        self._at = at
        self._producers = producers

    def run(self, disk: PartitionDisk) -> None:
        """Write them; not flushed, because a CRC tells whether they arrived."""
        save_index(disk.place, self._active)
        if self._producers is not None:
            save_producers(disk.place, SNAPSHOT_NAME, self._producers, self._at)


def finish_reset(disk: PartitionDisk, active: Segment) -> None:
    """Go on with a reset whose flag is set in `start-state`. Also called by recovery."""
    start = disk.start
    assert start is not None
    assert start.reset_under_way
    disk.set_mark(Mark(start.base, start.base_offset, 0, clean=False))
    disk.forget_dirty()
    disk.remove_segments(sorted({*disk.segment_bases(), *disk.cache_bases()}))
    disk.remove_producers()
    disk.replace_own(b"")
    active.create_file(disk.place).sync()
    disk.place.directory.sync()
    disk.save_start(msgspec.structs.replace(start, reset_under_way=False))


class LogJob:
    """What was pending when it was taken. Made by the reactor, run by one worker."""

    __slots__ = ("_closing", "_disk", "_end_mark", "_next", "flushed", "steps", "truncations")

    def __init__(
        self,
        disk: PartitionDisk,
        steps: list[Step],
        end_mark: Mark | None,
        *,
        truncations: int,
        closing: bool = False,
    ) -> None:
        self._disk = disk
        self._end_mark = end_mark
        self._next = 0
        self._closing = closing
        self.steps = steps
        self.truncations = truncations
        """Counter of the log when the job was taken; an older job moves nothing when done."""
        self.flushed = False
        """Whether it was flushed and marked; a job that was only written moves less."""

    @property
    def end_mark(self) -> Mark | None:
        """Log end when the job was taken; None for a blank replica."""
        return self._end_mark

    def write(self) -> None:
        """Run all steps.

        Raises:
            DiskFull: nothing is lost; call again when there is space.
            LogDirFailed: the broker must stop.
            DamagedLog, DamagedState, ReadFailed: this partition must be quarantined.
        """
        while self._next < len(self.steps):
            self.steps[self._next].run(self._disk)
            self._next += 1

    def files_to_sync(self) -> list[File]:
        """Files that `sync` flushes: also what jobs before this one left unflushed."""
        return self._disk.dirty_files()

    def sync(self) -> None:
        """Flush them one by one. Raises LogDirFailed: the broker must stop."""
        for file in self.files_to_sync():
            file.sync()

    def mark(self) -> None:
        """Put the mark, once all of `files_to_sync` are flushed. Raises LogDirFailed, DiskFull."""
        self._disk.note_synced()
        if self._end_mark is not None:
            self._disk.put_mark(self._end_mark)
        self.flushed = True
        if self._closing:
            self._disk.close()
