"""One partition's log and its replicator, joined: the one place of "durable before sent".

Owns the order of things: entries go into the log, jobs carry them to disk, and only what a
finished job stored moves the commit position, which alone releases answers. The broker and
the simulator drive this same object. Must not know who waits for a commit, nor threads: `Disk`
runs jobs and calls back on the thread that owns the partition.

    append -> log (memory) -> pump -> Disk.store(job) -> job done -> log.on_job_done
           -> replicator.on_stored -> Commit -> own entries applied -> owner.on_committed

Invariants:
    D1  `committed` moves only inside the completion of a job or of a saved state: never in the
        call that appended.
    D2  At most one job is in flight; what is appended meanwhile goes with the next.
    D3  A log start moves only once its own entry is committed, and is told to the owner only
        once the job that stored it is done.
    D4  After a failed job nothing commits any more: what reached the disk is unknown.
    D5  A job that found no space has lost nothing: it is stored again, before any other.

Source: etcd raft's `Ready` contract, the storing side; ringlog's raft-log rules, "Order on disk".
"""

from collections.abc import Callable
from typing import Protocol, assert_never

from ringlog.replication.entries import decode_log_start, encode_log_start
from ringlog.replication.replicator import AppendOwn, Commit, Effect, Replicator, SaveState
from ringlog.storage.errors import DiskFull
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_job import LogJob
from ringlog.storage.raft_log import EntryKind
from ringlog.storage.raft_state import RaftState
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.types import Buffer, LeaderEpoch, Offset, Position


class Disk(Protocol):
    """Runs what waits for a disk, and calls back later on the thread that owns the partition."""

    def store(
        self, job: LogJob, on_done: Callable[[LogJob, Exception | None], None], *, sync: bool
    ) -> None:
        """Write the job, and with `sync` flush and mark it; then call back."""

    def save_state(self, state: RaftState, on_done: Callable[[Exception | None], None]) -> None:
        """Make `raft-state` durable, then call back."""


class Owner(Protocol):
    """Who is told what became of the entries."""

    def on_released(self, size_bytes: int) -> None:
        """Batches of `size_bytes` together are stored, or given up: their memory is free."""

    def on_committed(self, position: Position) -> None:
        """Everything before `position` is committed."""

    def on_log_start(self, log_start: Offset) -> None:
        """A committed move of the log start is applied and durable."""

    def on_disk_full(self, error: Exception) -> None:
        """A job found no space. Call `Driver.retry` when there may be some."""

    def on_storage_failed(self, error: Exception) -> None:
        """A write or flush failed. Nothing will commit any more."""


