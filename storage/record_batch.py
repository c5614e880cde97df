"""The record batch header: layout, checks, and what the broker writes into it.

Owns the 61 bytes in front of the records and every check that does not open them. Must not
know single records (`storage.record_codec`) or files.

    byte  0       8       12      16 17      21 23      27
          | base  | length| leader|m | crc   |at| last  |
          | offset|       | epoch |  |       |tr| delta |
          | i64   | i32   | i32   |i8| u32   |16| i32   |
    byte  27              35              43
          | base timestamp| max timestamp |
          | i64 ms        | i64 ms        |
    byte  43              51 53      57      61
          | producer id   |ep| base  | count | records...
          | i64           |16| seq i32 i32   |

All big-endian. `length` counts what follows it (size of the batch - 12). The CRC-32C covers
byte 21 to the end, so base offset and leader epoch are assigned without touching the rest;
whoever reads a batch back checks both against what the log expects.

Attributes: bits 0-2 codec, 3 timestamp type (1: time of append), 4 transactional, 5 control.

Invariants:
    B1  No byte behind the header is used before the CRC over it has been compared.
    B2  A length is compared with the bytes at hand before anything is sliced or allocated.
    B3  Checks cost O(1) plus one CRC pass; the records are never opened here.

Source: Kafka's record batch, magic 2 (KIP-98, KIP-101), kept byte for byte.
"""

import struct
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from ringlog.storage.compression import CODEC_NAMES, CODEC_NONE
from ringlog.storage.errors import BadTimestamp, CorruptBatch, TooLarge
from ringlog.storage.types import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
)

HEADER_SIZE = 61
MAGIC = 2
MAX_BATCH_BYTES = 2**31 - 1
"""Largest batch the length field can state, in bytes."""

MAX_RECORD_COUNT = 2**20
"""Most records in a batch. Bounds what a reader builds from bytes it did not write."""

MIN_RECORD_BYTES = 7
"""A record without key, value and headers; no record is smaller."""

NO_EPOCH = -1
NO_SEQUENCE = -1
DEFAULT_MAX_FUTURE_MS = 3_600_000

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
_KNOWN_ATTRIBUTES = 0x3F

_HEADER = struct.Struct(">qiibIhiqqqhii")
_UNDER_CRC = struct.Struct(">hiqqqhii")
_PREFIX = struct.Struct(">qii")
_LENGTH = struct.Struct(">i")
_STORED = struct.Struct(">qiibIhi")
"""The first 27 bytes: all that a reader of a stored batch compares."""
_PREFIX_SIZE = 12
"""Bytes that `length` does not count: base offset and `length` itself."""
_CRC_START = 21
_MAX_OFFSET = 2**63 - 1
_MAX_SEQUENCE = 2**31 - 1


