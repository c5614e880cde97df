"""The settings of one partition's log, validated once.

Owns names, defaults and limits. Must not know topics, Kafka's dotted names or how a setting
arrives; `broker` maps `retention.ms` and its like to these.

Invariants:
    C1  A `LogConfig` that exists is valid; nobody checks a field of it again.
"""

from dataclasses import dataclass
from typing import Final, Literal

from ringlog.storage.record_batch import HEADER_SIZE

FlushPolicy = Literal["majority", "interval", "os"]

_DAY_MS: Final = 24 * 3_600_000
_MAX_SEGMENT_BYTES: Final = 2**31 - 1
"""Index entries hold byte positions in 32 bits."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log. Sizes in bytes, times in milliseconds."""

    segment_size_bytes: int = 256 << 20
    """A segment is closed before a batch would take it over this size. 1 to 2 GiB - 1."""
    segment_age_ms: int = 7 * _DAY_MS
    """A segment that has records is closed at this age. 1 and more."""
    retention_ms: int = 7 * _DAY_MS
    """Closed segments older than this are proposed for removal; -1 keeps them."""
    retention_size_bytes: int = -1
    """Oldest segments beyond this much are proposed for removal; -1 keeps them."""
    max_batch_bytes: int = 10 << 20
    """Largest batch taken from a producer (inclusive)."""
    index_interval_bytes: int = 4096
    """One index entry per this many bytes of log, or per batch where batches are larger."""
    flush_policy: FlushPolicy = "majority"
    """`majority`: flushed before the ack. `interval`, `os`: only with one replica."""
    flush_interval_ms: int = 1000
    """With `interval`: how long written records may stay unflushed. 1 and more."""

    def __post_init__(self) -> None:
        """Raise ValueError for a setting outside its limits."""
        _require("segment_size_bytes", self.segment_size_bytes, 1, _MAX_SEGMENT_BYTES)
        _require("segment_age_ms", self.segment_age_ms, 1)
        _require("retention_ms", self.retention_ms, -1)
        _require("retention_size_bytes", self.retention_size_bytes, -1)
        _require("max_batch_bytes", self.max_batch_bytes, HEADER_SIZE, _MAX_SEGMENT_BYTES)
        _require("index_interval_bytes", self.index_interval_bytes, 1)
        _require("flush_interval_ms", self.flush_interval_ms, 1)
        if self.flush_policy not in {"majority", "interval", "os"}:
            raise ValueError(
                f"flush_policy is {self.flush_policy!r}; majority, interval and os are known"
            )

    @property
    def roll_age_ms(self) -> int:
        """Age at which a segment is closed: never later than its records may be dropped."""
        if self.retention_ms < 0:
            return self.segment_age_ms
        return max(1, min(self.segment_age_ms, self.retention_ms))


def _require(name: str, value: int, lowest: int, highest: int | None = None) -> None:
    if value < lowest or (highest is not None and value > highest):
        limits = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise ValueError(f"{name} is {value}; it must be {limits}")
