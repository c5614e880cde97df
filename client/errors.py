"""Every error a user of ringlog can meet, and the one table of wire codes.

    RinglogError                    code, retriable, cause, hint
    ├── BrokerError                 a broker answered with a code: one subclass per table row
    └── ClientError                 found on this side of the wire
        ├── InvalidArgument         also a ValueError
        ├── RecordTooLarge          also a ValueError
        ├── SerializationFailed     a serializer raised; the record was not sent
        ├── DeserializationFailed   a deserializer raised; topic, partition and offset are known
        ├── CorruptRecord           bytes from a broker fail a check; never handed out
        ├── NoBrokerReachable       also a ConnectionError; each address with its reason
        ├── ClientClosed            the object was closed
        ├── ClientForked            the object belongs to the parent process
        └── DeadlineExceeded        also a TimeoutError
            ├── BufferFull          no room came free in time; the record was not taken
            ├── OutcomeUnknown      no answer in time: the change may have been carried out
            └── DeliveryUnknown     no answer in time: the record may be stored

Owns texts and facts (retriable, refresh_metadata). Must not know sockets or storage.

Invariants:
    E1  Each `ErrorCode` but OK has exactly one `BrokerError` subclass, and the reverse.
    E2  A deadline that passes after a record left this process is `DeliveryUnknown`, never a
        failure.
"""

import enum
from typing import ClassVar

import msgspec


class ErrorCode(enum.IntEnum):
    """Codes on the wire. Numbers are never reused."""

    OK = 0
    INTERNAL = 1
    UNSUPPORTED_VERSION = 2
    INVALID_REQUEST = 3
    UNKNOWN_TOPIC = 4
    UNKNOWN_PARTITION = 5
    TOPIC_EXISTS = 6
    INVALID_TOPIC_NAME = 7
    INVALID_CONFIG = 8
    INVALID_PARTITIONS = 9
    INVALID_REPLICATION_FACTOR = 10
    NOT_LEADER = 11
    CORRUPT_BATCH = 12
    BATCH_TOO_LARGE = 13
    INVALID_TIMESTAMP = 14
    OFFSET_OUT_OF_RANGE = 15
    OUT_OF_ORDER_SEQUENCE = 16
    PRODUCER_FENCED = 17
    DISK_FULL = 18
    BUSY = 19
    PARTITION_DAMAGED = 20
    BROKER_STOPPING = 21
    REQUEST_TIMED_OUT = 22
    STALE_TOPIC = 23
    OFFSET_NOT_AVAILABLE = 24
    STORAGE_FAILED = 25
    LIMIT_EXCEEDED = 26


class ErrorInfo(msgspec.Struct, array_like=True, frozen=True):
    """An error as it travels: code, cause (a sentence), hint (the next step)."""

    code: int
    cause: str
    hint: str = ""


class RinglogError(Exception):
    """Base of every ringlog error.

    Attributes:
        code: name of the wire code, or the class name of a client-side error.
        retriable: whether the same call may succeed later without a change by the user.
        cause: what happened, one sentence.
        hint: what to do next, a sentence or a command; may be empty.
    """

    code: str = "ERROR"
    retriable: bool = False

    def __init__(self, cause: str, *, hint: str = "") -> None:
        super().__init__(f"{cause} ({hint})" if hint else cause)
        self.cause = cause
        self.hint = hint


class BrokerError(RinglogError):
    """A broker refused or failed a request. `refresh_metadata`: the client should re-route."""

    error_code: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    refresh_metadata: ClassVar[bool] = False

    def __init_subclass__(
        cls, *, wire: ErrorCode, retriable: bool = False, refresh_metadata: bool = False
    ) -> None:
        """Register the table row: the class is its row."""
        super().__init_subclass__()
        cls.error_code = wire
        cls.code = wire.name
        cls.retriable = retriable
        cls.refresh_metadata = refresh_metadata

    def info(self) -> ErrorInfo:
        """The error as it travels."""
        return ErrorInfo(int(self.error_code), self.cause, self.hint)


class InternalError(BrokerError, wire=ErrorCode.INTERNAL):
    """A bug in the broker; its log has the traceback."""


class UnsupportedVersion(BrokerError, wire=ErrorCode.UNSUPPORTED_VERSION):
    """An api key or version this broker does not speak."""


class InvalidRequest(BrokerError, wire=ErrorCode.INVALID_REQUEST):
    """A request that does not decode or is against a limit."""


class UnknownTopic(BrokerError, wire=ErrorCode.UNKNOWN_TOPIC, refresh_metadata=True):
    """No topic of that name exists."""


class UnknownPartition(BrokerError, wire=ErrorCode.UNKNOWN_PARTITION, refresh_metadata=True):
    """The topic exists, the partition number does not."""


class TopicExists(BrokerError, wire=ErrorCode.TOPIC_EXISTS):
    """A topic of that name (or one that collides with it) exists."""


class InvalidTopicName(BrokerError, wire=ErrorCode.INVALID_TOPIC_NAME):
    """A name outside [A-Za-z0-9._-]{1,249}, or "." or ".."."""


class InvalidConfig(BrokerError, wire=ErrorCode.INVALID_CONFIG):
    """An unknown setting or a value outside its limits."""


class InvalidPartitions(BrokerError, wire=ErrorCode.INVALID_PARTITIONS):
    """A partition count that is not positive, not growing, or over the limit."""


