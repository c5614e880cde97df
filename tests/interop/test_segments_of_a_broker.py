"""The segment files of a stopped broker, read by the decoders of other Kafka clients.

A thousand batches and more go in through the broker: from our producer, and from batches that
kafka-python and aiokafka built. The files are then read by all three.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from ringlog.client import BatchProducer, Consumer
from ringlog.storage.record_codec import Record
from ringlog.storage.types import Offset
from tests.cluster.core_client import CoreClient
from tests.features.broker_on_loopback import broker_on_loopback
from tests.interop.foreign import (
    CODEC_LZ4,
    CODEC_NONE,
    assert_all_read,
    write_with_aiokafka,
    write_with_kafka_python,
)

MIB = 1 << 20
PATIENCE_S = 60
OUR_BATCHES = 1000
VALUES: tuple[bytes | None, ...] = (None, b"", b"x", b"text", bytes(range(256)), b"ab" * 40_000)
KEYS: tuple[bytes | None, ...] = (None, b"", b"key", b"\x00\xff")
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("trace_id", b"abc"),),
    (("empty", b""), ("none", None), ("näme", b"\x00")),
)

Sent = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def ours(address: str, draw: random.Random) -> list[list[Sent]]:
    """Send from four producers in turn, each batch by itself; what went in, batch by batch."""
    batches: list[list[Sent]] = []
    producers = [
        BatchProducer(address, compression=compression)
        for compression in (None, "lz4", None, "lz4")
    ]
    for number in range(OUR_BATCHES):
        producer = producers[number % len(producers)]
        records: list[Sent] = []
        for _ in range(draw.randrange(1, 6)):
            value = draw.choice(VALUES)
            if number % 250 in {0, 1}:
                # Uncompressed and compressed, both above a frame block of 64 KiB.
                value = draw.randbytes(MIB // 2) * 2
            records.append((draw.choice(KEYS), value, draw.choice(HEADERS)))
        for key, value, headers in records:
            producer.send("files", value, key=key, headers=headers, partition=0)
        producer.flush(PATIENCE_S)
        batches.append(records)
    for producer in producers:
        producer.close(PATIENCE_S)
    return batches


def theirs(address: str, draw: random.Random) -> list[list[Sent]]:
    """Send batches that other clients built."""
    batches: list[list[Sent]] = []
    with CoreClient(address) as client:
        for number in range(40):
            records: list[Sent] = [
                (draw.choice(KEYS), draw.choice(VALUES), draw.choice(HEADERS)) for _ in range(5)
            ]
            stored = [
                Record(Offset(place), 1_700_000_000_000 + place, key, value, headers)
                for place, (key, value, headers) in enumerate(records)
            ]
            write = write_with_aiokafka if number % 2 else write_with_kafka_python
            client.produce(
                "files", write(stored, codec=CODEC_LZ4 if number % 4 < 2 else CODEC_NONE)
            )
            batches.append(records)
    return batches


def test_a_thousand_batches_of_a_stopped_broker(tmp_path: Path) -> None:
    draw = random.Random(20)
    with broker_on_loopback(tmp_path, max_message_bytes=16 * MIB) as endpoint:
        address = str(endpoint)
        with CoreClient(address) as client:
            client.create_topic("files", config={"segment.bytes": str(8 * MIB)})
        sent = [record for batch in ours(address, draw) + theirs(address, draw) for record in batch]
        with Consumer("files", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            read: list[Sent] = []
            while len(read) < len(sent):
                got = consumer.poll(PATIENCE_S)
                assert got, f"{len(read)} of {len(sent)} records came"
                read += [(record.key, record.value, record.headers) for record in got]
    assert read == sent
    segments = sorted((tmp_path / "data" / "files-0").glob("*.log"))
    assert len(segments) > 1
    batches = [batch for segment in segments for batch in assert_all_read(segment.read_bytes())]
    assert len(batches) >= OUR_BATCHES
    assert [plain(record) for batch in batches for record in batch.records] == sent
    assert offsets(batches[-1].records)[-1] == len(sent) - 1
    assert len({batch.producer_id for batch in batches}) == 5  # four of ours, and none
    assert {batch.attributes & 7 for batch in batches} == {CODEC_NONE, CODEC_LZ4}


def plain(record: Record) -> Sent:
    return record.key, record.value, record.headers


def offsets(records: Sequence[Record]) -> list[int]:
    return [record.offset for record in records]
