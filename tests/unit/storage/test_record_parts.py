"""The encoder's two paths give the same bytes."""

import pytest

from ringlog.storage.record_parts import PLAIN_HEADS, encode_parts, plain_parts

SIZES = [0, 1, 57, 58, 63, 64, 65, 127, 128, 2047, 2048, 8191, 8192, 70_000]


def general(values: list[bytes | None]) -> bytes:
    return b"".join(encode_parts(values, None, None, None, None))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_both_paths_agree_on_values_of_one_size(size: int, count: int) -> None:
    values: list[bytes | None] = [bytes([i % 251]) * size for i in range(count)]
    assert b"".join(plain_parts(values)) == general(values)


@pytest.mark.parametrize("count", [8191, 8192, 8193, 9000])
def test_both_paths_agree_where_offset_deltas_need_a_third_byte(count: int) -> None:
    values: list[bytes | None] = [b"v" * (i % 70) for i in range(count)]
    assert b"".join(plain_parts(values)) == general(values)


@pytest.mark.parametrize("odd_one", [None, b"x" * 5000])
@pytest.mark.parametrize("place", [0, 5, 8191, 8192])
def test_one_record_that_is_not_short_is_encoded_all_the_same(
    odd_one: bytes | None, place: int
) -> None:
    values: list[bytes | None] = [b"v"] * 8200
    values[place] = odd_one
    assert b"".join(plain_parts(values)) == general(values)


def test_a_plain_record_is_written_as_the_format_says() -> None:
    # length 8, attributes, time, offset, no key, value of 2, no headers; then offset 1
    assert b"".join(plain_parts([b"hi", b""])).hex(" ") == (
        "10 00 00 00 01 04 68 69 00 0c 00 00 02 01 00 00"
    )


def test_plain_heads_are_attributes_time_offset_and_no_key() -> None:
    assert PLAIN_HEADS[0] == b"\x00\x00\x00\x01"
    assert PLAIN_HEADS[64] == b"\x00\x00\x80\x01\x01"
