"""Columns of records to a list of byte parts, for one join.

Owns the encoder's two paths: any records, and the plain ones (no key, no headers, the base
timestamp) that make up most of a fast producer's batches. Must not know batches; limits are
checked before (`storage.record_codec`).

Invariants:
    RP1 Both paths give the same bytes for the same records.
    RP2 The plain path calls no Python function per record: columns go through tables.

Source: the record layout of `storage.record_codec`.
"""

from collections.abc import Sequence
from itertools import repeat

from ringlog.storage.varint import VARINTS, encode_varint

Header = tuple[str, bytes | None]
"""Name and value of one header."""

_ATTRIBUTES = b"\x00"
_NULL = b"\x01"
_NO_HEADERS = b"\x00"
_TABLE_SIZE = len(VARINTS)
_SHORT = 2048
"""Values below this size take the encoder's fast path."""
_ONE_BYTE = 64
"""Integers from here on need two bytes as a varint; from `_TABLE_SIZE` on, three."""

# The fast path writes a record as [length][attributes..key][value length][value], and the
# previous record's empty headers in front of the length, so that four parts make a record.
_LENGTHS = tuple(
    tuple(
        _NO_HEADERS + VARINTS[4 + offset_bytes + len(VARINTS[size]) + size]
        for size in range(_SHORT)
    )
    for offset_bytes in (1, 2)
)
PLAIN_HEADS = tuple(b"\x00\x00" + offset + _NULL for offset in VARINTS)
"""By offset delta: attributes 0, time delta 0, the delta, no key."""


def plain_parts(values: Sequence[bytes | None]) -> list[bytes]:
    """Parts of records that have no key, no headers and the base timestamp."""
    table_end = min(len(values), _TABLE_SIZE)
    short = values[:table_end]
    try:
        sizes = list(map(len, short))  # type: ignore[arg-type]  # None: caught below
    except TypeError:
        return encode_parts(values, None, None, None, None)
    if max(sizes) >= _SHORT:
        return encode_parts(values, None, None, None, None)
    near, far = _LENGTHS
    parts: list[bytes] = [b""] * (4 * table_end)
    lengths = [near[size] for size in sizes[:_ONE_BYTE]]
    lengths += [far[size] for size in sizes[_ONE_BYTE:]]
    lengths[0] = lengths[0][1:]
    parts[0::4] = lengths
    parts[1::4] = PLAIN_HEADS[:table_end]
    parts[2::4] = [VARINTS[size] for size in sizes]
    parts[3::4] = short  # type: ignore[assignment]  # no None among them
    parts.append(_NO_HEADERS)
    if table_end < len(values):
        rest = values[table_end:]
        parts += encode_parts(rest, None, None, None, range(table_end, len(values)))
    return parts


def encode_parts(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Sequence[Header]] | None,
    time_deltas: Sequence[int] | None,
    offset_deltas: Sequence[int] | None,
) -> list[bytes]:
    """Parts of any records. A column that is None is null, empty, 0, and 0 1 2 and so on."""
    count = len(values)
    parts: list[bytes] = []
    for value, key, record_headers, time_delta, offset_delta in zip(
        values,
        repeat(None, count) if keys is None else keys,
        repeat((), count) if headers is None else headers,
        repeat(0, count) if time_deltas is None else time_deltas,
        range(count) if offset_deltas is None else offset_deltas,
        strict=True,
    ):
        time = VARINTS[time_delta] if 0 <= time_delta < _TABLE_SIZE else encode_varint(time_delta)
        offset = (
            VARINTS[offset_delta] if offset_delta < _TABLE_SIZE else encode_varint(offset_delta)
        )
        key_bytes = value_bytes = b""
        if key is None:
            key_size = _NULL
        else:
            key_bytes, size = key, len(key)
            key_size = VARINTS[size] if size < _TABLE_SIZE else encode_varint(size)
        if value is None:
            value_size = _NULL
        else:
            value_bytes, size = value, len(value)
            value_size = VARINTS[size] if size < _TABLE_SIZE else encode_varint(size)
        tail = _encode_headers(record_headers) if record_headers else _NO_HEADERS
        body = (_ATTRIBUTES, time, offset, key_size, key_bytes, value_size, value_bytes, tail)
        size = sum(map(len, body))
        parts.append(VARINTS[size] if size < _TABLE_SIZE else encode_varint(size))
        parts += body
    return parts


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, content in headers:
        raw_name = name.encode()
        size = len(raw_name)
        parts += (VARINTS[size] if size < _TABLE_SIZE else encode_varint(size), raw_name)
        if content is None:
            parts.append(_NULL)
        else:
            size = len(content)
            parts += (VARINTS[size] if size < _TABLE_SIZE else encode_varint(size), content)
    return b"".join(parts)
