"""The consumer against a real broker: what an application sees."""

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringlog.client import Admin, BatchProducer, Consumer, Record, TopicPartition
from ringlog.client.errors import (
    ClientClosed,
    CorruptRecord,
    DeserializationFailed,
    InvalidArgument,
    OffsetOutOfRange,
    RinglogError,
    UnknownPartition,
    UnknownTopic,
)
from ringlog.client.fetcher import Lost
from tests.cluster.test_broker_process import BrokerProcess
from tests.features.broker_on_loopback import broker_on_loopback

PATIENCE_S = 20


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    with broker_on_loopback(folder) as endpoint:
        yield str(endpoint)


def fill(address: str, topic: str, count: int, partitions: int = 1) -> None:
    """`count` records per partition; value `<partition>:<offset>`, timestamp 1,000 x offset."""
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=partitions)
    with BatchProducer(address, batch_size=7) as producer:
        for offset in range(count):
            for partition in range(partitions):
                producer.send(
                    topic,
                    b"%d:%d" % (partition, offset),
                    partition=partition,
                    timestamp_ms=1000 * offset,
                )
        producer.flush(PATIENCE_S)


def take(consumer: Consumer, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        got = consumer.poll(PATIENCE_S, count - len(records))
        assert got, f"{len(records)} of {count} records within {PATIENCE_S} s"
        records += got
    return records


def test_all_records_of_all_partitions_in_order(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "many", 100, partitions=5)
        with Consumer("many", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            records = take(consumer, 500)
            assert all(r.value == b"%d:%d" % (r.partition, r.offset) for r in records)
            assert Counter(r.partition for r in records) == dict.fromkeys(range(5), 100)
            for partition in range(5):
                offsets = [r.offset for r in records if r.partition == partition]
                assert offsets == list(range(100))
            assert consumer.poll(0.1) == []
            assert set(consumer.lag().values()) == {0}
            assert consumer.health().state == "ok"


def test_the_latest_is_fixed_when_the_constructor_returns(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 10)
        with Consumer("t", bootstrap_servers=address) as consumer, BatchProducer(address) as sender:
            sender.send("t", b"new").result(PATIENCE_S)
            assert [r.value for r in take(consumer, 1)] == [b"new"]


def test_seek_pause_and_positions(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 50, partitions=2)
        one, two = TopicPartition("t", 0), TopicPartition("t", 1)
        with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            consumer.assign([one, two])
            consumer.pause(two)
            assert {r.partition for r in take(consumer, 50)} == {0}
            assert consumer.poll(0.1) == []
            assert consumer.paused == {two}
            assert (consumer.position(*one), consumer.position(*two)) == (50, 0)
            consumer.seek("t", 0, 45)
            assert [r.offset for r in take(consumer, 5)] == [45, 46, 47, 48, 49]
            consumer.seek_to_timestamp(20_000, one)
            assert take(consumer, 1)[0].offset == 20
            consumer.seek_to_end(one)
            assert consumer.position(*one) == 50
            consumer.seek_to_beginning(one)
            assert take(consumer, 1)[0].offset == 0
            consumer.resume(two)
            consumer.seek_to_end(one)
            assert {r.partition for r in take(consumer, 50)} == {1}
            assert consumer.offsets_for_times({one: 30_000, two: 10**9}) == {one: 30, two: None}
            assert consumer.end_offsets([one]) == {one: 50}
            assert consumer.beginning_offsets([two]) == {two: 0}


def test_iteration_moves_the_position_record_by_record(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 30)
        with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            for record in consumer:
                assert consumer.position("t", 0) == record.offset + 1
                if record.offset == 4:
                    consumer.seek("t", 0, 20)
                if record.offset == 22:
                    consumer.pause()
                    assert consumer.poll(0.1) == []
                    consumer.resume()
                if record.offset == 29:
                    break
                assert record.offset in {*range(5), *range(20, 30)}


def test_replay_is_bounded_and_beside_the_positions(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 40, partitions=2)
        with Consumer("t", bootstrap_servers=address) as consumer:
            by_offset = [
                (r.partition, r.offset) for r in consumer.replay("t", {0: 35}, {0: 38, 1: 2})
            ]
            assert sorted(by_offset) == [(0, 35), (0, 36), (0, 37), (1, 0), (1, 1)]
            by_time = [r.offset for r in consumer.replay("t", 10_000, 12_000)]
            assert sorted(by_time) == [10, 10, 11, 11]
            assert len(list(consumer.replay("t"))) == 80
            assert consumer.position("t", 0) == 40


def test_a_lost_range_is_an_event(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 20)
        with Admin(address) as admin:
            admin.delete_records("t", 0, 12)
        seen: list[Lost] = []
        with Consumer(
            "t", bootstrap_servers=address, auto_offset_reset="earliest", on_lost=seen.append
        ) as consumer:
            consumer.seek("t", 0, 3)
            assert take(consumer, 1)[0].offset == 12
            assert seen == [Lost(TopicPartition("t", 0), 3, 12)]
        with Consumer("t", bootstrap_servers=address, auto_offset_reset="none") as consumer:
            consumer.seek("t", 0, 3)
            with pytest.raises(OffsetOutOfRange, match="12"):
                consumer.poll(PATIENCE_S)
            assert consumer.health().state == "stuck"
            consumer.seek("t", 0, 19)
            assert take(consumer, 1)[0].offset == 19


def test_a_deserializer_that_raises_stops_before_its_record(tmp_path: Path) -> None:
    def picky(value: bytes | None) -> str:
        assert value is not None
        if value == b"0:5":
            raise ValueError("no five")
        return value.decode()

    with (
        serving(tmp_path) as address,
        Consumer(bootstrap_servers=address, value_deserializer=picky) as consumer,
    ):
        fill(address, "t", 8)
        consumer.subscribe("t")
        consumer.seek_to_beginning()
        assert [r.value for r in take(consumer, 5)] == [f"0:{number}" for number in range(5)]
        for _ in range(2):
            with pytest.raises(DeserializationFailed, match="seek to offset 6") as caught:
                consumer.poll(PATIENCE_S)
            assert isinstance(caught.value.record, Record)
            assert caught.value.record.value == b"0:5"
        consumer.seek("t", 0, 6)
        assert [r.value for r in take(consumer, 2)] == ["0:6", "0:7"]


def test_new_partitions_are_read_from_their_first_record(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 1)
        assigned: list[list[TopicPartition]] = []
        with Consumer(bootstrap_servers=address, metadata_max_age_ms=100) as consumer:
            consumer.subscribe("t", on_assign=assigned.append)
            with Admin(address) as admin:
                admin.add_partitions("t", 3)
            with BatchProducer(address) as producer:
                producer.send("t", b"early", partition=2).result(PATIENCE_S)
            assert [(r.partition, r.offset) for r in take(consumer, 1)] == [(2, 0)]
            assert [TopicPartition("t", 1), TopicPartition("t", 2)] in assigned


def test_kill_9_of_the_broker_under_a_consumer(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    address = broker.endpoint()
    fill(address, "t", 500)
    with Consumer(
        "t", bootstrap_servers=address, auto_offset_reset="earliest", max_partition_fetch_bytes=500
    ) as consumer:
        records = take(consumer, 50)
        os.kill(broker.process.pid, signal.SIGKILL)
        broker.process.communicate(timeout=30)
        again = BrokerProcess(tmp_path, listen=address)
        again.endpoint()
        records += take(consumer, 450)
        assert [r.offset for r in records] == list(range(500))
    again.process.terminate()
    assert again.end()[0] == 0


def test_damaged_bytes_never_reach_the_application(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    address = broker.endpoint()
    fill(address, "good", 5)
    fill(address, "bad", 500)
    with Consumer(
        ["bad", "good"], bootstrap_servers=address, auto_offset_reset="earliest"
    ) as consumer:
        take(consumer, 505)
        (segment,) = tmp_path.glob("**/bad-0/*.log")
        with segment.open("r+b") as file:
            file.seek(segment.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        consumer.seek_to_beginning()
        records: list[Record] = []
        error = None
        while error is None:
            try:
                records += consumer.poll(PATIENCE_S)
            except RinglogError as caught:
                error = caught
        assert error.code in {"PARTITION_DAMAGED", CorruptRecord.__name__}
        offsets = [record.offset for record in records if record.topic == "bad"]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) < 500
        assert all(record.value == b"0:%d" % record.offset for record in records)
        goods = sum(record.topic == "good" for record in records)
        take(consumer, 5 - goods)
    broker.process.terminate()
    assert broker.end()[0] == 0


def test_arguments_and_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        with pytest.raises(UnknownTopic, match="ringlog topic create"):
            Consumer("nope", bootstrap_servers=address)
        with pytest.raises(InvalidArgument, match="groups are not built"):
            Consumer("nope", bootstrap_servers=address, group_id="g")
        with pytest.raises(InvalidArgument, match="earliest, latest, none"):
            Consumer(
                "nope",
                bootstrap_servers=address,
                auto_offset_reset="middle",  # type: ignore[arg-type]  # wrong on purpose
            )
        consumer = Consumer(bootstrap_servers=address)
        with pytest.raises(UnknownPartition, match="assign or subscribe"):
            consumer.seek("t", 0, 0)
        fill(address, "t", 1)
        consumer.subscribe("t")
        failed: list[RinglogError] = []

        def wait() -> None:
            try:
                consumer.poll(PATIENCE_S)
            except ClientClosed as error:
                failed.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        consumer.close()
        waiter.join(PATIENCE_S)
        assert len(failed) == 1
        consumer.close()
