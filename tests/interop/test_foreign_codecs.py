"""Batches of ours are read by kafka-python and aiokafka, and theirs by ours.

The foreign decoders share no code with ours. What a stopped broker left on disk goes through
the same comparison (`foreign.assert_all_read`).
"""

import random

import pytest
from hypothesis import given

from ringlog.storage.record_batch import check_for_append, read_header
from ringlog.storage.record_codec import Record, encode_batch, encode_records
from ringlog.storage.types import NO_TIMESTAMP, Offset
from tests.interop import foreign
from tests.interop.foreign import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, Producer
from tests.property.record_strategies import record_lists

NOW_MS = 1_700_000_000_000
SOME_PRODUCER = Producer(producer_id=2**62 + 5, epoch=17, sequence=2**31 - 1)
ROWS: dict[str, list[tuple[bytes | None, bytes | None]]] = {
    "null": [(None, None)],
    "empty": [(b"", b"")],
    "one_mebibyte": [(b"key", random.Random(5).randbytes(1 << 20)), (None, b"behind it")],
    "large_key": [(b"k" * 70_000, None)],
    "varint_edges": [(b"k" * size, b"v" * size) for size in (63, 64, 8191, 8192)],
    "many": [(None, b"%d" % number) for number in range(9000)],
    "above_one_lz4_block": [(b"k", b"some text that repeats %d" % n) for n in range(9000)],
}
HEADERS: list[tuple[str, bytes | None]] = [("", b""), ("trace", None), ("naïve-ключ", b"\xff\0")]


def records_of(name: str, *, with_headers: bool) -> list[Record]:
    return [
        Record(
            Offset(number),
            NOW_MS + number * 37 % 5000,
            key,
            value,
            tuple(HEADERS[: number % 4]) if with_headers else (),
        )
        for number, (key, value) in enumerate(ROWS[name])
    ]


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("with_headers", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_ours_are_read_by_theirs(name: str, *, with_headers: bool, compression: str | None) -> None:
    records = records_of(name, with_headers=with_headers)
    batch = encode_records(
        records,
        compression=compression,
        producer_id=SOME_PRODUCER.producer_id,
        producer_epoch=SOME_PRODUCER.epoch,
        base_sequence=SOME_PRODUCER.sequence,
    )
    (read,) = foreign.assert_all_read(batch)
    assert list(read.records) == records
    assert read.producer_id == SOME_PRODUCER.producer_id


@pytest.mark.parametrize("size", [0, 10, 3000])
def test_ours_from_the_plain_path_are_read_by_theirs(size: int) -> None:
    values = [b"v" * size] * 9000
    (read,) = foreign.assert_all_read(encode_batch(values, timestamps=NOW_MS, base_offset=10**12))
    assert [record.value for record in read.records] == values
    assert read.records[-1].offset == 10**12 + 8999


def test_lz4_frames_of_several_blocks_are_read_by_theirs() -> None:
    batch = encode_records(records_of("above_one_lz4_block", with_headers=False), compression="lz4")
    assert read_header(batch).codec == CODEC_LZ4
    (read,) = foreign.read_with_kafka_python(batch)
    assert sum(len(record.value or b"") for record in read.records) > 3 * 65_536


def test_a_file_of_many_batches_is_read_by_theirs() -> None:
    rng = random.Random(11)
    data = b""
    offset = 0
    for number in range(100):
        values = [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 20))]
        data += encode_batch(values, timestamps=NOW_MS + number, base_offset=offset, leader_epoch=3)
        offset += len(values)
    batches = foreign.assert_all_read(data + data[:70])
    assert sum(len(batch.records) for batch in batches) == offset


@pytest.mark.parametrize("producer", [Producer(), SOME_PRODUCER])
@pytest.mark.parametrize(
    ("writer", "codec"),
    [
        (foreign.write_with_kafka_python, CODEC_NONE),
        (foreign.write_with_kafka_python, CODEC_GZIP),
        (foreign.write_with_kafka_python, CODEC_LZ4),
        (foreign.write_with_aiokafka, CODEC_NONE),
        (foreign.write_with_aiokafka, CODEC_GZIP),
    ],
)
@pytest.mark.parametrize("name", ROWS)
def test_theirs_are_read_and_taken_by_ours(
    name: str, writer: foreign.Writer, codec: int, producer: Producer
) -> None:
    records = records_of(name, with_headers=True)
    batch = writer(records, codec=codec, producer=producer)
    check_for_append(batch, max_bytes=foreign.BATCH_LIMIT_BYTES, now_ms=NOW_MS)
    (read,) = foreign.assert_all_read(batch)
    assert list(read.records) == records
    assert read.producer_id == producer.producer_id


@given(records=record_lists())
def test_any_records_are_written_byte_for_byte_as_theirs(records: list[Record]) -> None:
    renumbered = [
        Record(Offset(number), record.timestamp, record.key, record.value, record.headers)
        for number, record in enumerate(records)
    ]
    ours = encode_records(renumbered)
    # kafka-python writes leader epoch 0 into a produced batch, which lies outside the CRC.
    theirs = foreign.write_with_kafka_python(renumbered)
    assert ours[16:] == theirs[16:]
    if renumbered[0].timestamp != NO_TIMESTAMP:
        # aiokafka's builder takes a first timestamp of -1 for "not set yet" and loses it.
        assert foreign.write_with_aiokafka(renumbered) == ours
    foreign.assert_all_read(ours)
