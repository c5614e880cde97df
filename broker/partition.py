"""One open partition as the handlers see it: produce, fetch readiness, log start, waiters.

Owns the rules between a request and the log: what is appended, when an answer may go out, what
may be read. Must not know sockets, requests or disks: `replication.driver` stores and commits,
and a wait is any object with `ended`.

Invariants:
    P1  A produce wait ends well only when the commit position has reached the end of its batch;
        a duplicate waits for its original just the same.
    P2  Nothing at or above the high watermark is readable.
    P3  Once `closed_by` is set no request gets in, and every wait has ended.
    P4  A delete of records ends well only when its move of the log start is committed, applied
        and durable.

Source: Kafka's `Partition` and `DelayedProduce`; KIP-107 (delete records); KIP-207 (a leader
that does not know its high watermark).
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ringlog.broker.error_codes import broker_error
from ringlog.broker.purgatory import CommitWaits
from ringlog.broker.topic_settings import TopicSettings
from ringlog.client.errors import BrokerError, NotLeader, OffsetNotAvailable
from ringlog.replication.driver import Driver
from ringlog.storage.errors import OffsetOutOfRange
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_job import LogJob
from ringlog.storage.record_batch import check_for_append
from ringlog.storage.types import Buffer, Offset, Position, TopicPartition


class Wait(Protocol):
    """Somebody waits for a commit or a log start."""

    def ended(self, error: BrokerError | None) -> None:
        """What was waited for has come, or with `error` never will. Called once."""


class Listener(Protocol):
    """Who is told about every partition: the host."""

    def on_released(self, size_bytes: int) -> None:
        """Batches of `size_bytes` together are stored, or given up."""

    def on_readable(self, partition: "Partition", size_bytes: int) -> None:
        """The high watermark moved over batches of `size_bytes` together."""

    def on_log_start(self, partition: "Partition", log_start: Offset, *, was_asked: bool) -> None:
        """The log start moved, by a request (`was_asked`) or by retention."""

    def on_disk_full(self, partition: "Partition", error: Exception) -> None:
        """A job found no space: call `Partition.retry` when there may be some."""

    def on_storage_failed(self, partition: "Partition", error: Exception) -> None:
        """A write or flush failed."""


class Produced(NamedTuple):
    """A batch that is in the log, or was already. It is not committed yet."""

    base_offset: Offset
    end: Position
    """Commit position from which on it may be answered."""
    is_duplicate: bool


class Partition:
    """Owned by `broker.partitions`, on the reactor thread. It is the `Owner` of its driver.

    Attributes:
        closed_by: why no request gets in any more, or None.
        is_abandoned: whether it stores nothing more; such a log gets no clean mark.
    """

    __slots__ = (
        "_commit_waits", "_driver", "_listener", "_log_start_waits", "_proposed_log_start",
        "_uncommitted", "closed_by", "is_abandoned", "key", "log", "settings", "topic_uuid",
    )  # fmt: skip

    def __init__(
        self,
        key: TopicPartition,
        topic_uuid: bytes,
        *,
        log: PartitionLog,
        driver: Driver,
        settings: TopicSettings,
        listener: Listener,
    ) -> None:
        self.key = key
        self.topic_uuid = topic_uuid
        self.log = log
        self.settings = settings
        self.closed_by: BrokerError | None = None
        self.is_abandoned = False
        self._driver = driver
        self._listener = listener
        self._commit_waits: CommitWaits[Wait] = CommitWaits()
        self._log_start_waits: CommitWaits[Wait] = CommitWaits()
        self._proposed_log_start = log.log_start
        # (end offset, bytes) of batches above the high watermark, to tell waiting fetches.
        self._uncommitted: deque[tuple[Offset, int]] = deque()
        driver.attach(self)

    @property
    def high_watermark(self) -> Offset:
        """First offset not committed (exclusive end of what may be read)."""
        return self._driver.committed.offset

    @property
    def commit_waits(self) -> int:
        """Number of waits for a commit."""
        return len(self._commit_waits)

    @property
    def leader_epoch(self) -> int:
        """Term this replica is in."""
        return self._driver.term

    @property
    def is_ready(self) -> bool:
        """Whether it leads and knows its high watermark."""
        return self._driver.knows_commit

    def start(self, now_ms: int) -> None:
        """Begin to replicate. `now_ms` is monotonic."""
        self._driver.start(now_ms)

    def check_open(self) -> None:
        """Raise what closed it, if something did."""
        if self.closed_by is not None:
            raise self.closed_by

    # -- produce ---------------------------------------------------------------------------

    def produce(self, batch: Buffer, now_ms: int) -> Produced:
        """Check one batch and append it; nothing is stored before `pump`.

        Args:
            batch: exactly one record batch.
            now_ms: wall clock, milliseconds since 1970.

        Raises:
            CorruptBatch, TooLarge, BadTimestamp: it fails a check.
            SequenceError, ProducerFenced: it is out of its producer's sequence.
            NotLeader: no leader yet, or another one.
            BrokerError: the partition is closed.
        """
        self.check_open()
        if not self._driver.leads:
            raise NotLeader(f"partition {self.key} has no leader yet", hint="try again")
        log = self.log
        header = check_for_append(batch, max_bytes=self.settings.log.max_batch_bytes, now_ms=now_ms)
        original = log.producers.check(header)
        if original is not None:
            end = Offset(original + header.last_offset_delta + 1)
            return Produced(original, Position(end, 0), is_duplicate=True)
        base_offset = self._driver.append(batch, header, now_ms)
        end = Offset(base_offset + header.last_offset_delta + 1)
        self._uncommitted.append((end, header.size_bytes))
        return Produced(base_offset, Position(end, 0), is_duplicate=False)

    def pump(self, *, sync: bool = False) -> None:
        """Send what was appended to the disk. `sync`: flush it whatever the policy."""
        self._driver.pump(sync=sync)

    def await_commit(self, end: Position, wait: Wait) -> None:
        """End `wait` once `end` is committed, never inside this call."""
        self._commit_waits.add(end, wait)
        if end <= self._driver.committed:
            # A duplicate of a batch that is committed already.
            for released in self._commit_waits.release(self._driver.committed):
                released.ended(None)

    # -- read ------------------------------------------------------------------------------

    def readable_from(self, offset: Offset) -> bool:
        """Whether something at `offset` may be read now; False: it may come.

        Raises:
            OffsetOutOfRange: below the log start, or above the log end.
            OffsetNotAvailable: the high watermark is not known yet.
            BrokerError: the partition is closed.
        """
        self.check_open()
        high_watermark = self.high_watermark
        log_start = self.log.log_start
        if not self._driver.knows_commit or high_watermark < log_start:
            # After a restart committed offsets exist, but this replica does not know which.
            raise OffsetNotAvailable(f"partition {self.key} is being taken over", hint="try again")
        if log_start <= offset < high_watermark:
            return True
        if offset < log_start or offset > self.log.end.offset:
            raise OffsetOutOfRange(offset, log_start, high_watermark)
        return False

    # -- log start -------------------------------------------------------------------------

    def delete_records(self, before_offset: Offset, wait: Wait) -> None:
        """Move the log start up to `before_offset`, then end `wait`; perhaps at once.

        Raises:
            OffsetOutOfRange: above the high watermark.
            NotLeader: no leader yet, or another one.
            BrokerError: the partition is closed.
        """
        self.check_open()
        if not self._driver.leads:
            raise NotLeader(f"partition {self.key} has no leader yet", hint="try again")
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetOutOfRange(before_offset, self.log.log_start, self.high_watermark)
        if before_offset <= self.log.log_start and len(self._log_start_waits) == 0:
            wait.ended(None)
            return
        self._log_start_waits.add(Position(before_offset, 0), wait)
        self._propose_log_start(before_offset)
        self.pump()

    def retain(self, now_ms: int) -> None:
        """Close a segment that is old, and propose to drop those that retention lets go.

        `now_ms` is the wall clock.
        """
        if self.closed_by is not None or not self.is_ready:
            return
        self.log.roll_if_old(now_ms)
        log_start = self.log.proposed_log_start(now_ms)
        if log_start is not None:
            self._propose_log_start(min(log_start, self.high_watermark))
        self.pump()

    def _propose_log_start(self, offset: Offset) -> None:
        if offset > self._proposed_log_start:
            self._proposed_log_start = offset
            self._driver.propose_log_start(offset)

    # -- settings and end ------------------------------------------------------------------

    def alter(self, settings: TopicSettings) -> None:
        """Put changed settings in force."""
        self.settings = settings
        self.log.config = settings.log
        self._driver.flushed = settings.log.flush_policy == "majority"

    def retry(self) -> None:
        """Store once more what found no space."""
        self._driver.retry()

    def close(self, error: BrokerError) -> None:
        """Let nobody in any more, and end every wait with `error`."""
        self.closed_by = error
        for wait in self._commit_waits.drain() + self._log_start_waits.drain():
            wait.ended(error)

    def abandon(self) -> None:
        """Store nothing more, not even what was appended."""
        self.is_abandoned = True
        self._driver.abandon()

    @property
    def waits_for_space(self) -> bool:
        """Whether it found no space for what it has to store."""
        return self._driver.waits_for_space

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once the disk is done with this partition, perhaps at once."""
        self._driver.when_idle(callback)

    def close_job(self) -> LogJob:
        """Return the job that closes the log with a clean mark. Call when idle; nothing follows."""
        return self._driver.close_job()

    # -- told by the driver ----------------------------------------------------------------

    def on_released(self, size_bytes: int) -> None:
        """Pass on that there is room again for that many unstored bytes."""
        self._listener.on_released(size_bytes)

    def on_committed(self, position: Position) -> None:
        """End the waits that have waited for it, then tell who reads."""
        for wait in self._commit_waits.release(position):
            wait.ended(None)
        size_bytes = 0
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= position.offset:
            size_bytes += uncommitted.popleft()[1]
        self._listener.on_readable(self, size_bytes)

    def on_log_start(self, log_start: Offset) -> None:
        """End the waits of `delete_records` up to `log_start`, and pass it on."""
        waits = self._log_start_waits.release(Position(log_start, 0))
        self._listener.on_log_start(self, log_start, was_asked=bool(waits))
        for wait in waits:
            wait.ended(None)

    def on_disk_full(self, error: Exception) -> None:
        """Pass it on: what was appended waits. A move of the log start goes on unwatched."""
        for wait in self._log_start_waits.drain():
            wait.ended(broker_error(error))
        self._listener.on_disk_full(self, error)

    def on_storage_failed(self, error: Exception) -> None:
        """Pass it on: the broker stops."""
        self._listener.on_storage_failed(self, error)
