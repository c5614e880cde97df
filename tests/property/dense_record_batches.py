"""Target of `child_process`: valid batches that cost a reader the most memory per byte.

Empty records and empty headers, as many as a batch may have, plain and compressed, under the
default bounds. Numbers 1 and 2 are refused; from 3 on they take a second or
two each.
"""

import random

import lz4.frame
import msgspec

from ringlog.storage.errors import CorruptBatch
from ringlog.storage.record_batch import HEADER_SIZE, MAX_RECORD_COUNT, pack_header, read_header
from ringlog.storage.record_codec import MAX_HEADER_COUNT, decode_records, encode_batch
from ringlog.storage.varint import encode_varint

REFUSALS = (CorruptBatch,)


def records_section(count: int, tail: bytes) -> bytes:
    """`count` records without key; `tail` is value and headers. Built in place, in little room."""
    section = bytearray()
    for number in range(count):
        body = b"\0\0" + encode_varint(number) + b"\x01" + tail
        section += encode_varint(len(body)) + body
    return bytes(section)


def headers_tail(count: int) -> bytes:
    """A null value and `count` headers of two bytes: an empty name, no value."""
    return b"\x01" + encode_varint(count) + b"\0\x01" * count


def batch(section: bytes, count: int, *, packed: bool = True) -> bytes:
    """A batch of `count` records with a CRC that fits."""
    if packed:
        section = lz4.frame.compress(section, block_linked=False, store_size=False)
    header = msgspec.structs.replace(
        read_header(encode_batch([b""])),
        attributes=3 if packed else 0,
        size_bytes=HEADER_SIZE + len(section),
        record_count=count,
        last_offset_delta=count - 1,
    )
    return pack_header(header, section) + section


def make(rng: random.Random, number: int) -> bytes:
    """The inputs are fixed; `rng` decides nothing."""
    if number == 0:
        return batch(records_section(1, headers_tail(MAX_HEADER_COUNT)), 1)
    if number == 1:
        return batch(records_section(1, headers_tail(MAX_HEADER_COUNT + 1)), 1)
    if number == 2:
        return batch(bytes(60 << 20), MAX_RECORD_COUNT)
    if number == 3:
        named = b"\x02v\x04" + b"\x04ab\x01" * 2
        return batch(records_section(MAX_RECORD_COUNT // 2, named), MAX_RECORD_COUNT // 2)
    empty = records_section(MAX_RECORD_COUNT, b"\x01\0")
    return batch(empty, MAX_RECORD_COUNT, packed=number == 4)


def feed(data: bytes) -> None:
    """Decode as a consumer does; the ratio bound is not what is tested here."""
    decode_records(data, max_ratio=10_000)