class InvalidReplicationFactor(BrokerError, wire=ErrorCode.INVALID_REPLICATION_FACTOR):
    """More replicas than this cluster can hold."""


class NotLeader(BrokerError, wire=ErrorCode.NOT_LEADER, retriable=True, refresh_metadata=True):
    """Another broker leads the partition; the cause names its endpoint."""


class CorruptBatch(BrokerError, wire=ErrorCode.CORRUPT_BATCH):
    """The broker found a record batch that fails a check; nothing was stored."""


class BatchTooLarge(BrokerError, wire=ErrorCode.BATCH_TOO_LARGE):
    """A record batch over `max.message.bytes`."""


class InvalidTimestamp(BrokerError, wire=ErrorCode.INVALID_TIMESTAMP):
    """A record timestamp too far in the future, or negative."""


class OffsetOutOfRange(BrokerError, wire=ErrorCode.OFFSET_OUT_OF_RANGE):
    """An offset below the log start or beyond the high watermark."""


class OutOfOrderSequence(BrokerError, wire=ErrorCode.OUT_OF_ORDER_SEQUENCE):
    """A gap in an idempotent producer's sequence: an earlier batch is missing."""


class ProducerFenced(BrokerError, wire=ErrorCode.PRODUCER_FENCED):
    """A newer epoch of the same producer id has written."""


class DiskFull(BrokerError, wire=ErrorCode.DISK_FULL, retriable=True):
    """The broker keeps its last disk space for itself; nothing was stored."""


class Busy(BrokerError, wire=ErrorCode.BUSY, retriable=True):
    """A limit on requests or bytes in flight is reached; nothing was stored."""


class PartitionDamaged(BrokerError, wire=ErrorCode.PARTITION_DAMAGED):
    """The partition's only replica holds bytes that fail their check."""


class BrokerStopping(BrokerError, wire=ErrorCode.BROKER_STOPPING, retriable=True):
    """The broker is shutting down; nothing was stored."""


class RequestTimedOut(BrokerError, wire=ErrorCode.REQUEST_TIMED_OUT, retriable=True):
    """The broker did not finish in the time the request gave. The outcome is unknown."""


class StaleTopic(BrokerError, wire=ErrorCode.STALE_TOPIC, retriable=True, refresh_metadata=True):
    """The topic was deleted and made again since the client looked it up."""


class OffsetNotAvailable(BrokerError, wire=ErrorCode.OFFSET_NOT_AVAILABLE, retriable=True):
    """A new leader does not know its high watermark yet (KIP-207)."""


class StorageFailed(BrokerError, wire=ErrorCode.STORAGE_FAILED, retriable=True):
    """A write or flush failed: the broker stops. The outcome is unknown."""


class LimitExceeded(BrokerError, wire=ErrorCode.LIMIT_EXCEEDED):
    """A configured cap on topics, partitions, connections or waits is reached."""


_BY_CODE: dict[int, type[BrokerError]] = {
    int(subclass.error_code): subclass for subclass in BrokerError.__subclasses__()
}


def error_from(info: ErrorInfo) -> BrokerError:
    """The exception for an error that came over the wire. Unknown codes keep their number."""
    subclass = _BY_CODE.get(info.code)
    if subclass is None:
        return InternalError(
            f"error code {info.code} of a newer broker: {info.cause}", hint=info.hint
        )
    return subclass(info.cause, hint=info.hint)


class ClientError(RinglogError):
    """An error found on this side of the wire."""

    def __init_subclass__(cls, *, retriable: bool = False) -> None:
        """The class name is the code."""
        super().__init_subclass__()
        cls.code = cls.__name__
        cls.retriable = retriable


class InvalidArgument(ClientError, ValueError):
    """An argument that no call can accept."""


class RecordTooLarge(ClientError, ValueError):
    """A record that no batch can hold; the text gives size, limit and the setting."""


class SerializationFailed(ClientError):
    """A serializer raised. The record was not sent."""


class DeserializationFailed(ClientError):
    """A deserializer raised. `record` is the raw record, with topic, partition and offset."""

    def __init__(self, cause: str, *, record: object, hint: str = "") -> None:
        super().__init__(cause, hint=hint)
        self.record = record


class CorruptRecord(ClientError):
    """Bytes from a broker that fail a check. They are never handed out."""


class NoBrokerReachable(ClientError, ConnectionError, retriable=True):
    """No bootstrap address answered. `reasons` has one (address, reason) pair each."""

    def __init__(
        self, cause: str, *, reasons: tuple[tuple[str, str], ...] = (), hint: str = ""
    ) -> None:
        super().__init__(cause, hint=hint)
        self.reasons = reasons


class ClientClosed(ClientError):
    """The object was closed; make a new one."""


class ClientForked(ClientError):
    """The object was made before a fork; make a new one in this process."""


class DeadlineExceeded(ClientError, TimeoutError, retriable=True):
    """A call did not end in time."""


class BufferFull(DeadlineExceeded, retriable=True):
    """No room came free within `max_block_ms`. The record was not taken."""


class OutcomeUnknown(DeadlineExceeded, retriable=False):
    """A change was sent and no answer came in time: it may have been carried out."""


class DeliveryUnknown(DeadlineExceeded, retriable=False):
    """The record was sent and no answer came in time: it may be stored."""
