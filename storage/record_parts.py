"""Columns of records to a list of byte parts, for one join.

Owns the encoder's two paths: any records, and the plain ones (no key, no headers, the base
timestamp) that make up most of a fast producer's batches. Must not know batches; limits are
checked before (`storage.record_codec`).

Invariants:
    P1  Both paths give the same bytes for the same records.
    P2  The plain path calls no Python function per record: columns go through tables.

Source: the record layout of `storage.record_codec`.
"""

from collections.abc import Sequence
from itertools import repeat

from ringlog.storage.varint import VARINTS, encode_varint

Header = tuple[str, bytes | None]
"""Name and value of one header."""

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
        body = [
            b"\x00\x00" if time_delta == 0 else b"\x00" + encode_varint(time_delta),
            VARINTS[offset_delta] if offset_delta < _TABLE_SIZE else encode_varint(offset_delta),
        ]
        for field in (key, value):
            if field is None:
                body.append(_NULL)
            else:
                size = len(field)
                body.append(VARINTS[size] if size < _TABLE_SIZE else encode_varint(size))
                body.append(field)
        if record_headers:
            _add_headers(body, record_headers)
        else:
            body.append(_NO_HEADERS)
        size = sum(map(len, body))
        parts.append(VARINTS[size] if size < _TABLE_SIZE else encode_varint(size))
        parts += body
    return parts


def _add_headers(body: list[bytes], headers: Sequence[Header]) -> None:
    body.append(encode_varint(len(headers)))
    for name, content in headers:
        raw_name = name.encode()
        body += (encode_varint(len(raw_name)), raw_name)
        if content is None:
            body.append(_NULL)
        else:
            body += (encode_varint(len(content)), content)
