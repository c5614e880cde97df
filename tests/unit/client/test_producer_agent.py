"""From the record to its offset over a session without sockets."""

import logging
import random

import pytest

from ringlog.client.accumulator import Accumulator, Record, Topic
from ringlog.client.config import ClientConfig
from ringlog.client.connection import Client
from ringlog.client.delivery import Delivery
from ringlog.client.errors import BatchTooLarge, ClientClosed
from ringlog.client.messages import (
    ApiKey,
    InitProducerIdResponse,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from ringlog.client.producer_agent import ProducerAgent
from ringlog.client.producer_config import ProducerConfig
from ringlog.client.requests import ANY_BROKER
from ringlog.storage.types import NO_TIMESTAMP
from tests.unit.client.session_world import Sent, SessionWorld


class World(SessionWorld):
    """The agent on a session whose brokers and clock are values; no thread runs."""

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.client = Client(ClientConfig(("a:1",)))
        self.client.session = self.session
        self.client.post = lambda fn: fn(self.now_ms)  # type: ignore[method-assign]  # no thread
        config = ProducerConfig(**{"batch_size": 4, **settings})  # type: ignore[arg-type]  # by name
        self.topics = {"t": Topic("t", 2, [0, 1])}
        rng = random.Random(1)
        self.agent = ProducerAgent(self.client, config, self.topics, rng, lambda: 5_000)
        self.accumulator = Accumulator(
            owner=self.agent,
            on_opened=self.agent.opened,
            on_short=self.agent.short,
            clock=lambda: self.now_ms,
            rng=rng,
            config=config,
        )
        self.agent.accumulator = self.accumulator
        self.ask(ANY_BROKER, MetadataRequest(["t"]))
        self.open("a:1")
        self.reply_metadata()

    def act(self) -> None:
        super().act()
        # The real loop goes round until nothing is left to do.
        for _ in range(4 if hasattr(self, "agent") else 0):
            self.agent.turn(self.now_ms)
            super().act()

    def send(self, value: bytes = b"x", partition: int = 0) -> Delivery:
        record = Record(value, None, (), NO_TIMESTAMP, 20)
        delivery = self.accumulator.add(self.topics["t"], partition, record)
        self.act()
        return delivery

    def give_id(self) -> None:
        self.reply(self.take(ApiKey.INIT_PRODUCER_ID), InitProducerIdResponse(7, 0))

    def produced(self) -> Sent:
        sent = self.take(ApiKey.PRODUCE)
        assert isinstance(sent.body, ProduceRequest)
        return sent


def test_from_the_record_to_its_offset() -> None:
    world = World()
    delivery = world.send()
    world.give_id()
    sent = world.produced()
    assert (sent.address, len(sent.frames)) == ("a:1", 1)
    held = world.accumulator._used_bytes
    assert 0 < held < 200, "a closed batch holds what it needs"
    world.reply(sent, ProduceResponse([ProduceResult(9, 0)]))
    assert delivery.result(timeout=0).offset == 9
    assert world.accumulator._used_bytes == 0
    assert not world.accumulator.live


def test_a_failure_is_logged_and_gives_its_room_back(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    delivery = world.send()
    world.give_id()
    with caplog.at_level(logging.WARNING, "ringlog.client"):
        refused = ProduceResult(-1, 0, BatchTooLarge("at most nothing").info())
        world.reply(world.produced(), ProduceResponse([refused]))
    assert isinstance(delivery.exception(timeout=0), BatchTooLarge)
    assert "1 record(s) to t-0: at most nothing" in caplog.text
    assert world.accumulator._used_bytes == 0


def test_the_room_of_a_divided_batch_comes_back_with_its_last_part() -> None:
    world = World()
    deliveries = [world.send(value) for value in (b"a", b"b", b"c")]
    world.give_id()
    refused = ProduceResult(-1, 0, BatchTooLarge("at most 2").info())
    world.reply(world.produced(), ProduceResponse([refused]))
    world.reply(world.produced(), ProduceResponse([ProduceResult(0, 0)]))
    assert world.accumulator.live, "half of it is still under way"
    world.reply(world.produced(), ProduceResponse([ProduceResult(1, 0)]))
    assert [one.result(timeout=0).offset for one in deliveries] == [0, 1, 2]
    assert world.accumulator._used_bytes == 0
    assert not world.accumulator.live


def test_more_partitions_are_noticed() -> None:
    world = World()
    world.leaders["t"] = [1, 1, -1]
    world.session.refresh(["t"], world.now_ms)
    world.act()
    world.wait(100)
    world.reply_metadata()
    topic = world.topics["t"]
    assert (topic.partitions, list(topic.available)) == (3, [0, 1])
    assert world.agent.max_message_bytes == 1000


def test_a_topic_that_is_gone_is_looked_up_again_by_the_next_record() -> None:
    world = World()
    world.accumulator.sticky["t"] = world.send().batch
    world.session.metadata.forget("t")
    world.session.metadata_answers += 1
    world.act()
    assert world.topics == {}
    assert world.accumulator.sticky == {}


def test_with_acks_0_a_request_is_silent() -> None:
    world = World(acks=0)
    delivery = world.send()
    world.produced()
    assert delivery.result(timeout=0).offset == -1


def test_when_the_client_ends_so_does_every_delivery() -> None:
    world = World()
    deliveries = [world.send(), world.send(partition=1)]
    world.agent.on_client_ended(ClientClosed("closed"))
    assert all(isinstance(one.exception(timeout=0), ClientClosed) for one in deliveries)
    assert world.accumulator._used_bytes == 0
