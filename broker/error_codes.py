"""Which wire error stands for which error of the layers below: the one table.

Owns the mapping. Must not know requests. A test walks both sides, so that neither grows alone.

Invariants:
    X1  Every error class of `storage` and `registry` has a row, its own or an ancestor's.
    X2  Cause and hint survive the mapping.
"""

from ringlog.client import errors as wire
from ringlog.registry import errors as registry
from ringlog.storage import errors as storage

TABLE: dict[type[Exception], type[wire.BrokerError]] = {
    storage.TooLarge: wire.BatchTooLarge,
    storage.BadTimestamp: wire.InvalidTimestamp,
    storage.CorruptBatch: wire.CorruptBatch,
    storage.CodecMissing: wire.InvalidRequest,
    storage.OffsetOutOfRange: wire.OffsetOutOfRange,
    storage.DamagedLog: wire.PartitionDamaged,
    storage.DamagedState: wire.PartitionDamaged,
    storage.ReadFailed: wire.PartitionDamaged,
    storage.FileMissing: wire.PartitionDamaged,
    storage.WrongDirectory: wire.PartitionDamaged,
    storage.AccessRefused: wire.StorageFailed,
    storage.LogDirFailed: wire.StorageFailed,
    storage.DiskFull: wire.DiskFull,
    storage.ProducerFenced: wire.ProducerFenced,
    storage.SequenceError: wire.OutOfOrderSequence,
    storage.StorageError: wire.InternalError,
    registry.TopicExists: wire.TopicExists,
    registry.TopicMissing: wire.UnknownTopic,
    registry.TopicReplaced: wire.StaleTopic,
    registry.BadTopicName: wire.InvalidTopicName,
    registry.BadPartitionCount: wire.InvalidPartitions,
    registry.RegistryError: wire.InternalError,
}
"""The nearest class in an error's own line of descent decides."""


def broker_error(error: Exception) -> wire.BrokerError:
    """The wire error for `error`: itself, its row, or INTERNAL (our bug, for the log)."""
    if isinstance(error, wire.BrokerError):
        return error
    for kind in type(error).__mro__:
        row = TABLE.get(kind)
        if row is not None:
            return row(str(error) or type(error).__name__, hint=getattr(error, "hint", ""))
    return wire.InternalError(
        f"the broker failed with {type(error).__name__}", hint="the broker's log has the traceback"
    )


def is_known(error: Exception) -> bool:
    """Whether `error` is an operating error rather than our bug."""
    return isinstance(error, (wire.BrokerError, storage.StorageError, registry.RegistryError))
