"""Produce: batches in, offsets out, answered when all of them have committed or failed.

Owns the life of one request: which batches are appended, when it is answered. Must not know
how a partition stores anything.

Invariants:
    R1  No result says success before its partition has ended the wait for its commit.
    R2  Once a batch was refused for a passing reason, later batches of its partition in the same
        request are refused too: what is stored stays in the order sent.
    R3  What is refused was not appended; a deadline that passes says that the outcome is
        unknown.
"""

from ringlog.broker.error_codes import broker_error
from ringlog.broker.metrics import CoreMetrics
from ringlog.broker.partition import Partition, Produced
from ringlog.broker.partitions import Partitions
from ringlog.broker.shell import Reply, Shell, Timer
from ringlog.client.errors import BrokerError, Busy, DiskFull, InvalidRequest, RequestTimedOut
from ringlog.client.messages import (
    ACKS_ALL,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from ringlog.registry.model import INTERNAL_PREFIX
from ringlog.storage.errors import StorageError

MAX_COMMIT_WAITS = 10_000
"""Batches of one partition that may wait for their commit."""

MAX_TIMEOUT_MS = 600_000

MEMORY_SLACK_BYTES = 64 << 10
"""Room in memory kept for what stands beside the batches: indexes, seals, own entries."""


class _Request:
    """One request under way: its results so far, and how many are open."""

    __slots__ = ("_metrics", "_reply", "_timer", "open", "results")

    def __init__(self, reply: Reply, count: int, metrics: CoreMetrics) -> None:
        self._reply = reply
        self._metrics = metrics
        self._timer: Timer | None = None
        self.results: list[ProduceResult | None] = [None] * count
        # One more, for the handler itself: nothing is answered before it has seen all batches.
        self.open = count + 1

    def put(self, place: int, result: ProduceResult) -> None:
        """One batch has ended; a result that comes behind the deadline is dropped."""
        if self.results[place] is None:
            self.results[place] = result
            self.close_one()

    def close_one(self) -> None:
        """Answer if nothing is open any more."""
        self.open -= 1
        if self.open == 0:
            if self._timer is not None:
                self._timer.cancel()
            # The one place where None cannot be: every result was put.
            self._reply.send(ProduceResponse([result for result in self.results if result]))

    def expire_at(self, shell: Shell, deadline_ms: int) -> None:
        """Answer at `deadline_ms` with what is known then."""
        self._timer = shell.call_at(deadline_ms, self._expired)

    def _expired(self) -> None:
        error = RequestTimedOut(
            "the batch was appended, but not committed in time; the outcome is unknown",
            hint="send it again with the same sequence, or look before sending it again",
        ).info()
        self._metrics.produce_timeouts += 1
        for place, result in enumerate(self.results):
            if result is None:
                self.put(place, ProduceResult(-1, -1, error))


class _BatchWait:
    """One batch that waits for its commit (`broker.partition.Wait`)."""

    __slots__ = ("_base_offset", "_partition", "_place", "_request")

    def __init__(
        self, request: _Request, place: int, partition: Partition, base_offset: int
    ) -> None:
        self._request = request
        self._place = place
        self._partition = partition
        self._base_offset = base_offset

    def ended(self, error: BrokerError | None) -> None:
        """It is committed, or never will be known to be."""
        log_start = self._partition.log.log_start
        if error is None:
            result = ProduceResult(self._base_offset, log_start)
        else:
            result = ProduceResult(-1, log_start, error.info())
        self._request.put(self._place, result)


class ProduceHandler:
    """`handle` is the handler. One per broker."""

    def __init__(self, shell: Shell, partitions: Partitions, *, max_unstored_bytes: int) -> None:
        self._shell = shell
        self._partitions = partitions
        self._metrics = partitions.metrics
        self._max_unstored_bytes = max_unstored_bytes

    def handle(
        self, request: ProduceRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """Append what can be, then answer once it is committed; acks=0: never."""
        _check(request, frames)
        self._metrics.produce_requests += 1
        under_way = _Request(reply, len(frames), self._metrics)
        touched: dict[Partition, None] = {}
        refused: dict[tuple[str, int], BrokerError] = {}
        for place, (target, batch) in enumerate(zip(request.partitions, frames, strict=True)):
            key = (target.topic, target.partition)
            try:
                if key in refused:
                    raise refused[key]
                partition = self._partitions.find(*_named(target))
                produced = self._append(partition, batch, now_ms)
            except (BrokerError, StorageError) as error:
                failure = broker_error(error)
                if failure.retriable:
                    refused[key] = failure
                self._metrics.refused_batches += 1
                under_way.put(place, ProduceResult(-1, -1, failure.info()))
                continue
            touched[partition] = None
            if request.acks != 0:
                wait = _BatchWait(under_way, place, partition, produced.base_offset)
                partition.await_commit(produced.end, wait)
        for partition in touched:
            partition.pump()
        if request.acks == 0:
            reply.discard()
            return
        if under_way.open > 1:
            timeout_ms = min(request.timeout_ms, MAX_TIMEOUT_MS)
            under_way.expire_at(self._shell, self._shell.monotonic_ms() + timeout_ms)
        under_way.close_one()

    def _append(self, partition: Partition, batch: memoryview, now_ms: int) -> Produced:
        size_bytes = len(batch)
        self._check_room(partition, size_bytes)
        produced = partition.produce(batch, now_ms)
        metrics = self._metrics
        if produced.is_duplicate:
            metrics.duplicate_batches += 1
            return produced
        metrics.produced_batches += 1
        metrics.produced_bytes += size_bytes
        self._partitions.note_appended(partition, size_bytes)
        return produced

    def _check_room(self, partition: Partition, size_bytes: int) -> None:
        unstored = self._metrics.unstored_bytes_now
        # A batch larger than the limit gets in when it is alone.
        if unstored and unstored + size_bytes > self._max_unstored_bytes:
            raise Busy(
                f"{unstored} bytes wait to be flushed, max_unflushed_bytes is "
                f"{self._max_unstored_bytes}",
                hint="send again in a moment; if it lasts, the disk is too slow",
            )
        if partition.commit_waits >= MAX_COMMIT_WAITS:
            raise Busy(
                f"{MAX_COMMIT_WAITS} batches of partition {partition.key} wait for their commit",
                hint="send again in a moment",
            )
        try:
            self._check_space(partition, size_bytes)
        except DiskFull:
            self._metrics.disk_full_refusals += 1
            raise

    def _check_space(self, partition: Partition, size_bytes: int) -> None:
        if partition.settings.in_memory:
            # What was appended and not yet written has taken no room so far.
            free_bytes = self._partitions.files.memory_free_bytes()
            if self._metrics.unstored_bytes_now + size_bytes + MEMORY_SLACK_BYTES > free_bytes:
                raise DiskFull(
                    f"{free_bytes} bytes are left of max_memory_topic_bytes",
                    hint="lower retention.bytes of topics with storage=memory, or raise it",
                )
        elif not partition.key.topic.startswith(INTERNAL_PREFIX):
            self._partitions.check_space(size_bytes)


def _check(request: ProduceRequest, frames: list[memoryview]) -> None:
    if request.acks not in {ACKS_ALL, 0, 1}:
        raise InvalidRequest(f"acks is {request.acks}", hint="use -1 (all), 1 or 0")
    if len(request.partitions) != len(frames):
        raise InvalidRequest(
            f"{len(request.partitions)} partitions are named, {len(frames)} batches came",
            hint="send one payload frame per partition named",
        )
    if request.timeout_ms < 0:
        raise InvalidRequest(f"timeout_ms is {request.timeout_ms}", hint="use 0 or more")


def _named(target: ProducePartition) -> tuple[str, bytes, int]:
    return target.topic, target.topic_uuid, target.partition
