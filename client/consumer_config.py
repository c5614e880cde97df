"""Settings of `Consumer`, checked once.

Owns defaults and limits. Must not know what is done with them.

Invariants:
    CC1 A `ConsumerConfig` that exists is within its limits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ringlog.client.config import check_number
from ringlog.client.errors import InvalidArgument
from ringlog.client.fetcher import RESETS, FetchLimits

MIB = 1024 * 1024
OffsetReset = Literal["earliest", "latest", "none"]
Deserializer = Callable[[bytes | None], object]


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How a `Consumer` fetches and decodes: its arguments of the same names. Sizes in bytes."""

    group_id: str | None = None
    """Must be left out: the consumer reads all partitions it is given and commits nothing."""
    auto_offset_reset: OffsetReset = "latest"
    """Where a new assignment starts, and where reading goes on when an offset is gone: earliest,
    latest, or none (start at the earliest; a gone offset is an error). After an offset behind the
    end it goes on at the end, with a warning, whichever of the two: nothing is read twice."""
    fetch_min_bytes: int = 1
    """An answer may wait until so much can be read."""
    fetch_max_wait_ms: int = 500
    """Longest wait of a broker for `fetch_min_bytes`."""
    fetch_max_bytes: int = 50 * MIB
    """Most bytes of one answer; one batch always fits."""
    max_partition_fetch_bytes: int = MIB
    """Target for one partition in one answer; one batch always fits."""
    buffer_memory: int = 64 * MIB
    """Bytes fetched ahead and asked for; beyond it goes only what a first batch needs to fit."""
    key_deserializer: Deserializer | None = None
    """Makes a key of its bytes (or None); runs on the thread that polls. None: bytes stay."""
    value_deserializer: Deserializer | None = None
    """The same for values."""

    def __post_init__(self) -> None:
        """Check every value. Raises InvalidArgument."""
        if self.group_id is not None:
            raise InvalidArgument(
                "group_id is set, and consumer groups are not built yet",
                hint="leave it out: the consumer then reads all partitions and commits nothing",
            )
        if self.auto_offset_reset not in RESETS:
            raise InvalidArgument(
                f"auto_offset_reset is {self.auto_offset_reset!r}",
                hint=f"give one of {', '.join(RESETS)}",
            )
        check_number("fetch_min_bytes", self.fetch_min_bytes, 0, 2**31 - 1)
        check_number("fetch_max_wait_ms", self.fetch_max_wait_ms, 0, 300_000)
        check_number("fetch_max_bytes", self.fetch_max_bytes, 1, 2**31 - 1)
        check_number("max_partition_fetch_bytes", self.max_partition_fetch_bytes, 1, 2**31 - 1)
        check_number("buffer_memory", self.buffer_memory, 1, 2**40)

    @property
    def limits(self) -> FetchLimits:
        """What the fetcher needs of it."""
        return FetchLimits(
            self.fetch_min_bytes,
            self.fetch_max_wait_ms,
            self.fetch_max_bytes,
            self.max_partition_fetch_bytes,
            self.buffer_memory,
        )
