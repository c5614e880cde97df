"""client: the wire protocol and the synchronous client library.

Applications import from here; a name loads its module at first use, so that
`import ringlog.client` costs next to nothing. `docs/ARCHITECTURE.md` lists the modules.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringlog.client.admin import Admin
    from ringlog.client.consumer import Consumer
    from ringlog.client.delivery import Delivery, RecordMetadata
    from ringlog.client.errors import (
        BatchTooLarge,
        BrokerError,
        BrokerStopping,
        BufferFull,
        Busy,
        ClientClosed,
        ClientError,
        ClientForked,
        CorruptBatch,
        CorruptRecord,
        DeadlineExceeded,
        DeliveryUnknown,
        DeserializationFailed,
        DiskFull,
        InternalError,
        InvalidArgument,
        InvalidConfig,
        InvalidPartitions,
        InvalidReplicationFactor,
        InvalidRequest,
        InvalidTimestamp,
        InvalidTopicName,
        LimitExceeded,
        NoBrokerReachable,
        NotLeader,
        OffsetNotAvailable,
        OffsetOutOfRange,
        OutcomeUnknown,
        OutOfOrderSequence,
        PartitionDamaged,
        ProducerFenced,
        RecordTooLarge,
        RequestTimedOut,
        RinglogError,
        SerializationFailed,
        StaleTopic,
        StorageFailed,
        TopicExists,
        UnknownPartition,
        UnknownTopic,
        UnsupportedVersion,
    )
    from ringlog.client.producer import BatchProducer
    from ringlog.client.record import Record
    from ringlog.storage.types import TopicPartition

__all__ = [
    "Admin",
    "BatchProducer",
    "BatchTooLarge",
    "BrokerError",
    "BrokerStopping",
    "BufferFull",
    "Busy",
    "ClientClosed",
    "ClientError",
    "ClientForked",
    "Consumer",
    "CorruptBatch",
    "CorruptRecord",
    "DeadlineExceeded",
    "Delivery",
    "DeliveryUnknown",
    "DeserializationFailed",
    "DiskFull",
    "InternalError",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidPartitions",
    "InvalidReplicationFactor",
    "InvalidRequest",
    "InvalidTimestamp",
    "InvalidTopicName",
    "LimitExceeded",
    "NoBrokerReachable",
    "NotLeader",
    "OffsetNotAvailable",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutcomeUnknown",
    "PartitionDamaged",
    "ProducerFenced",
    "Record",
    "RecordMetadata",
    "RecordTooLarge",
    "RequestTimedOut",
    "RinglogError",
    "SerializationFailed",
    "StaleTopic",
    "StorageFailed",
    "TopicExists",
    "TopicPartition",
    "UnknownPartition",
    "UnknownTopic",
    "UnsupportedVersion",
]


def __getattr__(name: str) -> object:
    """Load a public name at first use (PEP 562)."""
    match name:
        case "Admin":
            from ringlog.client import admin

            return admin.Admin
        case "BatchProducer":
            from ringlog.client import producer

            return producer.BatchProducer
        case "Consumer":
            from ringlog.client import consumer

            return consumer.Consumer
        case "Record":
            from ringlog.client import record

            return record.Record
        case "Delivery" | "RecordMetadata":
            from ringlog.client import delivery

            return delivery.Delivery if name == "Delivery" else delivery.RecordMetadata
        case "TopicPartition":
            from ringlog.storage import types

            return types.TopicPartition
        case _ if name in __all__:
            # What is left are the errors.
            from ringlog.client import errors

            return getattr(errors, name)
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
