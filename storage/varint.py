"""Zigzag varints, the integers inside a record.

Owns the encoding of one integer. Must not know records.

Invariants:
    VI1 Reading never takes more than 5 bytes for a 32-bit integer or 10 for a 64-bit one, and
        never yields a value that does not fit its width.
    VI2 `VARINTS[n] == encode_varint(n)` for every `n` of the table.

Source: Kafka's record format (protobuf's ZigZag: 0, -1, 1, -2 become 0, 1, 2, 3; then base 128,
least significant group first, top bit set on all bytes but the last).
"""

from ringlog.storage.errors import CorruptBatch

MAX_VARINT32_BYTES = 5
MAX_VARINT64_BYTES = 10

_WIDTH_BITS = {MAX_VARINT32_BYTES: 32, MAX_VARINT64_BYTES: 64}


def encode_varint(value: int) -> bytes:
    """Encode a signed integer of at most 64 bits."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 0x80:
        return bytes((raw,))
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


VARINTS = (
    *(bytes((2 * value,)) for value in range(64)),
    *(bytes((2 * value & 0x7F | 0x80, value >> 6)) for value in range(64, 8192)),
)
"""Encodings of 0 to 8191: all that fit two bytes, which covers most lengths and deltas."""


def read_raw_varint(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """Read the unsigned (still zigzag) integer at `position`.

    Args:
        data: where to read; an end inside the integer raises IndexError, so that callers check
            the end of the data once and not per integer.
        position: of the first byte.
        max_bytes: `MAX_VARINT32_BYTES` or `MAX_VARINT64_BYTES`.

    Returns:
        The integer, and the position behind it.

    Raises:
        CorruptBatch: it is longer than `max_bytes` or wider than its width.
        IndexError: `data` ends inside it.
    """
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> _WIDTH_BITS[max_bytes]:
                raise CorruptBatch(f"a varint is wider than {_WIDTH_BITS[max_bytes]} bits")
            return raw, position
    raise CorruptBatch(f"a varint is longer than {max_bytes} bytes")
