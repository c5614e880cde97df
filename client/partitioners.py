"""Which partition a key belongs to.

Owns the three formulas and their names. Must not know topics or records. A formula never
changes: it decides where the records of a key are, also those written by other clients.

Invariants:
    X1  The same key and number of partitions give the same partition in every process, on every
        machine, for ever.
    X2  The result lies in [0, partitions).

Source: librdkafka's `consistent` (CRC-32), Kafka's Java client (murmur2, seed 0x9747b28c), the
bucket formula of the queue API (md5).
"""

import hashlib
import zlib
from collections.abc import Callable
from typing import Literal

from ringlog.client.errors import InvalidArgument

Partitioner = Callable[[bytes, int], int]
"""(key, number of partitions) -> partition."""

PartitionerName = Literal["crc32", "murmur2", "md5"]

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24


def crc32_partition(key: bytes, partitions: int) -> int:
    """CRC-32 of the key modulo the number of partitions."""
    return zlib.crc32(key) % partitions


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Murmur2 of the key, its sign bit cleared, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def md5_partition(key: bytes, partitions: int) -> int:
    """MD5 of the key, read as one big number, modulo the number of partitions."""
    digest = hashlib.md5(key, usedforsecurity=False).hexdigest()
    return int(digest, 16) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's murmur2, as an unsigned 32-bit number."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = (word * _M) & _MASK
        word ^= word >> _R
        word = (word * _M) & _MASK
        value = ((value * _M) & _MASK) ^ word
    if whole < length:
        value ^= int.from_bytes(data[whole:], "little")
        value = (value * _M) & _MASK
    value ^= value >> 13
    value = (value * _M) & _MASK
    return value ^ (value >> 15)


_NAMED: dict[str, Partitioner] = {
    "crc32": crc32_partition,
    "murmur2": murmur2_partition,
    "md5": md5_partition,
}


def partitioner(chosen: str | Partitioner) -> Partitioner:
    """The partitioner of that name, or the callable itself. Raises InvalidArgument."""
    if not isinstance(chosen, str):
        if callable(chosen):
            return chosen
    elif chosen in _NAMED:
        return _NAMED[chosen]
    raise InvalidArgument(
        f"partitioner is {chosen!r}",
        hint=f"give one of {', '.join(_NAMED)}, or a callable (key, partitions) -> partition",
    )
