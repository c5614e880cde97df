"""Fetch: one answer over many partitions, at once or when enough has come.

Owns the life of one request: what is read, when it is answered. Must not know how a log reads.

Invariants:
    G1  Each result's bytes lie below the high watermark that the result states.
    G2  One answer holds at most the bytes asked for, except that its first batch always fits.
    G3  A fetch waits only while it has neither an error nor enough bytes, and never beyond its
        deadline; a partition that goes away ends the wait.
    G4  The reactor never waits for a disk: what is not in memory is read on a worker.

Source: Kafka's delayed fetch (KIP-74: max bytes over all partitions).
"""

from collections.abc import Sequence

from ringlog.broker.error_codes import broker_error
from ringlog.broker.partition import Partition
from ringlog.broker.partitions import DAMAGE, Partitions, Sleeper
from ringlog.broker.purgatory import ByteWait
from ringlog.broker.shell import Reply, Shell, Timer
from ringlog.client.errors import BrokerError, Busy, InvalidRequest
from ringlog.client.messages import FetchPartition, FetchRequest, FetchResponse, FetchResult
from ringlog.client.wire import MAX_PAYLOAD_FRAMES
from ringlog.storage.errors import StorageError
from ringlog.storage.log_read import ReadPlan, ReadResult
from ringlog.storage.types import Offset

MAX_REPLANS = 3
"""A log that changes under a read is asked again this often, then answers nothing for now."""


class _Read:
    """One partition of one attempt."""

    __slots__ = ("data", "error", "partition", "plan")

    def __init__(self) -> None:
        self.partition: Partition | None = None
        self.error: BrokerError | None = None
        self.plan: ReadPlan | None = None
        self.data = b""


