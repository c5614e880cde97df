"""The sparse index of one segment: offset and time to byte position.

Owns the arrays in memory and the two cache files `.index` and `.timeindex`. Must not know
files (it makes and takes bytes) or batches.

An entry stands for the batch that begins at (offset, position); its third part is the largest
record time of all batches *before* it in the segment, which never decreases, so that both
lookups are a bisection. The first batch of a segment always has an entry.

    both files    | magic 4 | format 1 | owner 4 | base offset 8 | size 8 | next offset 8 |
                  | max time 8 | created 8 | CRC of the segment 4 | count 4 | crc 4 | entries ... |
    .index        entry = offset - base 4 | position 4
    .timeindex    entry = max time before it 8
    owner = CRC-32C of topic UUID and partition; it seeds the CRC of the segment
    crc = CRC-32C of head and entries

Invariants:
    I1  Offsets and positions ascend, times before never decrease.
    I2  Both files are caches: what does not decode, or covers another size or end than the
        segment has, is not used, and the index is built again from the batches.
    I3  A reader on another thread may look up while one thread adds: an entry is complete in
        all arrays before it is visible in `offsets`, which is added to last.

Source: sparse indexes of Kafka's log; layout ours.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

import msgspec
from crc32c import crc32c

from ringlog.storage.types import NO_TIMESTAMP, Buffer, Offset

INDEX_FORMAT: Final = 2
_OFFSET_MAGIC: Final = b"RLIX"
_TIME_MAGIC: Final = b"RLTX"
_HEAD: Final = struct.Struct(">4sBIqqqqqII")
_CRC: Final = struct.Struct(">I")
MAX_RELATIVE_OFFSET: Final = 2**32 - 1
"""Largest distance of a batch from the base of its segment (inclusive)."""


class Coverage(msgspec.Struct, frozen=True, gc=False):
    """What a segment held when its index was saved."""

    base_offset: Offset
    size_bytes: int
    next_offset: Offset
    max_timestamp: int
    created_ms: int
    segment_crc: int
    """Of its `size_bytes` bytes, seeded with the owner."""


class SparseIndex:
    """Entries of one segment. Added to by the reactor or by recovery; looked up anywhere."""

    __slots__ = ("_interval_bytes", "_max_before", "_next_position", "_offsets", "_positions",
                 "base_offset")  # fmt: skip

    def __init__(
        self,
        base_offset: Offset,
        interval_bytes: int,
        offsets: "array[int] | None" = None,
        positions: "array[int] | None" = None,
        max_before: "array[int] | None" = None,
    ) -> None:
        """Take the entries in three columns of one length, or none of them."""
        self.base_offset = base_offset
        self._interval_bytes = interval_bytes
        # 32 bits: relative to the base offset, and segments are below 2 GiB.
        self._offsets = array("I") if offsets is None else offsets
        self._positions = array("I") if positions is None else positions
        self._max_before = array("q") if max_before is None else max_before
        last = self._positions[-1] if self._positions else -interval_bytes
        self._next_position = last + interval_bytes

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, offset: Offset, position: int, max_before: int) -> None:
        """Take note of a batch; it gets an entry when the last one is an interval behind.

        Args:
            offset: base offset of the batch.
            position: of its first byte in the segment.
            max_before: largest record time of the batches before it, or `NO_TIMESTAMP`.
        """
        if position < self._next_position:
            return
        self._next_position = position + self._interval_bytes
        self._max_before.append(max_before)
        self._positions.append(position)
        self._offsets.append(offset - self.base_offset)

    def at_offset(self, offset: Offset) -> tuple[Offset, int]:
        """Offset and position of the last entry at or below `offset`; the base when none is."""
        i = bisect_right(self._offsets, offset - self.base_offset) - 1
        if i < 0:
            return self.base_offset, 0
        return Offset(self.base_offset + self._offsets[i]), self._positions[i]

    def before_offset(self, offset: Offset) -> tuple[Offset, int, int]:
        """Return `at_offset`, and the largest record time before that entry."""
        i = bisect_right(self._offsets, offset - self.base_offset) - 1
        if i < 0:
            return self.base_offset, 0, NO_TIMESTAMP
        return (
            Offset(self.base_offset + self._offsets[i]),
            self._positions[i],
            self._max_before[i],
        )

    def at_timestamp(self, timestamp_ms: int) -> tuple[Offset, int]:
        """Offset and position from which a batch with a record of that time or later may be.

        Every batch before it holds only earlier records.
        """
        i = bisect_left(self._max_before, timestamp_ms, 0, len(self._offsets)) - 1
        if i < 0:
            return self.base_offset, 0
        return Offset(self.base_offset + self._offsets[i]), self._positions[i]

    def position_behind(self, offset: Offset) -> int | None:
        """Position of the first entry at or above `offset`: all below it ends there or before."""
        i = bisect_left(self._offsets, max(0, offset - self.base_offset))
        return self._positions[i] if i < len(self._offsets) else None

    def edge_within(self, begin: int, limit: int) -> int | None:
        """Position of an entry at which a read from `begin` to about `limit` may end.

        The last entry in (begin, limit], else the first one behind `begin`, else None.
        """
        count = len(self._offsets)
        i = bisect_right(self._positions, limit, 0, count) - 1
        if i >= 0 and self._positions[i] > begin:
            return self._positions[i]
        i = bisect_right(self._positions, begin, 0, count)
        return self._positions[i] if i < count else None

    def entries(self) -> Iterator[tuple[Offset, int]]:
        """Yield offset and position of all entries, ascending."""
        for offset, position in zip(self._offsets, self._positions, strict=False):
            yield Offset(self.base_offset + offset), position

    def offset_behind(self, position: int) -> Offset | None:
        """Offset of the first entry behind byte `position`, or None."""
        i = bisect_right(self._positions, position, 0, len(self._offsets))
        return Offset(self.base_offset + self._offsets[i]) if i < len(self._offsets) else None

    def prefix(self, size_bytes: int) -> "SparseIndex":
        """Copy of the entries of batches that begin below byte `size_bytes`."""
        count = bisect_left(self._positions, size_bytes, 0, len(self._offsets))
        return SparseIndex(
            self.base_offset,
            self._interval_bytes,
            self._offsets[:count],
            self._positions[:count],
            self._max_before[:count],
        )

    def encode(self, coverage: Coverage, *, seed: int) -> tuple[bytes, bytes]:
        """Bytes of `.index` and `.timeindex`."""
        count = len(self._offsets)
        pairs = array("I", bytes(8 * count))
        pairs[0::2] = self._offsets[:count]
        pairs[1::2] = self._positions[:count]
        times = self._max_before[:count]
        return (
            _encode_file(_OFFSET_MAGIC, coverage, pairs, count, seed),
            _encode_file(_TIME_MAGIC, coverage, times, count, seed),
        )


def decode_index(
    index_file: Buffer, time_file: Buffer, *, interval_bytes: int, seed: int
) -> tuple[SparseIndex, Coverage] | None:
    """Read both cache files of the owner `seed`, or return None on any doubt (I2)."""
    offsets = _decode_file(_OFFSET_MAGIC, index_file, 8)
    times = _decode_file(_TIME_MAGIC, time_file, 8)
    if offsets is None or times is None or offsets[:2] != times[:2] or offsets[0] != seed:
        return None
    _owner, coverage, pair_bytes = offsets
    pairs, max_before = array("I", pair_bytes), array("q", times[2])
    if sys.byteorder == "little":
        pairs.byteswap()
        max_before.byteswap()
    if len(max_before) * 2 != len(pairs):
        return None
    index = SparseIndex(coverage.base_offset, interval_bytes, pairs[0::2], pairs[1::2], max_before)
    return index, coverage


def told_by_index(index_file: Buffer) -> tuple[int, Coverage] | None:
    """Owner of a whole `.index` file and what it covers, or None."""
    found = _decode_file(_OFFSET_MAGIC, index_file, 8)
    return None if found is None else found[:2]


def _encode_file(
    magic: bytes, coverage: Coverage, entries: "array[int]", count: int, seed: int
) -> bytes:
    if sys.byteorder == "little":
        entries.byteswap()
    body = entries.tobytes()
    head = _HEAD.pack(magic, INDEX_FORMAT, seed, *msgspec.structs.astuple(coverage), count)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def _decode_file(
    magic: bytes, data: Buffer, entry_bytes: int
) -> tuple[int, Coverage, bytes] | None:
    body_begin = _HEAD.size + _CRC.size
    if len(data) < body_begin:
        return None
    view = memoryview(data)
    found_magic, found_format, owner, *fields, count = _HEAD.unpack_from(view)
    (crc,) = _CRC.unpack_from(view, _HEAD.size)
    body = view[body_begin:]
    if found_magic != magic or found_format != INDEX_FORMAT or len(body) != count * entry_bytes:
        return None
    if crc32c(body, crc32c(view[: _HEAD.size])) != crc:
        return None
    return owner, Coverage(*fields), bytes(body)
