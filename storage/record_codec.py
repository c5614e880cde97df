"""Records to bytes and back: what lies behind the header of a batch.

Owns the record layout and its limits. Must not know files, offsets of a log beyond the header,
or who sends a batch.

    record   length      varint   bytes that follow
             attributes  i8       always 0
             time delta  varint64 ms, to the batch's base timestamp
             offset delta varint  to the batch's base offset; ascending
             key         varint length (-1: none), bytes
             value       varint length (-1: none), bytes
             headers     varint count, then per header: key (UTF-8, never none), value

All varints are zigzag (`storage.varint`). In a compressed batch all records together are one
frame.

Invariants:
    RC1 On any bytes whatever the decoder returns records or raises CorruptBatch, TooLarge or
        CodecMissing, and what it builds stays in proportion to what it was allowed to open.
    RC2 A length is compared with the bytes left before it is used; a record ends exactly where
        its length says, the last one exactly where the records end.
    RC3 What the encoder accepts, the decoder with default bounds gives back unchanged.

Both hot paths avoid calls per record: the encoder fills a list of parts column by column and
joins it once; the decoder reads varints of one and two bytes in place.

Source: Kafka's record, magic 2.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from ringlog.storage.compression import (
    CODEC_LZ4,
    CODEC_NONE,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    DEFAULT_MAX_RATIO,
    open_compressed,
    shrink,
)
from ringlog.storage.errors import CorruptBatch, TooLarge
from ringlog.storage.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAX_RECORD_COUNT,
    MIN_RECORD_BYTES,
    NO_EPOCH,
    NO_SEQUENCE,
    BatchHeader,
    check_batch,
    pack_header,
)
from ringlog.storage.record_parts import PLAIN_HEADS, Header, encode_parts, plain_parts
from ringlog.storage.types import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
)
from ringlog.storage.varint import (
    MAX_VARINT32_BYTES,
    MAX_VARINT64_BYTES,
    encode_varint,
    read_raw_varint,
)

MAX_HEADER_COUNT = 2**20
"""Most headers in all records of a batch together."""

MAX_TIMESTAMP = 2**48 - 2
"""Largest timestamp written, in ms: the year 10889. Microseconds since 1970 are beyond it, and a
delta between it and `NO_TIMESTAMP` still fits 7 bytes."""

_TABLE_SIZE = len(PLAIN_HEADS)
_INT64_END = 2**63

R = TypeVar("R")


class Record(msgspec.Struct, gc=False, frozen=True):
    """One record as a reader sees it. `timestamp` is in ms since 1970, or `NO_TIMESTAMP`."""

    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class EncodedRecords(msgspec.Struct, gc=False, frozen=True):
    """The records section of a batch, waiting for the header that `seal_batch` makes."""

    data: bytes
    """Compressed already, if `codec` says so."""
    codec: int
    record_count: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int

    @property
    def batch_size_bytes(self) -> int:
        """Size of the sealed batch."""
        return HEADER_SIZE + len(self.data)


def record_size_bound(
    value: bytes | None, key: bytes | None = None, headers: Sequence[Header] = ()
) -> int:
    """Upper bound of a record's size in an uncompressed batch, in bytes.

    The bound holds wherever the record stands in its batch and whatever its timestamp.
    """
    # Attributes 1, time delta 7 (MAX_TIMESTAMP), offset delta 3 (MAX_RECORD_COUNT).
    size = 11 + len(encode_varint(len(headers)))
    for part in (key, value):
        if part is None:
            size += 1
        else:
            length = len(part)
            size += length + (1 if length < 64 else 2 if length < 8192 else 5)
    for name, content in headers:
        size += len(name.encode()) + 5 + 5 + (0 if content is None else len(content))
    return size + (1 if size < 64 else 2 if size < 8192 else 5)


def encode_batch(  # noqa: PLR0913  # one argument per field of the format
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[Header]] | None = None,
    timestamps: Sequence[int] | int = NO_TIMESTAMP,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    compression: str | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Make a whole batch: `encode_body`, then `seal_batch`; arguments and errors are theirs."""
    body = encode_body(
        values, keys=keys, headers=headers, timestamps=timestamps, compression=compression
    )
    return seal_batch(
        body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def encode_records(
    records: Sequence[Record],
    *,
    leader_epoch: int = NO_EPOCH,
    compression: str | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Make a whole batch that keeps the records' own offsets, gaps included.

    The first record's offset becomes the base offset. Arguments and errors otherwise as in
    `encode_batch`.

    Raises:
        ValueError: offsets do not ascend.
    """
    offsets = [record.offset for record in records]
    if any(after <= before for before, after in pairwise(offsets)):
        raise ValueError("the offsets of the records do not ascend")
    body = encode_body(
        [record.value for record in records],
        keys=[record.key for record in records],
        headers=[record.headers for record in records],
        timestamps=[record.timestamp for record in records],
        compression=compression,
        offset_deltas=[offset - offsets[0] for offset in offsets],
    )
    return seal_batch(
        body,
        base_offset=offsets[0],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def encode_body(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[Header]] | None = None,
    timestamps: Sequence[int] | int = NO_TIMESTAMP,
    compression: str | None = None,
    offset_deltas: Sequence[int] | None = None,
) -> EncodedRecords:
    """Encode records given as parallel columns.

    Args:
        values: one per record, at least one; None is a null value (a tombstone).
        keys: one per record, or None when no record has a key.
        headers: one sequence of (name, value) per record, or None when no record has any.
        timestamps: ms since 1970, one for all or one per record; `NO_TIMESTAMP` for none.
        compression: None or "lz4"; lz4 that would not pay off is left out.
        offset_deltas: ascending from 0; None means without gaps.

    Raises:
        ValueError: no records, columns of different lengths, another compression, a timestamp
            outside [`NO_TIMESTAMP`, `MAX_TIMESTAMP`], or a header name that is not UTF-8.
        TooLarge: over `MAX_RECORD_COUNT` records or `MAX_HEADER_COUNT` headers.
    """
    count = len(values)
    _check_columns(count, headers, compression)
    base, newest, deltas = _time_columns(timestamps, count)
    parts: list[bytes]
    if keys is None and headers is None and deltas is None and offset_deltas is None:
        parts = plain_parts(values)
    else:
        parts = encode_parts(values, keys, headers, deltas, offset_deltas)
    data = b"".join(parts)
    codec = CODEC_NONE
    if compression is not None:
        frame = shrink(data)
        if frame is not None:
            data, codec = frame, CODEC_LZ4
    last = count - 1 if offset_deltas is None else offset_deltas[-1]
    return EncodedRecords(data, codec, count, last, base, newest)


def seal_batch(
    body: EncodedRecords,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Put the header in front of encoded records.

    Producer fields lie under the CRC, so they are given here, when the batch is sent, and the
    same body may be sealed again with others.

    Raises:
        TooLarge: the batch would pass the 2 GiB its length field can state.
    """
    header = BatchHeader(
        base_offset=Offset(base_offset),
        size_bytes=body.batch_size_bytes,
        leader_epoch=LeaderEpoch(leader_epoch),
        crc=0,
        attributes=body.codec,
        last_offset_delta=body.last_offset_delta,
        base_timestamp=body.base_timestamp,
        max_timestamp=body.max_timestamp,
        producer_id=ProducerId(producer_id),
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=body.record_count,
    )
    return pack_header(header, body.data) + body.data


def _check_columns(
    count: int, headers: Sequence[Sequence[Header]] | None, compression: str | None
) -> None:
    if compression not in {None, "lz4"}:
        raise ValueError(f"compression {compression!r} is not one of None, 'lz4'")
    if not count:
        raise ValueError("a batch has at least one record")
    if count > MAX_RECORD_COUNT:
        raise TooLarge(f"{count} records, a batch holds {MAX_RECORD_COUNT}", hint="split them")
    if headers is not None and sum(map(len, headers)) > MAX_HEADER_COUNT:
        raise TooLarge(f"over {MAX_HEADER_COUNT} headers in one batch", hint="split the batch")


def _time_columns(timestamps: Sequence[int] | int, count: int) -> tuple[int, int, list[int] | None]:
    """Base timestamp, largest timestamp, and deltas to the base (None: all 0)."""
    if isinstance(timestamps, int):
        base = newest = oldest = timestamps
        deltas = None
    else:
        if len(timestamps) != count:
            raise ValueError(f"{len(timestamps)} timestamps for {count} records")
        base, newest, oldest = timestamps[0], max(timestamps), min(timestamps)
        deltas = None if newest == oldest else [moment - base for moment in timestamps]
    if oldest < NO_TIMESTAMP or newest > MAX_TIMESTAMP:
        raise ValueError(
            f"timestamps {oldest} to {newest} are not milliseconds since 1970 "
            f"({NO_TIMESTAMP} to {MAX_TIMESTAMP})"
        )
    return base, newest, deltas


def decode_records(
    buffer: Buffer, position: int = 0, header: BatchHeader | None = None, **options: int
) -> list[Record]:
    """`decode_as` with `Record`; `options` are its keywords."""
    return decode_as(Record, buffer, position, header, **options)


def decode_as(
    make: Callable[..., R],
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    max_ratio: int = DEFAULT_MAX_RATIO,
    from_offset: int | None = None,
) -> list[R]:
    """Decode the records of the batch at `position`, in offset order.

    Args:
        make: called with the fields of `Record` in their order; what it returns is the record.
        buffer: holds the whole batch; keys and values are copied out of it.
        position: of the first byte of the batch.
        header: what `check_batch` returned for it; None: the batch is checked here, CRC included.
        max_decompressed_bytes: largest records section a compressed batch may open to.
        max_ratio: see `compression.open_compressed`.
        from_offset: leave out records below this offset; the rest of them is not looked at.

    Raises:
        CorruptBatch: the batch or one of its records fails a check; `position` is the batch's.
        TooLarge: a bound on size, ratio or count is passed.
        CodecMissing: compressed with snappy or zstd.
    """
    if header is None:
        header = check_batch(buffer, position, max_bytes=len(buffer))
    data = bytes(memoryview(buffer)[position + HEADER_SIZE : position + header.size_bytes])
    try:
        if header.codec != CODEC_NONE:
            data = open_compressed(
                header.codec, data, max_bytes=max_decompressed_bytes, max_ratio=max_ratio
            )
        if header.record_count * MIN_RECORD_BYTES > len(data):
            raise CorruptBatch(f"{header.record_count} records do not fit {len(data)} bytes")
        return _read_records(data, header, -1 if from_offset is None else from_offset, make)
    except IndexError:
        raise CorruptBatch("the records end inside a record", position=position) from None
    except CorruptBatch as error:
        error.position = position
        raise


# The one long function of the codec: a call per field would cost more than all of its work.
def _read_records(  # noqa: C901, PLR0912, PLR0915
    data: bytes, header: BatchHeader, from_offset: int, make: Callable[..., R]
) -> list[R]:
    """Read all records; IndexError when `data` ends inside one."""
    records: list[R] = []
    base_time = header.max_timestamp if header.has_append_time else header.base_timestamp
    headers_left = MAX_HEADER_COUNT
    delta, position = -1, 0
    for _ in range(header.record_count):
        raw = data[position]
        position += 1
        if raw > 127:
            second = data[position]
            if second < 128:
                raw = raw & 127 | second << 7
                position += 1
            else:
                raw, position = read_raw_varint(data, position - 1, MAX_VARINT32_BYTES)
        end = position + (raw >> 1)
        if raw & 1 or end > len(data):
            raise CorruptBatch("a record passes the end of the records section")
        following = delta + 1
        if following < _TABLE_SIZE and data.startswith(PLAIN_HEADS[following], position):
            delta = following
            position += 4 if delta < 64 else 5
            timestamp = base_time
            key = None
        else:
            timestamp, delta, key, position = _read_head(data, position, end, delta, header)
        offset = header.base_offset + delta
        if offset < from_offset:
            position = end
            continue
        raw = data[position]
        if raw > 127 and data[position + 1] < 128:
            raw = raw & 127 | data[position + 1] << 7
            position += 2
        elif raw < 128:
            position += 1
        else:
            raw, position = read_raw_varint(data, position, MAX_VARINT32_BYTES)
        stop = position + (raw >> 1)
        if stop > end or (raw & 1 and raw > 1):
            raise CorruptBatch("a value has a bad length")
        value = None if raw == 1 else data[position:stop]
        position = stop
        if data[position]:
            headers, position = _read_headers(data, position, end, headers_left)
            headers_left -= len(headers)
        else:
            position += 1
            headers = ()
        if position != end:
            raise CorruptBatch("a record does not end where its length says")
        records.append(make(offset, timestamp, key, value, headers))
    if delta > header.last_offset_delta:
        raise CorruptBatch("an offset passes the last one of the header")
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record")
    return records


def _read_head(
    data: bytes, position: int, end: int, previous: int, header: BatchHeader
) -> tuple[int, int, bytes | None, int]:
    """Read attributes to key of a record: timestamp, offset delta, key, position behind."""
    if data[position]:
        raise CorruptBatch(f"record attributes {data[position]:#04x} are not known")
    raw = data[position + 1]
    position += 2
    if raw > 127:
        if data[position] < 128:
            raw = raw & 127 | data[position] << 7
            position += 1
        else:
            raw, position = read_raw_varint(data, position - 1, MAX_VARINT64_BYTES)
    timestamp = header.base_timestamp + ((raw >> 1) ^ -(raw & 1))
    if header.attributes & LOG_APPEND_TIME_FLAG:
        timestamp = header.max_timestamp
    if not -_INT64_END <= timestamp < _INT64_END:
        raise CorruptBatch("a timestamp passes 64 bits")
    raw = data[position]
    position += 1
    if raw > 127:
        if data[position] < 128:
            raw = raw & 127 | data[position] << 7
            position += 1
        else:
            raw, position = read_raw_varint(data, position - 1, MAX_VARINT32_BYTES)
    delta = raw >> 1
    if raw & 1 or delta <= previous:
        raise CorruptBatch(f"offset delta {(raw >> 1) ^ -(raw & 1)} follows {previous}")
    raw = data[position]
    stop = position + 1 + (raw >> 1)
    if raw & 0x81 or stop > end:
        key, position = _read_field(data, position, end)
        return timestamp, delta, key, position
    return timestamp, delta, data[position + 1 : stop], stop


def _read_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a key or value with its length; it must end at `end` or before."""
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = read_raw_varint(data, position - 1, MAX_VARINT32_BYTES)
    if raw == 1:
        return None, position
    stop = position + (raw >> 1)
    if raw & 1 or stop > end:
        raise CorruptBatch("a key or value has a bad length")
    return data[position:stop], stop


def _read_headers(
    data: bytes, position: int, end: int, most: int
) -> tuple[tuple[Header, ...], int]:
    """Read the headers of one record, at most `most`; they must end at `end` or before."""
    raw = data[position]
    position += 1
    if raw > 127:
        raw, position = read_raw_varint(data, position - 1, MAX_VARINT32_BYTES)
    count = raw >> 1
    if raw & 1 or 2 * count > end - position:
        raise CorruptBatch("a record has a bad number of headers")
    if count > most:
        raise TooLarge(f"over {MAX_HEADER_COUNT} headers in one batch", hint="skip the batch")
    headers: list[Header] = []
    for _ in range(count):
        raw_name, position = _read_field(data, position, end)
        if raw_name is None:
            raise CorruptBatch("a header has no name")
        try:
            name = raw_name.decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"a header name is not UTF-8: {error}") from error
        content, position = _read_field(data, position, end)
        headers.append((name, content))
    return tuple(headers), position
