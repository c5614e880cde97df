"""The core over real sockets and real disks: round trips, kill -9, restart."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ringlog.client import messages as m
from ringlog.client.errors import (
    BatchTooLarge,
    CorruptBatch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StaleTopic,
    UnknownTopic,
)
from ringlog.storage.record_codec import Record, encode_batch
from ringlog.storage.types import Offset
from tests.cluster.core_client import CoreClient, records_in
from tests.cluster.test_broker_process import BrokerProcess

Start = Callable[[], BrokerProcess]


def batch(*values: bytes, sequence: int | None = None) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    if sequence is None:
        return encode_batch(values, timestamps=now_ms)
    return encode_batch(
        values, timestamps=now_ms, producer_id=9, producer_epoch=0, base_sequence=sequence
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker on one data directory, as often as asked; none outlives the test."""
    brokers: list[BrokerProcess] = []

    def begin() -> BrokerProcess:
        brokers.append(BrokerProcess(tmp_path))
        return brokers[-1]

    yield begin
    for broker in brokers:
        if broker.process.poll() is None:
            killed(broker)


def stopped(broker: BrokerProcess) -> None:
    broker.process.terminate()
    code, stderr = broker.end()
    assert code == 0, stderr


def killed(broker: BrokerProcess) -> None:
    broker.process.kill()
    broker.end()


def read_all(client: CoreClient, topic: str, offset: int = 0) -> list[Record]:
    records: list[Record] = []
    while True:
        _result, data = client.fetch(topic, offset)
        if not data:
            return records
        records += records_in(data)
        offset = records[-1].offset + 1


def test_records_go_in_and_come_out_in_order(start: Start) -> None:
    broker = start()
    with CoreClient(broker.endpoint()) as client:
        uuid = client.create_topic("orders", 2, {"segment.bytes": "16384"})
        sent = [b"%d" % i * 50 for i in range(200)]
        for i in range(0, 200, 4):
            assert client.produce("orders", batch(*sent[i : i + 4]), topic_uuid=uuid) == i
        assert [record.value for record in read_all(client, "orders")] == sent
        assert [record.offset for record in read_all(client, "orders", 100)] == list(
            range(100, 200)
        )
        assert client.delete_records("orders", 150) == 150
        with pytest.raises(OffsetOutOfRange, match=r"\[150, 200\]"):
            client.fetch("orders", 149)
        with pytest.raises(CorruptBatch):
            client.produce("orders", batch(b"x")[:-1])
        client.create_topic("small", 1, {"max.message.bytes": "1024"})
        with pytest.raises(BatchTooLarge, match=r"1024 are allowed"):
            client.produce("small", batch(bytes(2000)))
        assert client.list_offset("orders", m.LATEST) == 200
    stopped(broker)


def test_a_long_poll_ends_with_the_record_it_waited_for(start: Start) -> None:
    broker = start()
    endpoint = broker.endpoint()
    with CoreClient(endpoint) as reader, CoreClient(endpoint) as writer:
        writer.create_topic("t")
        target = m.FetchPartition("t", b"", 0, 0, 1 << 20)
        reader.send(m.ApiKey.FETCH, m.FetchRequest(20_000, 1, 1 << 20, [target]))
        assert reader.is_silent(200)
        begin = time.monotonic()
        writer.produce("t", batch(b"woken"))
        header, frames = reader.receive()
        assert time.monotonic() - begin < 5
        assert header.error is None
        assert [record.value for record in records_in(frames[0])] == [b"woken"]
    stopped(broker)


def test_a_topic_made_again_after_a_delete_is_another_one(start: Start) -> None:
    broker = start()
    with CoreClient(broker.endpoint()) as client:
        old = client.create_topic("t")
        client.produce("t", batch(b"old"))
        client.delete_topic("t")
        with pytest.raises(UnknownTopic):
            client.fetch("t", 0)
        new = client.create_topic("t")
        assert new != old
        with pytest.raises(StaleTopic):
            client.produce("t", batch(b"x"), topic_uuid=old)
        client.produce("t", batch(b"new"))
    stopped(broker)
    again = start()
    with CoreClient(again.endpoint()) as client:
        assert [record.value for record in read_all(client, "t")] == [b"new"]
        assert client.describe_topic("t").topic_uuid == new
    stopped(again)


def value_of(sequence: int) -> bytes:
    return b"%d" % sequence + b"x" * 100


def send_until_killed(client: CoreClient, first: int, count: int) -> dict[int, int]:
    """Produce `count` batches, eight in flight; returns offset -> sequence of those acked."""
    acked: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for sequence in range(first, first + count):
        body = m.ProduceRequest(-1, 30_000, [m.ProducePartition("t", b"", 0)])
        payload = batch(value_of(sequence), sequence=sequence)
        waiting[client.send(m.ApiKey.PRODUCE, body, [payload])] = sequence
        while len(waiting) >= 8:
            header, _frames = client.receive()
            (result,) = msgspec.msgpack.decode(header.body, type=m.ProduceResponse).results
            assert result.error is None
            acked[result.base_offset] = waiting.pop(header.correlation_id)
    return acked


def test_kill_9_loses_no_acked_record_and_duplicates_are_still_known(start: Start) -> None:
    acked: dict[int, int] = {}
    for life in range(3):
        broker = start()
        with CoreClient(broker.endpoint()) as client:
            if life == 0:
                client.create_topic("t", 1, {"segment.bytes": "16384"})
            # Up to seven batches behind the last ack may be stored or not: all are sent again.
            first = max(acked.values(), default=-1) + 1
            acked |= send_until_killed(client, first, 300)
            killed(broker)
    broker = start()
    with CoreClient(broker.endpoint()) as client:
        stored = {record.offset: record.value for record in read_all(client, "t")}
        for offset, sequence in acked.items():
            assert stored[Offset(offset)] == value_of(sequence)
        # In the order sent, without a gap, and none of them twice.
        assert list(stored.values()) == [value_of(sequence) for sequence in range(len(stored))]
        with pytest.raises(OutOfOrderSequence):
            client.produce("t", batch(b"x", sequence=100_000))
    stopped(broker)
