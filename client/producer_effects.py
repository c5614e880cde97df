"""What the producer core asks of whoever drives it.

Owns names only; `producer_core` says when and why.
"""

from typing import NamedTuple

from ringlog.client.batch import Batch
from ringlog.client.errors import RinglogError
from ringlog.client.messages import ProduceRequest


class Produce(NamedTuple):
    """Send these batches to a broker, once."""

    broker_id: int
    body: ProduceRequest
    batches: list[Batch]
    timeout_ms: int


class WantProducerId(NamedTuple):
    """Ask any broker for a producer id."""


class WantMetadata(NamedTuple):
    """Ask for metadata of these topics."""

    topics: tuple[str, ...]


class Closed(NamedTuple):
    """A batch takes no more records and holds this many bytes."""

    batch: Batch
    size_bytes: int


class Ended(NamedTuple):
    """A batch has ended, well when `error` is None."""

    batch: Batch
    base_offset: int
    error: RinglogError | None


Effect = Produce | WantProducerId | WantMetadata | Closed | Ended