class Driver:
    """Drives one partition. Owned by the partition; its thread alone may call."""

    __slots__ = (
        "_applied_own", "_disk", "_failed", "_idle", "_in_flight_bytes", "_job", "_log",
        "_move_in_flight", "_move_queued", "_owner", "_queued_bytes", "_replicator",
        "_sync_asked", "_sync_in_flight", "_waits_for_space", "committed", "flushed",
    )  # fmt: skip

    def __init__(
        self, log: PartitionLog, replicator: Replicator, disk: Disk, *, flushed: bool
    ) -> None:
        """Join them; `attach` the owner, then `start`.

        Args:
            log: recovered, with nothing pending.
            replicator: with the commit position that recovery knows.
            disk: where jobs run.
            flushed: True when an entry counts once flushed (`flush.policy=majority`), False
                when in the page cache of the replica is enough.
        """
        self._log = log
        self._replicator = replicator
        self._disk = disk
        self._owner: Owner | None = None
        self.flushed = flushed
        self.committed = log.base
        # Own entries below the base were applied before they were dropped.
        self._applied_own = log.base.own
        self._job: LogJob | None = None
        self._sync_asked = False
        self._sync_in_flight = False
        self._waits_for_space = False
        self._failed = False
        self._move_queued = False
        self._move_in_flight = False
        self._queued_bytes = 0
        self._in_flight_bytes = 0
        self._idle: Callable[[], None] | None = None

    @property
    def leads(self) -> bool:
        """Whether batches may be appended here."""
        return self._replicator.leads

    @property
    def knows_commit(self) -> bool:
        """Whether it leads and `committed` is the high watermark of the group."""
        return self._replicator.knows_commit

    @property
    def term(self) -> LeaderEpoch:
        """Term of this replica; leader epoch of what it appends."""
        return self._replicator.term

    def attach(self, owner: Owner) -> None:
        """Name who is told; once, before `start`."""
        assert self._owner is None, "a driver has one owner"
        self._owner = owner

    def start(self, now_ms: int) -> None:
        """Begin, after recovery. `now_ms` is monotonic."""
        self._perform(self._replicator.start(now_ms))

    def append(self, batch: Buffer, header: BatchHeader, now_ms: int) -> Offset:
        """Append a checked batch and return its base offset; `pump` sends it to the disk.

        `now_ms` is the wall clock, for rolling by age.
        """
        assert self._replicator.leads, "only a leader appends"
        offset = self._log.append(batch, header, leader_epoch=self.term, now_ms=now_ms)
        self._queued_bytes += len(batch)
        return offset

    def propose_log_start(self, offset: Offset) -> Position:
        """Append a move of the log start and return the position where its entry ends."""
        assert self._replicator.leads, "only a leader proposes"
        assert offset <= self.committed.offset, "a log start is never above the high watermark"
        return self._log.append_own(EntryKind.LOG_START, self.term, encode_log_start(offset))

    def pump(self, *, sync: bool = False) -> None:
        """Send what is pending to the disk, unless a job is in flight: then it goes next.

        `sync` flushes it, and what was only written before, whatever the policy.
        """
        self._sync_asked |= sync
        if self._job is not None or self._failed:
            return
        job = self._log.take_job(flush=self._sync_asked)
        if job is None:
            self._sync_asked = False
            self._tell_idle()
            return
        self._job = job
        self._in_flight_bytes, self._queued_bytes = self._queued_bytes, 0
        self._move_in_flight, self._move_queued = self._move_queued, False
        self._sync_in_flight = self.flushed or self._sync_asked
        self._sync_asked = False
        self._disk.store(job, self._on_job_done, sync=self._sync_in_flight)

    def retry(self) -> None:
        """Store the job that found no space once more; D5."""
        if self._job is not None and self._waits_for_space:
            self._waits_for_space = False
            self._disk.store(self._job, self._on_job_done, sync=self._sync_in_flight)

    def abandon(self) -> None:
        """Store nothing more; what waits for space is given up.

        For a partition that goes, and for a stop that must not wait for space.
        """
        self._failed = True
        if self._waits_for_space:
            self._waits_for_space, self._job = False, None
            self._release(self._in_flight_bytes)
        self._release_queued()
        if self._job is None:
            self._tell_idle()

    @property
    def waits_for_space(self) -> bool:
        """Whether a job is kept until there is space."""
        return self._waits_for_space

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once nothing is in flight or pending, perhaps at once. One at a time.

        After a failure pending entries stay where they are and do not count.
        """
        assert self._idle is None, "one waits for idleness at a time"
        self._idle = callback
        self.pump()
        if self._failed and self._job is None:
            self._tell_idle()

    def close_job(self) -> LogJob:
        """Return the job that closes the log with a clean mark. Call when idle; nothing follows."""
        assert self._job is None, "D2"
        self._failed = True
        return self._log.close_job()

    def _on_job_done(self, job: LogJob, error: Exception | None) -> None:
        if isinstance(error, DiskFull) and not self._failed:
            self._waits_for_space = True
            self._told_owner().on_disk_full(error)
            return
        self._job = None
        if error is not None:
            self._fail(error)
            return
        self._log.on_job_done(job)
        moved, self._move_in_flight = self._move_in_flight, False
        self._release(self._in_flight_bytes)
        stored = self._log.durable if self.flushed else self._log.written
        self._perform(self._replicator.on_stored(stored))
        if moved:
            self._told_owner().on_log_start(self._log.log_start)
        self.pump()
        if self._failed and self._job is None:
            self._tell_idle()

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._release(self._in_flight_bytes)
        self._release_queued()
        self._told_owner().on_storage_failed(error)
        self._tell_idle()

    def _release(self, size_bytes: int) -> None:
        self._in_flight_bytes = 0
        self._told_owner().on_released(size_bytes)

    def _release_queued(self) -> None:
        size_bytes, self._queued_bytes = self._queued_bytes, 0
        self._told_owner().on_released(size_bytes)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SaveState():
                    self._save(effect.state)
                case AppendOwn():
                    end = self._log.append_own(effect.kind, effect.term, effect.body)
                    self._perform(self._replicator.on_own_appended(effect.kind, end))
                    # Raft's own facts are flushed under every policy.
                    self.pump(sync=True)
                case Commit():
                    self._commit(effect.position)
                case _:
                    assert_never(effect)

    def _save(self, state: RaftState) -> None:
        def saved(error: Exception | None) -> None:
            if error is not None:
                self._fail(error)
            elif not self._failed:
                self._perform(self._replicator.on_state_saved(state))

        self._disk.save_state(state, saved)

    def _commit(self, position: Position) -> None:
        assert position > self.committed, f"commit {position} is not above {self.committed}"
        self.committed = position
        self._apply_own_entries(position.own)
        self._told_owner().on_committed(position)

    def _apply_own_entries(self, end_own: int) -> None:
        entries = self._log.raft_log.entries
        first = self._log.raft_log.base.own
        for entry in entries[max(self._applied_own - first, 0) : end_own - first]:
            if entry.kind is EntryKind.LOG_START:
                log_start = decode_log_start(entry.body)
                # After a restart the entries kept commit once more; a move is never undone.
                if log_start > self._log.log_start:
                    self._log.move_log_start(log_start)
                    self._move_queued = True
        self._applied_own = end_own

    def _tell_idle(self) -> None:
        callback, self._idle = self._idle, None
        if callback is not None:
            callback()

    def _told_owner(self) -> Owner:
        assert self._owner is not None, "attach comes before start"
        return self._owner
