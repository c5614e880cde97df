"""B36: `BatchProducer(broker, batch_size=1024, linger_ms=100)`, `send(topic, message)`.

There: flushed on size or linger, guarded by a lock, sent by `broker.send_batch`. Ours: the same
constructor and `send`; a batch leaves when it is full, when nothing is under way, when somebody
waits, and at the latest after linger; `send` gives a handle with the offset.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringlog.broker.dispatch import PeerReply
from ringlog.client import Admin, BatchProducer
from ringlog.client.errors import DeadlineExceeded
from ringlog.client.messages import Message, ProduceResponse
from ringlog.storage.types import Buffer
from tests.cluster.core_client import CoreClient, records_in
from tests.features.broker_on_loopback import broker_on_loopback


def values_of(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    """Everything a partition holds, read without the code under test."""
    values: list[bytes | None] = []
    with CoreClient(address) as client:
        while True:
            _, data = client.fetch(topic, len(values), partition=partition)
            records = records_in(data)
            if not records:
                return values
            values += [record.value for record in records]


def test_b36_a_message_is_sent_and_its_place_is_known(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint:
        with Admin(str(endpoint)) as admin:
            admin.create_topic("orders")
        with BatchProducer(str(endpoint), batch_size=1024, linger_ms=100) as producer:
            meta = producer.send("orders", b"message").result(timeout=10)
            assert (meta.topic, meta.partition, meta.offset) == ("orders", 0, 0)
        assert values_of(str(endpoint), "orders") == [b"message"]


def test_b36_a_batch_leaves_when_full_or_when_nothing_is_under_way(tmp_path: Path) -> None:
    """Nobody waits for a delivery here, and linger is an hour: nobody sits through it."""
    with broker_on_loopback(tmp_path) as endpoint:
        with Admin(str(endpoint)) as admin:
            admin.create_topic("orders")
        ended = threading.Semaphore(0)
        with BatchProducer(str(endpoint), batch_size=100, linger_ms=3_600_000) as producer:
            deliveries = [producer.send("orders", b"%d" % number) for number in range(1050)]
            for delivery in deliveries:
                delivery.add_done_callback(lambda _: ended.release())
            for _ in deliveries:
                assert ended.acquire(timeout=30)
            assert max(delivery.batch.count for delivery in deliveries) <= 100
        assert values_of(str(endpoint), "orders") == [b"%d" % number for number in range(1050)]


def test_b36_linger_ends_the_wait_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer is withheld, so that something is under way; the next batch leaves anyway."""
    withheld: list[Message] = []
    send = PeerReply.send

    def withhold(reply: PeerReply, body: Message, frames: Sequence[Buffer] = ()) -> None:
        if isinstance(body, ProduceResponse) and body.results[0].base_offset == 1:
            withheld.append(body)
            reply.discard()
        else:
            send(reply, body, frames)

    monkeypatch.setattr(PeerReply, "send", withhold)
    with broker_on_loopback(tmp_path) as endpoint:
        with Admin(str(endpoint)) as admin:
            admin.create_topic("orders")
        producer = BatchProducer(str(endpoint), linger_ms=50)
        producer.send("orders", b"answered").result(30)
        producer.send("orders", b"withheld")
        while not withheld:
            threading.Event().wait(0.002)
        ended = threading.Event()
        producer.send("orders", b"lingers").add_done_callback(lambda _: ended.set())
        assert ended.wait(timeout=30)
        with pytest.raises(DeadlineExceeded):
            producer.close(0)
        assert values_of(str(endpoint), "orders") == [b"answered", b"withheld", b"lingers"]


def test_b36_many_threads_may_send(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint:
        with Admin(str(endpoint)) as admin:
            admin.create_topic("orders")
        with BatchProducer(str(endpoint)) as producer:

            def work(number: int) -> None:
                for index in range(1500):
                    producer.send("orders", b"%d:%04d" % (number, index))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        values = [value or b"" for value in values_of(str(endpoint), "orders")]
    assert len(values) == 6000
    for number in range(4):
        mine = [value for value in values if value.startswith(b"%d:" % number)]
        assert mine == [b"%d:%04d" % (number, index) for index in range(1500)]
