"""Usual mistakes of callers meet an error that names the next step, not one of Python's own."""

from collections.abc import Callable, Iterator

import pytest

import ringlog.client
from ringlog.client import (
    Admin,
    BatchProducer,
    Consumer,
    InvalidArgument,
    TopicPartition,
    UnknownTopic,
    errors,
)
from tests.unit.client.scripted_broker import ScriptedBroker


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({"t": 1}) as running:
        yield running


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[BatchProducer]:
    with BatchProducer(broker.address) as running:
        yield running


def test_every_error_is_importable_from_the_package() -> None:
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    wanted = {name for name, kind in kinds.items() if issubclass(kind, errors.RinglogError)}
    assert wanted <= set(ringlog.client.__all__)
    for name in wanted:
        assert getattr(ringlog.client, name) is kinds[name]


@pytest.mark.parametrize("servers", [5555, [5555], ("127.0.0.1", 5555), b"127.0.0.1:5555"])
def test_an_address_that_is_no_text_is_refused(servers: object) -> None:
    with pytest.raises(InvalidArgument, match=r'neither a text nor.*"127\.0\.0\.1:5555"'):
        Admin(servers)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("timeout", [-1, "1"])
def test_a_producer_refuses_a_timeout_that_is_none_and_goes_on(
    producer: BatchProducer, timeout: float
) -> None:
    delivery = producer.send("t", b"x")
    for call in (producer.flush, producer.close):
        with pytest.raises(InvalidArgument, match=r"timeout is .*seconds"):
            call(timeout)
    assert delivery.result(5).offset == 0
    open_delivery = producer.send("t", b"y", key=b"k")
    if not open_delivery.done():
        with pytest.raises(InvalidArgument, match="timeout"):
            open_delivery.result(timeout)


@pytest.mark.parametrize("topic", [5, None, b"t", ""])
def test_a_producer_refuses_a_topic_that_is_no_text(producer: BatchProducer, topic: object) -> None:
    with pytest.raises(InvalidArgument, match="topic name"):
        producer.send(topic, b"x")  # type: ignore[arg-type]  # wrong on purpose


def test_a_producer_told_an_address_as_topic_says_so(producer: BatchProducer) -> None:
    with pytest.raises(UnknownTopic, match="looks like an address"):
        producer.send("127.0.0.1:5555", b"x")


def test_a_producer_and_a_delivery_show_their_state(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address) as producer:
        delivery = producer.send("t", b"x")
        delivery.result(5)
        assert repr(delivery) == "<Delivery to t-0: stored at offset 0>"
        assert repr(producer) == f"<BatchProducer of {broker.address}: 0 open batches>"
    assert repr(producer) == f"<BatchProducer of {broker.address}: closed>"


@pytest.fixture
def consumer(broker: ScriptedBroker) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=broker.address) as running:
        yield running


def test_reading_with_nothing_assigned_says_what_to_call(consumer: Consumer) -> None:
    with pytest.raises(InvalidArgument, match=r"subscribe\(topics\) or assign\(partitions\)"):
        consumer.poll()
    with pytest.raises(InvalidArgument, match="nothing is assigned"):
        next(iter(consumer))
    consumer.assign([TopicPartition("t", 0)])
    assert consumer.poll() == []
    consumer.assign([])
    with pytest.raises(InvalidArgument, match="nothing is assigned"):
        consumer.poll()


@pytest.mark.parametrize("timeout", [-1, "1"])
def test_a_consumer_refuses_a_timeout_that_is_none(consumer: Consumer, timeout: float) -> None:
    consumer.subscribe("t")
    for call in (consumer.poll, consumer.close):
        with pytest.raises(InvalidArgument, match=r"timeout is .*seconds"):
            call(timeout)
    assert consumer.poll(0) == []


CALLS: dict[str, Callable[[Consumer], object]] = {
    "assign a text": lambda consumer: consumer.assign("orders"),  # type: ignore[arg-type]  # wrong
    "assign half": lambda consumer: consumer.assign([("orders",)]),  # type: ignore[list-item]  # wrong
    "pause": lambda consumer: consumer.pause("orders"),  # type: ignore[arg-type]  # wrong
    "a list": lambda consumer: consumer.resume([("t", 0)]),  # type: ignore[arg-type]  # wrong
    "begin": lambda consumer: consumer.seek_to_beginning("t"),  # type: ignore[arg-type]  # wrong
    "first": lambda consumer: consumer.beginning_offsets("t"),  # type: ignore[arg-type]  # wrong
    "last": lambda consumer: consumer.end_offsets("t"),  # type: ignore[arg-type]  # wrong
    "position": lambda consumer: consumer.position("t", "0"),  # type: ignore[arg-type]  # wrong
    "seek": lambda consumer: consumer.seek("t", "0", 0),  # type: ignore[arg-type]  # wrong
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_partition_is_refused_with_an_example(consumer: Consumer, name: str) -> None:
    with pytest.raises(InvalidArgument, match=r'TopicPartition\("\w+", 0\)'):
        CALLS[name](consumer)


def test_a_consumer_told_an_address_as_topic_says_so(broker: ScriptedBroker) -> None:
    with pytest.raises(UnknownTopic, match=f"bootstrap_servers='{broker.address}'"):
        Consumer(broker.address)
    with pytest.raises(InvalidArgument, match="give a name, or a list of names"):
        Consumer(5555)  # type: ignore[arg-type]  # wrong on purpose


def test_a_consumer_shows_what_it_reads(broker: ScriptedBroker, consumer: Consumer) -> None:
    assert repr(consumer) == f"<Consumer of {broker.address}: nothing assigned>"
    consumer.subscribe("t")
    assert repr(consumer) == f"<Consumer of {broker.address}: t-0>"
    consumer.close()
    assert repr(consumer) == f"<Consumer of {broker.address}: closed>"
