"""The producer core with brokers and a clock that are values."""

import random

from ringlog.client.batch import Batch
from ringlog.client.errors import (
    BrokerError,
    NoBrokerReachable,
    RinglogError,
)
from ringlog.client.messages import (
    BrokerEndpoint,
    InitProducerIdRequest,
    MetadataResponse,
    PartitionMetadata,
    ProduceResponse,
    ProduceResult,
    TopicMetadata,
)
from ringlog.client.metadata import MetadataCache
from ringlog.client.producer_config import ProducerConfig
from ringlog.client.producer_core import ProducerCore
from ringlog.client.producer_effects import Closed, Ended, Produce, WantMetadata, WantProducerId
from ringlog.client.requests import ANY_BROKER, Answer, Request
from ringlog.client.retry import Backoff
from ringlog.storage.record_batch import BatchHeader, check_batch

LOST = NoBrokerReachable("the connection was closed")


class World:
    """The core with topic `t` of two partitions, led by broker 1."""

    def __init__(self, **settings: object) -> None:
        self.now_ms = 0
        self.wall_ms = 1_000_000
        self.metadata = MetadataCache()
        self.sent: list[Produce] = []
        self.ended: list[Ended] = []
        self.closed: list[Closed] = []
        self.wants_metadata = 0
        self.wants_id = 0
        self.lead(1, 1)
        values = {"batch_size": 4, "delivery_timeout_ms": 10_000, "linger_ms": 100, **settings}
        self.core = ProducerCore(
            ProducerConfig(**values),  # type: ignore[arg-type]  # by name
            self.metadata,
            random.Random(3),
            backoff=Backoff(50, 1000),
            request_timeout_ms=1_000,
            give_up_empty=lambda batch, wall: batch.give_up_empty(wall),
        )

    def lead(
        self,
        *leaders: int,
        error: BrokerError | None = None,
        because: BrokerError | None = None,
    ) -> None:
        """`error` is said of the topic, `because` of each partition without a leader."""
        why = None if because is None else because.info()
        rows = [
            PartitionMetadata(p, leader, 1, [1, 2], why if leader < 0 else None)
            for p, leader in enumerate(leaders)
        ]
        topic = TopicMetadata("t", b"u" * 16, rows, None if error is None else error.info())
        brokers = [BrokerEndpoint(1, "a:1"), BrokerEndpoint(2, "b:2")]
        self.metadata.apply(MetadataResponse("c", 1, brokers, [topic]))

    def open(self, *values: bytes, partition: int = 0) -> Batch:
        batch = Batch("t", partition, 4, self.now_ms)
        batch.deadline_ms = self.now_ms + 10_000
        for value in values or (b"x",):
            batch.values[next(batch.slots)] = value
        self.core.on_opened(batch, self.now_ms)
        self.turn()
        return batch

    def turn(self) -> None:
        due_ms = self.core.next_deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.core.on_deadline(self.now_ms)
        self.core.turn(self.now_ms, self.wall_ms)
        for effect in self.core.take_effects():
            match effect:
                case Produce():
                    carrier = Request(
                        ANY_BROKER,
                        InitProducerIdRequest(),
                        timeout_ms=1,
                        on_done=lambda _a, _n: None,
                    )
                    carrier.sent = True
                    for batch in effect.batches:
                        batch.carrier = carrier
                    self.sent.append(effect)
                case Ended():
                    self.ended.append(effect)
                    effect.batch.finish(effect.base_offset, effect.error)
                case Closed():
                    self.closed.append(effect)
                case WantProducerId():
                    self.wants_id += 1
                case WantMetadata():
                    self.wants_metadata += 1

    def give_id(self, number: int = 7) -> None:
        self.core.on_producer_id(number, 0)
        self.turn()

    def wait(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while (due_ms := self.core.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.turn()
        self.now_ms = until_ms
        self.turn()

    def take(self) -> Produce:
        assert len(self.sent) == 1, f"{len(self.sent)} requests"
        return self.sent.pop()

    def answer(self, produce: Produce, *results: int | RinglogError) -> None:
        rows = [
            ProduceResult(one, 0) if isinstance(one, int) else ProduceResult(-1, 0, info(one))
            for one in results
        ]
        self.core.on_produced(produce, Answer(ProduceResponse(rows)), self.now_ms)
        self.turn()

    def fail(self, produce: Produce, error: RinglogError, *, sent: bool = True) -> None:
        self.core.on_produced(produce, Answer(error=error, sent=sent, lost=sent), self.now_ms)
        self.turn()

    def proven(self) -> None:
        """A first batch was acknowledged: several may now be under way."""
        self.open()
        self.give_id()
        self.answer(self.take(), 0)
        self.ended.clear()

    def error_of(self, batch: Batch) -> RinglogError | None:
        assert batch.done, "it has not ended"
        return batch.error


def info(error: RinglogError):  # type: ignore[no-untyped-def]  # noqa: ANN201 of any broker error
    assert isinstance(error, BrokerError)
    return error.info()


def header(batch: Batch) -> BatchHeader:
    return check_batch(batch.payload, max_bytes=1 << 20)
