"""client: the wire protocol and the synchronous client library.

Applications import from here; a name loads its module at first use, so that
`import ringlog.client` costs next to nothing. `docs/ARCHITECTURE.md` lists the modules.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringlog.client.admin import Admin
    from ringlog.client.consumer import Consumer
    from ringlog.client.delivery import Delivery, RecordMetadata
    from ringlog.client.errors import RinglogError
    from ringlog.client.producer import BatchProducer
    from ringlog.client.record import Record
    from ringlog.storage.types import TopicPartition

__all__ = [
    "Admin",
    "BatchProducer",
    "Consumer",
    "Delivery",
    "Record",
    "RecordMetadata",
    "RinglogError",
    "TopicPartition",
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
        case "RinglogError":
            from ringlog.client import errors

            return errors.RinglogError
        case "TopicPartition":
            from ringlog.storage import types

            return types.TopicPartition
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