class FetchHandler:
    """`handle` is the handler. One per broker."""

    def __init__(
        self,
        shell: Shell,
        partitions: Partitions,
        *,
        max_bytes: int,
        max_wait_ms: int,
        max_waiting: int,
    ) -> None:
        self.shell = shell
        self.partitions = partitions
        self.max_waiting = max_waiting
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms

    def handle(
        self, request: FetchRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """Read what there is; wait for more when it is too little."""
        del now_ms
        if frames:
            raise InvalidRequest("a fetch has no payload frames", hint="send the header alone")
        if not request.partitions:
            raise InvalidRequest("a fetch names at least one partition")
        self.partitions.metrics.fetch_requests += 1
        wait_ms = min(max(request.max_wait_ms, 0), self._max_wait_ms)
        max_bytes = max(1, min(request.max_bytes, self._max_bytes, reply.room_bytes))
        deadline_ms = self.shell.monotonic_ms() + wait_ms
        _Fetch(self, request, reply, max_bytes=max_bytes, deadline_ms=deadline_ms).attempt()


class _Fetch:
    """One request under way (`broker.partitions.Sleeper`)."""

    __slots__ = ("_deadline_ms", "_entry", "_handler", "_max_bytes", "_min_bytes", "_reads",
                 "_replans", "_reply", "_request", "_timer", "_was_cold", "_woken")  # fmt: skip

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        reply: Reply,
        *,
        max_bytes: int,
        deadline_ms: int,
    ) -> None:
        self._handler = handler
        self._request = request
        self._reply = reply
        self._max_bytes = max_bytes
        self._min_bytes = min(request.min_bytes, max_bytes)
        self._deadline_ms = deadline_ms
        self._woken = False
        self._was_cold = False
        self._replans = 0
        self._reads: list[_Read] = []
        self._entry: ByteWait[Partition, Sleeper] | None = None
        self._timer: Timer | None = None

    # -- reading ---------------------------------------------------------------------------

    def attempt(self) -> None:
        """Read every partition from memory; send the rest to a worker."""
        self._reads = [_Read() for _ in self._request.partitions]
        cold: list[_Read] = []
        left = self._max_bytes
        for target, read in zip(self._request.partitions, self._reads, strict=True):
            # With nothing left errors are still told, so that nobody waits for what is gone.
            self._read_one(target, read, left)
            if read.plan is not None and read.error is None and not read.data:
                cold.append(read)
            left -= len(read.data)
        self._was_cold = bool(cold)
        if cold:
            self._handler.partitions.metrics.cold_reads += 1
            self._handler.shell.run(lambda: _run_cold(cold, left), self._cold_done)
        else:
            self._conclude()

    def _read_one(self, target: FetchPartition, read: _Read, left: int) -> None:
        try:
            partition = self._handler.partitions.find(
                target.topic, target.topic_uuid, target.partition
            )
            read.partition = partition
            if not partition.readable_from(Offset(target.offset)) or left <= 0:
                return
            max_bytes = max(1, min(left, target.max_bytes))
            read.plan = partition.log.plan_read(
                Offset(target.offset), max_bytes, end=partition.high_watermark
            )
            if read.plan is not None:
                self._take(read, read.plan.run(cached_only=True))
        except (BrokerError, StorageError) as error:
            self._failed(read, error)

    def _take(self, read: _Read, result: ReadResult | None) -> None:
        if result is not None:
            read.data = result.data
            if not result.data:
                read.plan = None

    def _failed(self, read: _Read, error: Exception) -> None:
        partition = read.partition
        if partition is not None and isinstance(error, DAMAGE):
            if partition.closed_by is None:
                self._handler.partitions.damage(partition, error)
            read.error = partition.closed_by
        else:
            read.error = broker_error(error)

    def _cold_done(
        self,
        outcomes: Sequence[tuple[_Read, ReadResult | Exception | None]] | None,
        error: Exception | None,
    ) -> None:
        if outcomes is None:
            assert error is not None, "a worker gives a result or an error"
            self._reply.fail(broker_error(error))
            return
        stale = False
        for read, outcome in outcomes:
            if isinstance(outcome, Exception):
                self._failed(read, outcome)
            elif outcome is None:
                stale = True
            else:
                read.data = outcome.data
        if stale and self._replans < MAX_REPLANS:
            self._replans += 1
            self.attempt()
            return
        self._conclude()

    # -- answering or waiting --------------------------------------------------------------

    def _conclude(self) -> None:
        total = sum(len(read.data) for read in self._reads)
        is_final = (
            total >= self._min_bytes
            or (self._woken and total > 0)
            # What came while a worker read would not wake this request: do not wait for it.
            or self._was_cold
            or any(read.error is not None for read in self._reads)
            or self._handler.shell.monotonic_ms() >= self._deadline_ms
        )
        if is_final:
            self._answer()
        else:
            self._wait(self._min_bytes - total)

    def _answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        frames: list[bytes] = []
        results = []
        left = self._max_bytes
        for read in self._reads:
            frame = -1
            fits = len(read.data) <= left or not frames
            if read.data and read.error is None and fits and len(frames) < MAX_PAYLOAD_FRAMES:
                frame = len(frames)
                frames.append(read.data)
                left -= len(read.data)
            results.append(_result(read, frame))
        self._handler.partitions.metrics.fetched_bytes += sum(map(len, frames))
        self._reply.send(FetchResponse(results), frames)

    def _wait(self, missing_bytes: int) -> None:
        readers = self._handler.partitions.readers
        if len(readers) >= self._handler.max_waiting:
            self._reply.fail(
                Busy(
                    f"{len(readers)} fetches wait for records, max_waiting_fetches is "
                    f"{self._handler.max_waiting}",
                    hint="fetch again in a moment, with fewer connections or a smaller max_wait_ms",
                )
            )
            return
        keys = [read.partition for read in self._reads if read.partition is not None]
        self._entry = readers.add(keys, missing_bytes, self)
        if self._timer is None:
            self._timer = self._handler.shell.call_at(self._deadline_ms, self._expired)

    def wake(self) -> None:
        """Enough has come, or a partition has gone."""
        self._entry = None
        self._woken = True
        self.attempt()

    def _expired(self) -> None:
        if self._entry is not None:
            self._handler.partitions.readers.remove(self._entry)
            self._entry = None
            self.attempt()


def _result(read: _Read, frame: int) -> FetchResult:
    partition = read.partition
    error = read.error.info() if read.error is not None else None
    if partition is None:
        return FetchResult(-1, -1, frame, error)
    return FetchResult(partition.high_watermark, partition.log.log_start, frame, error)


def _run_cold(
    cold: list[_Read], max_bytes: int
) -> list[tuple[_Read, ReadResult | Exception | None]]:
    """Read on a worker until `max_bytes` have come; each read gets its own outcome."""
    outcomes: list[tuple[_Read, ReadResult | Exception | None]] = []
    for read in cold:
        if max_bytes <= 0:
            break
        assert read.plan is not None
        try:
            result = read.plan.run(cached_only=False)
            outcomes.append((read, result))
            max_bytes -= len(result.data) if result is not None else 0
        except StorageError as error:
            outcomes.append((read, error))
    return outcomes
