"""Zigzag varints: known encodings, the table, and what a reader refuses."""

import pytest

from ringlog.storage.errors import CorruptBatch
from ringlog.storage.varint import (
    MAX_VARINT32_BYTES,
    MAX_VARINT64_BYTES,
    VARINTS,
    encode_varint,
    read_raw_varint,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    raw, position = read_raw_varint(bytes.fromhex(encoded), 0, MAX_VARINT64_BYTES)
    assert (raw >> 1) ^ -(raw & 1) == value
    assert position == len(encoded) // 2


def test_the_table_holds_the_same_encodings() -> None:
    assert len(VARINTS) == 8192
    assert all(VARINTS[value] == encode_varint(value) for value in range(8192))


def test_reading_stops_behind_the_integer() -> None:
    assert read_raw_varint(b"\xff\x80\x01\x7f", 1, MAX_VARINT32_BYTES) == (128, 3)


@pytest.mark.parametrize("size", [MAX_VARINT32_BYTES, MAX_VARINT64_BYTES])
def test_an_integer_without_end_is_refused_at_its_bound(size: int) -> None:
    with pytest.raises(CorruptBatch, match=f"longer than {size} bytes"):
        read_raw_varint(b"\x80" * 1000, 0, size)


@pytest.mark.parametrize(("encoded", "size"), [("ffffffff10", 5), ("ffffffffffffffffff02", 10)])
def test_an_integer_wider_than_its_width_is_refused(encoded: str, size: int) -> None:
    with pytest.raises(CorruptBatch, match="wider"):
        read_raw_varint(bytes.fromhex(encoded), 0, size)


def test_data_that_ends_inside_an_integer_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        read_raw_varint(b"\x80\x80", 0, MAX_VARINT32_BYTES)
