"""The client core against a real broker: what is promised, over restarts and limits."""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringlog.broker.dispatch import PeerReply
from ringlog.client import Admin, BatchProducer, Delivery
from ringlog.client.errors import (
    BatchTooLarge,
    InvalidConfig,
    InvalidTopicName,
    TopicExists,
    UnknownTopic,
)
from ringlog.client.messages import Message, ProduceResponse
from ringlog.storage.record_codec import Record
from ringlog.storage.types import Buffer
from tests.cluster.core_client import CoreClient, records_in
from tests.cluster.test_broker_process import BrokerProcess
from tests.features.broker_on_loopback import broker_on_loopback


def records_of(address: str, topic: str, partition: int = 0) -> list[Record]:
    """Everything a partition holds, read without the code under test."""
    found: list[Record] = []
    with CoreClient(address) as client:
        while True:
            _, data = client.fetch(topic, len(found), partition=partition)
            records = records_in(data)
            if not records:
                return found
            found += records


def kill(broker: BrokerProcess) -> None:
    os.kill(broker.process.pid, signal.SIGKILL)
    broker.process.communicate(timeout=30)


def test_kill_9_under_a_producer_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Three kills while four batches and more are under way; the port stays the same."""
    broker = BrokerProcess(tmp_path)
    address = broker.endpoint()
    with Admin(address) as admin:
        admin.create_topic("orders", partitions=2)
    producer = BatchProducer(address, batch_size=64, retry_backoff_max_ms=200)
    deliveries: list[Delivery] = []
    go_on = threading.Event()
    go_on.set()

    def work() -> None:
        pace = threading.Event()
        while go_on.is_set():
            number = len(deliveries)
            deliveries.append(producer.send("orders", b"%08d" % number, partition=number % 2))
            if number % 50 == 0:
                pace.wait(0.001)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(3):
            begun = len(deliveries)
            while not (len(deliveries) > begun + 3000 and deliveries[begun].done()):
                go_on.wait(0.01)
                worker.join(0.01)
            kill(broker)
            broker = BrokerProcess(tmp_path, listen=address)
            assert broker.endpoint() == address
    finally:
        go_on.clear()
        worker.join(60)
    try:
        producer.close(timeout=60)
        for partition in range(2):
            sent = [b"%08d" % number for number in range(partition, len(deliveries), 2)]
            stored = records_of(address, "orders", partition)
            assert [record.value for record in stored] == sent
        offsets = [delivery.result().offset for delivery in deliveries]
        assert offsets == [number // 2 for number in range(len(deliveries))]
    finally:
        broker.process.terminate()
        assert broker.end()[0] == 0


def test_a_batch_over_the_topics_limit_is_divided_until_it_fits(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint:
        with Admin(str(endpoint)) as admin:
            admin.create_topic("small", config={"max.message.bytes": 2_000})
        with BatchProducer(str(endpoint)) as producer:
            deliveries = [producer.send("small", b"%0500d" % number) for number in range(60)]
            large = producer.send("small", b"x" * 5_000)
            after = producer.send("small", b"after")
            producer.flush(30)
            assert [one.result().offset for one in deliveries] == list(range(60))
            with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"):
                large.result()
            assert after.result().offset == 60
        values = [record.value for record in records_of(str(endpoint), "small")]
        assert values == [*(b"%0500d" % number for number in range(60)), b"after"]


def test_a_topic_deleted_and_made_again_gets_what_follows(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, Admin(str(endpoint)) as admin:
        admin.create_topic("orders")
        with BatchProducer(str(endpoint)) as producer:
            for number in range(5):
                assert producer.send("orders", b"old").result(10).offset == number
            admin.delete_topic("orders")
            admin.create_topic("orders")
            assert producer.send("orders", b"new").result(10).offset == 0
            admin.delete_topic("orders")
            with pytest.raises(UnknownTopic):
                producer.send("orders", b"gone").result(10)


def test_administration_of_a_topic(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, Admin(str(endpoint)) as admin:
        admin.create_topic("orders", partitions=2, config={"retention.ms": 86_400_000})
        assert admin.list_topics() == ["orders"]
        with pytest.raises(TopicExists):
            admin.create_topic("orders")
        with pytest.raises(InvalidTopicName):
            admin.create_topic("no/slash")
        with pytest.raises(InvalidConfig):
            admin.create_topic("other", config={"no.such.setting": 1})
        topic = admin.describe_topic("orders")
        assert topic.config["retention.ms"] == "86400000"
        assert topic.overrides == ("retention.ms",)
        admin.alter_topic("orders", {"retention.ms": None})
        assert admin.describe_topic("orders").overrides == ()
        admin.add_partitions("orders", 3)
        with BatchProducer(str(endpoint)) as producer:
            for _ in range(10):
                producer.send("orders", b"x", partition=2).result(10)
        partition = admin.describe_topic("orders").partitions[2]
        assert (partition.log_start, partition.high_watermark, partition.log_end) == (0, 10, 10)
        assert admin.delete_records("orders", 2, 4) == 4
        assert admin.describe_topic("orders").partitions[2].log_start == 4
        cluster = admin.describe_cluster()
        assert [broker.endpoint for broker in cluster.brokers] == [str(endpoint)]
        facts = admin.describe_broker(str(endpoint))
        assert facts.cluster_id == cluster.cluster_id
        assert facts.pid == admin.describe_broker(cluster.brokers[0].broker_id).pid
        admin.delete_topic("orders")
        assert admin.list_topics() == []
        with pytest.raises(UnknownTopic):
            admin.describe_topic("orders")


def test_records_survive_a_graceful_restart_with_the_producer_open(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    address = broker.endpoint()
    with Admin(address) as admin:
        admin.create_topic("orders")
    with BatchProducer(address, retry_backoff_max_ms=200) as producer:
        first = producer.send("orders", b"first").result(10)
        broker.process.terminate()
        assert broker.end()[0] == 0
        second = producer.send("orders", b"second")
        broker = BrokerProcess(tmp_path, listen=address)
        broker.endpoint()
        assert (first.offset, second.result(30).offset) == (0, 1)
    broker.process.terminate()
    assert broker.end()[0] == 0


def test_idempotence_holds_when_answers_get_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third answer to a produce request vanishes; the request times out and goes again."""
    answers: list[object] = []
    send = PeerReply.send

    def lossy(reply: PeerReply, body: Message, frames: Sequence[Buffer] = ()) -> None:
        if isinstance(body, ProduceResponse):
            answers.append(body)
            if len(answers) % 3 == 0:
                reply.discard()
                return
        send(reply, body, frames)

    monkeypatch.setattr(PeerReply, "send", lossy)
    with broker_on_loopback(tmp_path) as endpoint:
        with Admin(str(endpoint)) as admin:
            admin.create_topic("orders")
        producer = BatchProducer(str(endpoint), batch_size=10, request_timeout_ms=150, linger_ms=1)
        with producer:
            deliveries = []
            for number in range(300):
                deliveries.append(producer.send("orders", b"%d" % number))
                if number % 30 == 0:
                    deliveries[-1].result(30)
            producer.flush(60)
        assert len(answers) > 12
        assert [one.result().offset for one in deliveries] == list(range(300))
        stored = [record.value for record in records_of(str(endpoint), "orders")]
        assert stored == [b"%d" % number for number in range(300)]
