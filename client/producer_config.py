"""Settings of `BatchProducer`, checked once.

Owns defaults, limits and how they depend on one another. Must not know what is done with them.

Invariants:
    GP1 A `ProducerConfig` that exists is consistent; what one setting makes of another is here
        (`in_flight`, `idempotent`) and nowhere else.
"""

from dataclasses import dataclass
from typing import Literal

from ringlog.client.config import check_number
from ringlog.client.errors import InvalidArgument
from ringlog.client.messages import ACKS_ALL

MAX_IN_FLIGHT = 16
"""Batches per producer and partition that a broker remembers (inclusive)."""

MIB = 1024 * 1024
Acks = Literal["all", -1, 0, 1]
Compression = Literal["lz4"]
_MAX_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How a `BatchProducer` fills and sends batches: its arguments of the same names.

    Sizes in bytes, but for `batch_size`, which counts records.
    """

    acks: Acks = "all"
    """"all" (or -1): flushed on a majority; 1: on the leader; 0: no answer, nothing promised."""
    batch_size: int = 1024
    """Most records in a batch."""
    batch_bytes: int = MIB
    """Target for the records of a batch; a larger record travels alone."""
    linger_ms: int = 100
    """Longest time a batch waits for more records while others are under way."""
    compression: Compression | None = None
    """None or "lz4"."""
    buffer_memory: int = 64 * MIB
    """Most bytes that wait to be acknowledged; beyond it `send` waits."""
    max_block_ms: int = 60_000
    """Longest time `send` waits for room or for metadata."""
    delivery_timeout_ms: int = 120_000
    """From `send` to the end of the delivery, all retries included."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Batches per partition that may be under way; 1 without idempotence, to keep the order."""
    enable_idempotence: bool = True
    """A retry never duplicates. Has no meaning with acks=0."""

    def __post_init__(self) -> None:
        """Check every value. Raises InvalidArgument."""
        if self.acks not in {"all", -1, 1, 0} or isinstance(self.acks, bool):
            raise InvalidArgument(f"acks is {self.acks!r}", hint='give "all", 1 or 0')
        if self.compression not in {None, "lz4"}:
            raise InvalidArgument(f"compression is {self.compression!r}", hint='give None or "lz4"')
        check_number("batch_size", self.batch_size, 1, 65_536)
        # Twice the target must fit the brokers' limit of 10 MiB: see Accumulator U2.
        check_number("batch_bytes", self.batch_bytes, 1024, 4 * MIB)
        check_number("linger_ms", self.linger_ms, 0, _MAX_MS)
        check_number("buffer_memory", self.buffer_memory, self.batch_bytes, 2**40)
        check_number("max_block_ms", self.max_block_ms, 0, _MAX_MS)
        check_number("delivery_timeout_ms", self.delivery_timeout_ms, 1, _MAX_MS)
        check_number("max_in_flight", self.max_in_flight, 1, MAX_IN_FLIGHT)

    @property
    def wire_acks(self) -> int:
        """`acks` as it travels."""
        return ACKS_ALL if self.acks == "all" else int(self.acks)

    @property
    def idempotent(self) -> bool:
        """Whether batches carry a producer id and sequences."""
        return self.enable_idempotence and self.wire_acks != 0

    @property
    def in_flight(self) -> int:
        """Batches under way per partition."""
        # Without sequences a retry of one of several would change the order, so there is one;
        # with acks=0 there is no retry.
        if self.idempotent or self.wire_acks == 0:
            return self.max_in_flight
        return 1
