"""The log of one partition, as the reactor sees it.

Owns what is in the log: segments, own entries, producers, and how far it is written and
flushed. Must not know Raft, consumers or threads. It makes no call that can wait for a disk:
what has to be done there becomes the steps of a `LogJob`, which a worker runs.

    append / append_own / truncate / move_log_start / reset -> pending steps
    take_job -> LogJob -> (worker) write, sync, mark -> on_job_done -> written, durable

Invariants:
    L1  base <= end, base.offset <= log_start, and durable <= written <= end. Where a move of the
        log start commits before this replica has flushed, durable is below base for one job.
    L2  At most one job is in flight; its steps and the pending ones are all changes since.
    L3  A batch appended at offset o carries the term of the last own entry with offset <= o.
    L4  `written` and `durable` move down only by truncation or reset, and a job taken before
        one moves nothing.
    L5  `changes` grows before anything that a reader on a worker may see goes away.

Source: Raft section 5.3; Kafka's partition log; ringlog's raft-log rules.
"""

from ringlog.storage.errors import OffsetOutOfRange
from ringlog.storage.index import MAX_RELATIVE_OFFSET, SparseIndex
from ringlog.storage.log_config import LogConfig
from ringlog.storage.log_job import (
    LogJob,
    MoveLogStart,
    Reset,
    Roll,
    SaveCaches,
    Step,
    Truncate,
    WriteBatches,
    WriteOwn,
)
from ringlog.storage.log_read import ReadPlan, ReadResult
from ringlog.storage.log_tail import UnwrittenBatches, place_of
from ringlog.storage.partition_disk import PartitionDisk, mark_at
from ringlog.storage.producer_history import ProducerHistory
from ringlog.storage.producer_state import ProducerTable
from ringlog.storage.raft_log import EntryKind, OwnEntry, RaftLog, encode_entry
from ringlog.storage.record_batch import BatchHeader, assign
from ringlog.storage.segment import Segment
from ringlog.storage.segment_list import SegmentList
from ringlog.storage.start_state import StartState
from ringlog.storage.time_lookup import Searched
from ringlog.storage.types import LOG_BEGIN, Buffer, LeaderEpoch, Offset, Position
from ringlog.storage.voters import decode_voters