class BatchHeader(msgspec.Struct, gc=False, frozen=True):
    """The header of one batch, fields in file order. Integers only, so free to copy."""

    base_offset: Offset
    """Offset of the first record (inclusive); on produce whatever the client wrote, usually 0."""
    size_bytes: int
    """The whole batch, the first 12 bytes included."""
    leader_epoch: LeaderEpoch
    crc: int
    attributes: int
    last_offset_delta: int
    """Offset of the last record minus base offset; also the last sequence minus base."""
    base_timestamp: int
    """Milliseconds since 1970 of the first record, or `NO_TIMESTAMP`."""
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> Offset:
        """First offset behind the batch (exclusive end)."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> int:
        """Codec number, see `storage.compression`; 5 to 7 have no name."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether the records are markers of a transaction, not users' data."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def has_append_time(self) -> bool:
        """Whether `max_timestamp`, set by a broker, is the time of every record."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record (inclusive; wraps to 0), or `NO_SEQUENCE`."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE


def peek_size(buffer: Buffer, position: int) -> int | None:
    """Size in bytes that the batch at `position` states, or None with under 12 bytes left.

    Nothing is checked: on damaged bytes the size is arbitrary, negative included.
    """
    if len(buffer) - position < _PREFIX_SIZE:
        return None
    (length,) = _LENGTH.unpack_from(buffer, position + 8)
    return int(length) + _PREFIX_SIZE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`. Neither the CRC nor the rest of the batch is looked at.

    Raises:
        CorruptBatch: under 61 bytes left, another magic, an impossible length or base offset.
    """
    left = len(buffer) - position
    if left < HEADER_SIZE:
        raise CorruptBatch(
            f"{left} bytes are left, a batch header has {HEADER_SIZE}", position=position
        )
    (base_offset, length, epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
     max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    ) = _HEADER.unpack_from(buffer, position)  # fmt: skip
    if magic != MAGIC:
        raise CorruptBatch(f"the magic byte is {magic}, expected {MAGIC}", position=position)
    size_bytes = length + _PREFIX_SIZE
    if size_bytes < HEADER_SIZE or size_bytes > MAX_BATCH_BYTES:
        raise CorruptBatch(f"a batch cannot have {size_bytes} bytes", position=position)
    if base_offset < 0:
        raise CorruptBatch(f"base offset {base_offset} is negative", position=position)
    return BatchHeader(
        base_offset, size_bytes, epoch, crc, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip


def check_batch(buffer: Buffer, position: int = 0, *, max_bytes: int) -> BatchHeader:
    """Check the batch at `position` as far as that goes without opening its records.

    Bytes behind the batch are not looked at. Base offset and leader epoch lie outside the CRC:
    the caller compares them with what its log expects.

    Args:
        buffer: holds the whole batch.
        position: of its first byte.
        max_bytes: largest batch allowed (inclusive).

    Raises:
        TooLarge: the batch or its record count is over its bound.
        CorruptBatch: cut short, CRC differs, unknown attribute bits, or counts that cannot be.
    """
    header = read_header(buffer, position)
    if header.size_bytes > max_bytes:
        raise TooLarge(
            f"the batch has {header.size_bytes} bytes, {max_bytes} are allowed",
            position=position,
            hint="send smaller batches or raise max.message.bytes of the topic",
        )
    left = len(buffer) - position
    if header.size_bytes > left:
        raise CorruptBatch(
            f"the batch has {header.size_bytes} bytes, {left} are left", position=position
        )
    view = memoryview(buffer)[position + _CRC_START : position + header.size_bytes]
    crc = crc32c(view)
    if crc != header.crc:
        raise CorruptBatch(
            f"the CRC-32C is {crc:#010x}, the header says {header.crc:#010x}", position=position
        )
    _check_fields(header, position)
    return header


def _check_fields(header: BatchHeader, position: int) -> None:
    """Refuse fields that contradict each other, CRC or not."""
    if header.attributes & ~_KNOWN_ATTRIBUTES or header.codec >= len(CODEC_NAMES):
        raise CorruptBatch(f"unknown attributes {header.attributes:#06x}", position=position)
    count = header.record_count
    delta = header.last_offset_delta
    if count > MAX_RECORD_COUNT:
        raise TooLarge(
            f"the batch states {count} records, {MAX_RECORD_COUNT} are allowed",
            position=position,
            hint="send smaller batches",
        )
    if count < 1 or delta < count - 1:
        raise CorruptBatch(
            f"{count} records do not go with a last offset delta of {delta}", position=position
        )
    if header.base_offset > _MAX_OFFSET - delta - 1:
        raise CorruptBatch("the batch passes the largest offset", position=position)
    body_bytes = header.size_bytes - HEADER_SIZE
    if header.codec == CODEC_NONE and count * MIN_RECORD_BYTES > body_bytes:
        raise CorruptBatch(f"{count} records do not fit {body_bytes} bytes", position=position)


def check_for_append(
    buffer: Buffer, *, max_bytes: int, now_ms: int, max_future_ms: int = DEFAULT_MAX_FUTURE_MS
) -> BatchHeader:
    """Check what a producer sent: exactly one batch, whole, undamaged and allowed here.

    Args:
        buffer: the payload, nothing else.
        max_bytes: `max.message.bytes` of the topic (inclusive).
        now_ms: the broker's clock, milliseconds since 1970.
        max_future_ms: how far ahead of `now_ms` a record may be (inclusive).

    Raises:
        TooLarge: as `check_batch`.
        BadTimestamp: one is negative, or too far in the future.
        CorruptBatch: as `check_batch`, bytes follow the batch, or it is nothing a producer
            may send. All of these are final: sending the same bytes again is no use.
    """
    header = check_batch(buffer, max_bytes=max_bytes)
    if header.size_bytes != len(buffer):
        raise CorruptBatch(
            f"{len(buffer) - header.size_bytes} bytes follow the batch",
            position=header.size_bytes,
            hint="send one batch per partition and request",
        )
    if header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG | LOG_APPEND_TIME_FLAG):
        raise CorruptBatch(
            f"attributes {header.attributes:#06x}: transactional, control and append-time "
            f"batches are not taken from producers"
        )
    if header.record_count != header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{header.record_count} records with a last offset delta of "
            f"{header.last_offset_delta}: a new batch has no gaps"
        )
    _check_producer(header)
    _check_timestamps(header, now_ms + max_future_ms)
    return header


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < NO_PRODUCER_ID:
        raise CorruptBatch(f"producer id {header.producer_id} is negative")
    if header.producer_id != NO_PRODUCER_ID and (
        header.producer_epoch < 0 or header.base_sequence < 0
    ):
        raise CorruptBatch(
            f"producer id {header.producer_id} comes with epoch {header.producer_epoch} and "
            f"sequence {header.base_sequence}; both must be 0 or more"
        )


