"""The seal of a closed segment: its size, its ends and the CRC-32C of the whole file.

Owns the bytes of `.seal`. Must not know files or batches.

    | magic 4 | format 1 | owner 4 | base offset 8 | size 8 | next offset 8 | max time 8 |
    | rolled 8 | CRC of the segment 4 | crc 4 |
    owner = CRC-32C of topic UUID and partition; it seeds the CRC of the segment
    crc = CRC-32C of what is before it

A seal is a cache as long as its segment can be read: one that is missing or does not decode is
made again from the batches. A good seal over other bytes is damage of the segment, or of a
segment that was swapped with another partition's: what the CRC of single batches cannot tell.

Invariants:
    S1  A segment is flushed before its seal is written, so a sealed segment was durable.
    S2  Truncation into a segment removes its seal, durably, before anything is written.
"""

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from ringlog.storage.types import Buffer, Offset

SEAL_FORMAT: Final = 2
_MAGIC: Final = b"RLSL"
_BODY: Final = struct.Struct(">4sBIqqqqqI")
_CRC: Final = struct.Struct(">I")


class Seal(msgspec.Struct, frozen=True, gc=False):
    """What a closed segment holds."""

    base_offset: Offset
    size_bytes: int
    next_offset: Offset
    """Base offset of the segment behind it."""
    max_timestamp: int
    """Largest record time, milliseconds since 1970, or `NO_TIMESTAMP`."""
    rolled_ms: int
    """When it was closed, milliseconds since 1970."""
    segment_crc: int
    """Of every byte of the segment, seeded with the owner."""


def encode_seal(seal: Seal, *, seed: int) -> bytes:
    """Bytes of the `.seal` file."""
    body = _BODY.pack(_MAGIC, SEAL_FORMAT, seed, *msgspec.structs.astuple(seal))
    return body + _CRC.pack(crc32c(body))


def decode_seal(data: Buffer, *, seed: int) -> Seal | None:
    """Read a `.seal` file of the owner `seed`, or return None on any doubt."""
    found = told_by_seal(data)
    return found[1] if found is not None and found[0] == seed else None


def told_by_seal(data: Buffer) -> tuple[int, Seal] | None:
    """Owner of a whole `.seal` file and what it says, or None."""
    if len(data) != _BODY.size + _CRC.size:
        return None
    magic, seal_format, owner, *fields = _BODY.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _BODY.size)
    if magic != _MAGIC or seal_format != SEAL_FORMAT:
        return None
    if crc32c(memoryview(data)[: _BODY.size]) != crc:
        return None
    return owner, Seal(*fields)
