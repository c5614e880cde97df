"""ListOffsets and DeleteRecords: where a partition begins and ends, and moving its begin.

Owns the two handlers. Must not know how a log looks a time up.

Invariants:
    Q1  LATEST is the high watermark: nothing uncommitted is ever named.
    Q2  A delete of records is answered after its move of the log start is committed, applied
        and durable.
"""

from ringlog.broker.error_codes import broker_error
from ringlog.broker.partition import Partition
from ringlog.broker.partitions import DAMAGE, Partitions
from ringlog.broker.shell import Reply, Shell, Timer
from ringlog.client.errors import (
    BrokerError,
    InvalidRequest,
    OffsetNotAvailable,
    RequestTimedOut,
)
from ringlog.client.messages import (
    EARLIEST,
    LATEST,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from ringlog.storage.errors import StorageError
from ringlog.storage.types import NO_TIMESTAMP, Offset

MAX_TIMEOUT_MS = 600_000


class ListOffsetsHandler:
    """`handle` is the handler. One per broker."""

    def __init__(self, shell: Shell, partitions: Partitions) -> None:
        self._shell = shell
        self._partitions = partitions

    def handle(
        self, request: ListOffsetsRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """Answer from memory where possible; look times up on a worker."""
        del frames, now_ms
        results: list[ListOffsetsResult] = []
        lookups: list[tuple[int, Partition, int]] = []
        for place, target in enumerate(request.partitions):
            result, partition = self._at_once(target)
            results.append(result)
            if partition is not None:
                lookups.append((place, partition, target.timestamp_ms))
        if not lookups:
            reply.send(ListOffsetsResponse(results))
            return
        ends = [partition.high_watermark for _place, partition, _time in lookups]

        def look_up() -> list[ListOffsetsResult | Exception]:
            return [
                _look_up(partition, timestamp_ms, end)
                for (_place, partition, timestamp_ms), end in zip(lookups, ends, strict=True)
            ]

        def done(
            found: list[ListOffsetsResult | Exception] | None, error: Exception | None
        ) -> None:
            if found is None:
                assert error is not None, "a worker gives a result or an error"
                reply.fail(broker_error(error))
                return
            for (place, partition, _time), outcome in zip(lookups, found, strict=True):
                if isinstance(outcome, Exception):
                    results[place] = _failed(self._note(partition, outcome))
                else:
                    results[place] = outcome
            reply.send(ListOffsetsResponse(results))

        self._shell.run(look_up, done)

    def _at_once(self, target: ListOffsetsPartition) -> tuple[ListOffsetsResult, Partition | None]:
        """Return the result, and the partition if a time has to be looked up."""
        try:
            partition = self._partitions.find(target.topic, target.topic_uuid, target.partition)
            if not partition.is_ready:
                raise OffsetNotAvailable(
                    f"partition {partition.key} is being taken over", hint="try again"
                )
            if target.timestamp_ms == LATEST:
                # After a restart the log start may be the higher one: nothing is readable below.
                latest = max(partition.high_watermark, partition.log.log_start)
                return ListOffsetsResult(latest, NO_TIMESTAMP), None
            if target.timestamp_ms == EARLIEST:
                return ListOffsetsResult(partition.log.log_start, NO_TIMESTAMP), None
            if target.timestamp_ms < 0:
                raise InvalidRequest(
                    f"timestamp_ms is {target.timestamp_ms}",
                    hint="use milliseconds since 1970, -1 for the end or -2 for the begin",
                )
            return ListOffsetsResult(-1, NO_TIMESTAMP), partition
        except BrokerError as error:
            return _failed(error), None

    def _note(self, partition: Partition, error: Exception) -> BrokerError:
        if isinstance(error, DAMAGE) and partition.closed_by is None:
            self._partitions.damage(partition, error)
        return partition.closed_by or broker_error(error)


class DeleteRecordsHandler:
    """`handle` is the handler. One per broker."""

    def __init__(self, shell: Shell, partitions: Partitions) -> None:
        self._shell = shell
        self._partitions = partitions

    def handle(
        self, request: DeleteRecordsRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """Move the log start up, then answer."""
        del frames, now_ms
        if request.timeout_ms < 0:
            raise InvalidRequest(f"timeout_ms is {request.timeout_ms}", hint="use 0 or more")
        partition = self._partitions.find(request.topic, request.topic_uuid, request.partition)
        before = request.before_offset
        wait = _DeleteWait(partition, reply)
        partition.delete_records(
            partition.high_watermark if before == LATEST else Offset(before), wait
        )
        timeout_ms = min(request.timeout_ms, MAX_TIMEOUT_MS)
        if not reply.done:
            wait.timer = self._shell.call_at(self._shell.monotonic_ms() + timeout_ms, wait.expired)


class _DeleteWait:
    """A request that waits for its log start (`broker.partition.Wait`)."""

    __slots__ = ("_partition", "_reply", "timer")

    def __init__(self, partition: Partition, reply: Reply) -> None:
        self._partition = partition
        self._reply = reply
        self.timer: Timer | None = None

    def ended(self, error: BrokerError | None) -> None:
        """The move is durable, or never will be known to be."""
        if self.timer is not None:
            self.timer.cancel()
        if self._reply.done:
            return
        if error is not None:
            self._reply.fail(error)
        else:
            self._reply.send(DeleteRecordsResponse(self._partition.log.log_start))

    def expired(self) -> None:
        """The deadline has come; the move goes on."""
        self._reply.fail(
            RequestTimedOut(
                "the log start did not move in time; it may still move",
                hint="send the request again: it is the same move",
            )
        )


def _look_up(partition: Partition, timestamp_ms: int, end: Offset) -> ListOffsetsResult | Exception:
    """On a worker."""
    try:
        found = partition.log.offset_for_timestamp(timestamp_ms, end=end)
    except StorageError as error:
        return error
    if found is None:
        return ListOffsetsResult(-1, NO_TIMESTAMP)
    return ListOffsetsResult(*found)


def _failed(error: BrokerError) -> ListOffsetsResult:
    return ListOffsetsResult(-1, NO_TIMESTAMP, error.info())