def _check_timestamps(header: BatchHeader, latest_ms: int) -> None:
    base, newest = header.base_timestamp, header.max_timestamp
    if base < NO_TIMESTAMP or newest < base:
        raise BadTimestamp(
            f"timestamps from {base} to {newest} ms: only {NO_TIMESTAMP} may be negative, and "
            f"the largest is not below the first"
        )
    if newest > latest_ms:
        raise BadTimestamp(
            f"a record is {newest - latest_ms} ms further ahead of the broker's clock than allowed",
            hint="timestamps are milliseconds since 1970; check the producer's clock",
        )


def assign(base_offset: Offset, leader_epoch: LeaderEpoch, batch_size_bytes: int) -> bytes:
    """First 16 bytes of a batch, with the place in the log that the leader gives it.

    A batch is written as `[assign(...), memoryview(payload)[16:]]`; its CRC stays valid.

    Args:
        base_offset: of the first record.
        leader_epoch: Raft term of the append.
        batch_size_bytes: size of the whole batch, as `BatchHeader.size_bytes`.
    """
    return _PREFIX.pack(base_offset, batch_size_bytes - _PREFIX_SIZE, leader_epoch)


def end_of_stored(
    view: memoryview, position: int, base_offset: Offset, leader_epoch: LeaderEpoch
) -> tuple[int, Offset] | None:
    """Check a batch that was checked before it was stored: the quick way to read it back.

    Args:
        view: holds the batch, and perhaps more.
        position: of its first byte.
        base_offset: what the log expects there.
        leader_epoch: what the log expects there.

    Returns:
        Its size in bytes and its next offset; None when it is cut, or anything differs, and
        `check_batch` has to say what.
    """
    if len(view) - position < HEADER_SIZE:
        return None
    offset, length, epoch, magic, crc, _attributes, delta = _STORED.unpack_from(view, position)
    size_bytes = length + _PREFIX_SIZE
    if offset != base_offset or epoch != leader_epoch or magic != MAGIC or delta < 0:
        return None
    end = position + size_bytes
    if (
        size_bytes < HEADER_SIZE
        or end > len(view)
        or crc32c(view[position + _CRC_START : end]) != crc
    ):
        return None
    return size_bytes, Offset(base_offset + delta + 1)


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield byte position and header of each whole batch, in order. No CRC is checked.

    A batch that the end of the buffer cuts ends the iteration, as after a bounded read.

    Raises:
        CorruptBatch: a header is invalid; `position` is where it starts.
    """
    position = 0
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes


def pack_header(header: BatchHeader, records: Buffer) -> bytes:
    """Header bytes for `records`, CRC computed; `header.crc` is ignored.

    Raises:
        TooLarge: `header.size_bytes` does not fit the length field.
    """
    if header.size_bytes > MAX_BATCH_BYTES:
        raise TooLarge(
            f"the batch has {header.size_bytes} bytes, the format allows {MAX_BATCH_BYTES}",
            hint="send smaller batches",
        )
    under_crc = _UNDER_CRC.pack(
        header.attributes, header.last_offset_delta, header.base_timestamp,
        header.max_timestamp, header.producer_id, header.producer_epoch,
        header.base_sequence, header.record_count,
    )  # fmt: skip
    crc = crc32c(records, crc32c(under_crc))
    prefix = assign(header.base_offset, header.leader_epoch, header.size_bytes)
    return b"%b\x02%b%b" % (prefix, crc.to_bytes(4, "big"), under_crc)