class PartitionLog:
    """Owned by the partition; the reactor thread alone may call, unless a method says so.

    Attributes:
        config: settings in force; may be replaced at any time.
        raft_log: the own entries kept.
        end: log end position (exclusive).
        written: everything below is in the page cache of this machine.
        durable: everything below is flushed and marked.
        log_start: first offset that may be read.
        truncations: grows with each truncation and reset.
        changes: grows whenever something readable goes away (L5).
    """

    __slots__ = (
        "_disk", "_history", "_in_flight", "_limit_bytes", "_limit_segment", "_pending",
        "_segments", "_start", "_unwritten", "changes", "config", "durable", "end", "log_start",
        "raft_log", "truncations", "written",
    )  # fmt: skip

    def __init__(
        self,
        disk: PartitionDisk,
        config: LogConfig,
        *,
        segments: list[Segment],
        raft_log: RaftLog,
        producers: ProducerTable,
    ) -> None:
        """Take what recovery found, all of it flushed. `segments` is empty for a blank replica."""
        self.config = config
        self.raft_log = raft_log
        self._disk = disk
        self._start = disk.start
        self._segments = SegmentList(segments)
        self.end = Position(
            self._segments.active.next_offset if segments else LOG_BEGIN.offset, raft_log.end_own
        )
        self.written = self.durable = self.end
        self.log_start = disk.start.log_start if disk.start is not None else LOG_BEGIN.offset
        self.truncations = 0
        self.changes = 0
        self._history = ProducerHistory(producers, self.end.offset)
        self._pending: list[Step] = []
        self._in_flight: LogJob | None = None
        self._unwritten = UnwrittenBatches()
        self._limit_segment, self._limit_bytes = Offset(-1), 0
        self._note_written_place()

    # -- what is there

    @property
    def is_blank(self) -> bool:
        """Whether it waits for a reset, which must come before anything else."""
        return not len(self._segments)

    @property
    def base(self) -> Position:
        """First position kept."""
        return self.raft_log.base

    @property
    def start_state(self) -> StartState | None:
        """Snapshot that a reset of another replica carries; it belongs to `base`.

        None for a blank replica, and while a reset or a move of the base is on its way to
        the disk.
        """
        start = self._start
        return start if start is not None and start.base == self.base else None

    @property
    def producers(self) -> ProducerTable:
        """Table at the log end, for `check`.

        After a deep truncation it has to be read from disk, which the job does; a leader, whose
        opening is behind it on disk before it takes batches, does not notice.
        """
        return self._history.table

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches kept."""
        return self._segments.size_bytes

    @property
    def path(self) -> str:
        """Directory of the partition, for messages."""
        return self._disk.place.directory.path

    # -- appending

    def append(
        self, payload: Buffer, header: BatchHeader, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> Offset:
        """Append a checked batch and return its base offset.

        Args:
            payload: the batch; kept until it is written. Its first 16 bytes are not used.
            header: of `payload`; its base offset is not used.
            leader_epoch: term under which it is appended (L3).
            now_ms: wall clock, for rolling by age.
        """
        offset = self.end.offset
        assert leader_epoch == self.raft_log.last_term, f"L3: {leader_epoch} at {self.end}"
        active = self._segments.active
        if active.size_bytes and self._must_roll(active, header, now_ms):
            active = self._roll(now_ms)
        max_before = active.max_timestamp
        position = active.note(header, offset)
        self._unwritten.add(offset, position, max_before)
        self._batches_step(active, position).add(
            assign(offset, leader_epoch, header.size_bytes), payload
        )
        self._history.note(header, offset)
        self.end = Position(active.next_offset, self.end.own)
        return offset

    def append_own(self, kind: EntryKind, term: LeaderEpoch, body: bytes) -> Position:
        """Append an own entry and return the position where it ends."""
        assert not self.is_blank, "a blank replica takes a reset first"
        entry = OwnEntry(self.end.own, self.end.offset, term, kind, body)
        self.raft_log.append(entry)
        last = self._pending[-1] if self._pending else None
        if not isinstance(last, WriteOwn):
            last = WriteOwn()
            self._pending.append(last)
        last.add(encode_entry(entry, seed=self._disk.place.seed))
        self.end = Position(self.end.offset, entry.n + 1)
        return self.end

    def roll_if_old(self, now_ms: int) -> None:
        """Close the active segment if it has records and its age is reached."""
        if not self.is_blank and self._is_old(self._segments.active, now_ms):
            self._roll(now_ms)

    def _must_roll(self, active: Segment, header: BatchHeader, now_ms: int) -> bool:
        return (
            active.size_bytes + header.size_bytes > self.config.segment_size_bytes
            or self.end.offset - active.base_offset > MAX_RELATIVE_OFFSET
            or self._is_old(active, now_ms)
        )

    def _is_old(self, active: Segment, now_ms: int) -> bool:
        return active.size_bytes > 0 and now_ms - active.created_ms >= self.config.roll_age_ms

    def _roll(self, now_ms: int) -> Segment:
        old = self._segments.active
        old.rolled_ms = now_ms
        new = self._new_segment(self.end.offset, now_ms)
        self._segments.append(new)
        self._pending.append(Roll(old, new, self.end, self._history.snapshot()))
        return new

    def _new_segment(self, base_offset: Offset, created_ms: int) -> Segment:
        index = SparseIndex(base_offset, self._disk.place.index_interval_bytes)
        return Segment(base_offset, created_ms=created_ms, index=index)

    def _batches_step(self, segment: Segment, position: int) -> WriteBatches:
        last = self._pending[-1] if self._pending else None
        if (
            isinstance(last, WriteBatches)
            and last.segment is segment
            and last.end_position == position
        ):
            return last
        step = WriteBatches(segment, position)
        self._pending.append(step)
        return step

    # -- jobs

    def take_job(self, *, flush: bool = False) -> LogJob | None:
        """Return all that is pending as one job, or None when one is in flight or nothing is.

        Args:
            flush: take a job, too, when all is written but something is not flushed.
        """
        if self._in_flight is not None:
            return None
        if not self._pending and not (flush and self.durable < self.end):
            return None
        return self._take(closing=False)

    def close_job(self) -> LogJob:
        """Return the last job of this log: what is pending, the caches, and a clean mark.

        No job may be in flight. After it nothing but `close` may be called.
        """
        assert self._in_flight is None, "L2"
        if not self.is_blank:
            self._pending.append(
                SaveCaches(self._segments.active, self.end, self._history.snapshot())
            )
        return self._take(closing=True)

    def _take(self, *, closing: bool) -> LogJob:
        steps, self._pending = self._pending, []
        mark = None
        if not self.is_blank:
            mark = mark_at(self.end, self._segments.active, clean=closing)
        self._in_flight = LogJob(
            self._disk, steps, mark, truncations=self.truncations, closing=closing
        )
        return self._in_flight

    def on_job_done(self, job: LogJob) -> None:
        """Take note that `job`, written and perhaps flushed, is done."""
        assert job is self._in_flight, "L2"
        self._in_flight = None
        for step in job.steps:
            if isinstance(step, MoveLogStart | Reset):
                self._start = step.start
            elif isinstance(step, Roll):
                self._segments.note_used(step.old)
            elif isinstance(step, Truncate) and step.producers is not None:
                self._history.bring_back(step.producers, step.offset)
        mark = job.end_mark
        if mark is None or job.truncations != self.truncations:
            return
        self.written = mark.position
        self._limit_segment, self._limit_bytes = mark.segment_base, mark.position_bytes
        self._unwritten.forget_below(mark.position.offset)
        if job.flushed:
            self.durable = mark.position

    def close(self) -> None:
        """Let go of all files. Without `close_job` before it, the next start is an unclean one."""
        for segment in self._segments:
            segment.close()
        self._disk.close()

    def _note_written_place(self) -> None:
        if not self.is_blank:
            active = self._segments.active
            self._limit_segment, self._limit_bytes = active.base_offset, active.size_bytes

    # -- reading

    def plan_read(
        self, offset: Offset, max_bytes: int, *, end: Offset, from_base: bool = False
    ) -> ReadPlan | None:
        """Plan a read that may run on any thread; None when `offset` is the end.

        Args:
            offset: whole batches are read from the one that contains it.
            max_bytes: bound of the result; one batch is returned even when it is larger.
            end: no batch beyond it is returned (exclusive); what is not written is not either.
            from_base: offsets between base and log start may be read: for replication.

        Raises:
            OffsetOutOfRange: `offset` lies below the log start or above `end` or the log end.
        """
        end = min(end, self.written.offset)
        lowest = self.base.offset if from_base else self.log_start
        if not lowest <= offset <= max(end, lowest):
            raise OffsetOutOfRange(offset, lowest, end)
        if offset >= end:
            return None
        segment = self._segments.containing(offset)
        if segment.is_sealed:
            self._segments.note_used(segment)
        is_last = segment.base_offset == self._limit_segment
        changes = self.changes
        return ReadPlan(
            segment,
            self._disk.place,
            offset=offset,
            end=end,
            max_bytes=max_bytes,
            limit_bytes=self._limit_bytes if is_last else segment.size_bytes,
            epoch_at=self.raft_log.epoch_at,
            is_stale=lambda: self.changes != changes,
        )

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        end: Offset,
        cached_only: bool = False,
        from_base: bool = False,
    ) -> ReadResult | None:
        """Plan and run a read at once: `plan_read`, `ReadPlan.run`."""
        plan = self.plan_read(offset, max_bytes, end=end, from_base=from_base)
        if plan is None:
            return ReadResult(b"", offset)
        return plan.run(cached_only=cached_only)

    def plan_search(self, *, end: Offset) -> Searched:
        """Capture the log for a search by time that may run on any thread.

        `end`: records at or above it are not looked at, nor those that are not written.
        """
        return Searched(
            self._disk.place,
            self._segments.snapshot(),
            begin=self.log_start,
            end=min(end, self.written.offset),
            last_base=self._limit_segment,
            last_limit_bytes=self._limit_bytes,
            epoch_at=self.raft_log.epoch_at,
        )

    def offset_for_timestamp(self, timestamp_ms: int, *, end: Offset) -> tuple[Offset, int] | None:
        """Plan and run a search at once: `plan_search`, `Searched.search`. Waits for the disk."""
        return self.plan_search(end=end).search(timestamp_ms)

    # -- cutting back

    def truncate(self, position: Position) -> None:
        """Cut the log back to `position`, which lies in it and not below the commit position.

        The one thing here that may read a file, for less than an index interval and a batch:
        where the batches end that stay, when they are not the newest.
        """
        assert self.base <= position <= self.end, f"{position} outside {self.base} to {self.end}"
        if position == self.end:
            return
        self.changes += 1
        self.truncations += 1
        offset = position.offset
        dropped = self._segments.cut(offset)
        active, shortened = self._segments.active, False
        if active.is_sealed or active.next_offset != offset:
            active, shortened = self._shorten(active, offset), True
            self._segments.replace_active(active)
        # Not before: the batch behind the cut is read with the epoch that it has.
        self.raft_log.truncate(position.own)
        is_known = self._history.truncate(offset)
        self._unwritten.cut(offset)
        self.end = position
        self.written, self.durable = min(self.written, position), min(self.durable, position)
        if self.written == position:
            self._note_written_place()
        own_size = len(self.raft_log.encode(seed=self._disk.place.seed))
        self._pending.append(
            Truncate(
                mark_at(position, active),
                self._segments.snapshot(),
                dropped,
                own_size,
                shortened=shortened,
                replay_with=None if is_known else self.raft_log.copy().epoch_at,
            )
        )

    def _shorten(self, segment: Segment, offset: Offset) -> Segment:
        place = self._unwritten.find(offset)
        if place is None:
            place = place_of(self._disk.place, segment, offset, self.raft_log.epoch_at)
        index = segment.index(self._disk.place, self.raft_log.epoch_at)
        return segment.shortened(
            place.size_bytes, offset, place.max_before, index.prefix(place.size_bytes)
        )

    # -- the begin of the log

    def proposed_log_start(self, now_ms: int) -> Offset | None:
        """Return where retention wants the log to start, or None when nothing may go.

        Whole closed segments go, oldest first: by time, the later of their newest record and
        their close; by size, while the rest alone has enough. The caller caps it at the high
        watermark.
        """
        keep_ms, keep_bytes = self.config.retention_ms, self.config.retention_size_bytes
        size_bytes, log_start = self.size_bytes, self.log_start
        for segment in self._segments:
            rest_bytes = size_bytes - segment.size_bytes
            is_expired = keep_ms >= 0 and segment.last_time_ms + keep_ms <= now_ms
            is_surplus = 0 <= keep_bytes <= rest_bytes
            if not segment.is_sealed or not (is_expired or is_surplus):
                break
            size_bytes, log_start = rest_bytes, max(log_start, segment.next_offset)
        return log_start if log_start > self.log_start else None

    def move_log_start(self, offset: Offset) -> None:
        """Apply a committed move of the log start; `offset` is not above the log end.

        Segments that lie whole below it go, and the base moves to the first one kept.
        """
        assert offset <= self.end.offset, "a committed log start is held here"
        if offset <= self.log_start:
            return
        self.changes += 1
        self.log_start = offset
        dropped = self._segments.drop_below(offset)
        before = self.raft_log.copy()
        if dropped:
            self.raft_log.trim(self.raft_log.lowest_at(dropped[-1].next_offset))
        told = before.last_of(EntryKind.CONFIGURATION, before_own=self.base.own)
        self._pending.append(
            MoveLogStart(
                offset,
                base=self.base,
                dropped=dropped,
                configuration=None if told is None else decode_voters(told.body),
                epoch_at=before.epoch_at,
                raft_log=self.raft_log,
            )
        )

    def reset(self, start: StartState, *, now_ms: int) -> None:
        """Drop everything and begin at the base of `start`, a leader's start-state.

        The base may be acked once `start_state` is there again, which the job brings.
        """
        self.changes += 1
        self.truncations += 1
        self.raft_log = RaftLog(start.base, start.term_before)
        dropped = self._segments.snapshot()
        active = self._new_segment(start.base_offset, now_ms)
        self._segments = SegmentList([active])
        self._history.restart(start.producers, start.base_offset)
        self._unwritten.cut(Offset(0))
        self.log_start = start.log_start
        self.end = self.written = self.durable = start.base
        self._note_written_place()
        self._start = None
        self._pending.append(Reset(start, active, dropped))
