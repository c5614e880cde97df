"""Target of `child_process`: hostile record batches, most of them with a CRC that fits.

A wrong CRC stops an input at the door, so nine of ten inputs get a right one and their damage
reaches the header checks, the frame reader or the record reader.
"""

import contextlib
import gzip
import random
from collections.abc import Callable

import lz4.frame
import msgspec

from ringlog.storage.errors import CodecMissing, CorruptBatch
from ringlog.storage.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    check_batch,
    check_for_append,
    pack_header,
    read_header,
)
from ringlog.storage.record_codec import decode_records, encode_batch
from ringlog.storage.varint import encode_varint

REFUSALS = (CorruptBatch, CodecMissing)
LIMIT_BYTES = 8 << 20
EDGES = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 63, 64, 127, 8191, 8192, 2**20, 2**31 - 1, 2**63 - 1]
PACKERS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (0, bytes),
    (1, lambda data: gzip.compress(data, 1)),
    (3, lambda data: lz4.frame.compress(data, block_linked=False)),
    (3, lambda data: lz4.frame.compress(data, store_size=True, content_checksum=True)),
    (3, lambda data: lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
]


def good_batch(rng: random.Random) -> bytes:
    count = rng.choice([1, 1, 2, 5, 70])
    keyed, titled, timed = (rng.random() < 0.5 for _ in range(3))
    return encode_batch(
        [
            None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 5, 70]))
            for _ in range(count)
        ],
        keys=[rng.choice([None, b"", b"key"]) for _ in range(count)] if keyed else None,
        headers=[[("n" * rng.randrange(3), None)] * rng.randrange(3) for _ in range(count)]
        if titled
        else None,
        timestamps=[rng.randrange(10**6) for _ in range(count)] if timed else 7,
        base_offset=rng.choice([0, 2**40]),
    )


def soup(rng: random.Random) -> bytes:
    """Varints and bytes in no order, small numbers most of the time."""
    return b"".join(
        encode_varint(rng.choice(EDGES) if rng.random() < 0.1 else rng.randrange(-2, 12))
        for _ in range(rng.randrange(60))
    )


def damaged(rng: random.Random, data: bytes) -> bytes:
    """A few bytes changed, added or taken away."""
    out = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        place = rng.randrange(len(out) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            out[place : place + 1] = bytes([rng.choice([0, 1, 2, 127, 128, 255])])
        elif kind == 1:
            out[place:place] = encode_varint(rng.choice(EDGES))
        elif kind == 2:
            del out[place : place + rng.randrange(1, 9)]
        else:
            out[place : place + 1] = rng.randbytes(1)
    return bytes(out)


def bomb(rng: random.Random) -> bytes:
    return bytes(rng.choice([1 << 20, 5 << 20, 40 << 20]))


def make(rng: random.Random, number: int) -> bytes:
    """One input; every two hundredth one is a bomb."""
    batch = good_batch(rng)
    if rng.random() < 0.1:
        return damaged(rng, batch)
    section = batch[HEADER_SIZE:]
    if number % 200 == 199:
        section = bomb(rng)
    elif rng.random() < 0.3:
        section = soup(rng)
    elif rng.random() < 0.6:
        section = damaged(rng, section)
    codec, pack = rng.choice(PACKERS[1:] if len(section) > LIMIT_BYTES else PACKERS)
    section = pack(section)
    if codec and rng.random() < 0.4:
        section = damaged(rng, section)
    return with_header(rng, read_header(batch), section, codec)


def with_header(rng: random.Random, header: BatchHeader, section: bytes, codec: int) -> bytes:
    changes: dict[str, int] = {"attributes": codec, "size_bytes": HEADER_SIZE + len(section)}
    if rng.random() < 0.1:
        changes["attributes"] = rng.randrange(64)
    if rng.random() < 0.3:
        count = rng.choice([1, 2, 3, 100, 2**20])
        changes.update(record_count=count, last_offset_delta=count - 1 + rng.randrange(2))
    if rng.random() < 0.1:
        changes["base_timestamp"] = rng.choice(EDGES)
    return pack_header(msgspec.structs.replace(header, **changes), section) + section


def feed(data: bytes) -> None:
    """All that reads a batch: the broker's check, the log's, the decoder."""
    for check in (
        lambda: check_for_append(data, max_bytes=LIMIT_BYTES, now_ms=10**6),
        lambda: check_batch(data, max_bytes=LIMIT_BYTES),
        lambda: decode_records(data, from_offset=2**40 + 2, max_decompressed_bytes=LIMIT_BYTES),
    ):
        with contextlib.suppress(*REFUSALS):
            check()
    decode_records(data, max_decompressed_bytes=LIMIT_BYTES)
