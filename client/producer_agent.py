"""The producer core on the IO thread: events in, effects carried out.

Owns the bridge between core, session and accumulator. Decides nothing; must not know zmq or
what users see.

Invariants:
    PA1 The core is touched by the IO thread alone; other threads only post to it.
    PA2 A batch's room is given back after its outcome is set, so that whoever waits for room and
        whoever waits for the outcome see the same.
"""

import logging
import random
from collections.abc import Callable

from ringlog.client.accumulator import Accumulator, Topic
from ringlog.client.batch import Batch, Columns
from ringlog.client.connection import Client
from ringlog.client.errors import RinglogError
from ringlog.client.messages import InitProducerIdRequest, InitProducerIdResponse
from ringlog.client.metadata import NO_LEADER, TopicView
from ringlog.client.producer_config import ProducerConfig
from ringlog.client.producer_core import ProducerCore
from ringlog.client.producer_effects import (
    Closed,
    Ended,
    Produce,
    WantMetadata,
    WantProducerId,
)
from ringlog.client.requests import ANY_BROKER, Answer, AtBroker, Request
from ringlog.client.retry import Backoff

log = logging.getLogger("ringlog.client")


class ProducerAgent:
    """See the module."""

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        topics: dict[str, Topic],
        rng: random.Random,
        wall_ms: Callable[[], int],
    ) -> None:
        """Make the core; it is driven from the first opened batch on.

        Args:
            client: drives this agent.
            config: the producer's settings.
            topics: topics in use, kept up to date with the metadata.
            rng: for jitter.
            wall_ms: milliseconds since 1970.
        """
        self.max_message_bytes: int | None = None
        """Payload limit of the brokers, once known."""
        self.accumulator: Accumulator | None = None
        self._client = client
        self._config = config
        self._topics = topics
        self._wall_ms = wall_ms
        self._seen_answers = 0
        self._core = ProducerCore(
            config,
            client.session.metadata,
            rng,
            backoff=Backoff(client.config.retry_backoff_ms, client.config.retry_backoff_max_ms),
            request_timeout_ms=client.config.request_timeout_ms,
            give_up_empty=self._give_up_empty,
        )

    # -- any thread -------------------------------------------------------------------------

    def opened(self, batch: Batch) -> None:
        """A batch takes records."""
        self._client.post(lambda now_ms: self._core.on_opened(batch, now_ms))

    def hurry(self, batch: Batch) -> None:
        """Send `batch` as soon as may be: a thread is about to wait for it."""
        self._client.refuse_io_thread("waiting for a delivery")
        self._client.post(lambda _: self._core.on_hurry(batch))

    def hurry_all(self) -> None:
        """Send everything as soon as may be."""
        self._client.post(lambda _: self._core.on_hurry_all())

    def short(self) -> None:
        """A thread is about to wait for room: send everything."""
        self._client.refuse_io_thread("send() with a full buffer")
        self.hurry_all()

    # -- the IO thread ----------------------------------------------------------------------

    def turn(self, now_ms: int) -> int | None:
        """Drive the core; see `connection.Agent`."""
        core, session = self._core, self._client.session
        if session.metadata_answers != self._seen_answers:
            self._seen_answers = session.metadata_answers
            self.max_message_bytes = core.max_message_bytes = session.max_message_bytes
            for topic in list(self._topics.values()):
                self._update(topic, session.metadata.topic(topic.name))
            core.on_metadata(now_ms)
        due_ms = core.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            core.on_deadline(now_ms)
        core.turn(now_ms, self._wall_ms())
        for effect in core.take_effects():
            match effect:
                case Produce():
                    self._produce(effect, now_ms)
                case Ended(batch, base_offset, error):
                    self._ended(batch, base_offset, error)
                case Closed(batch, size_bytes):
                    self._accumulator().measured(batch, size_bytes)
                case WantProducerId():
                    self._ask_for_id(now_ms)
                case WantMetadata(topics):
                    session.refresh(topics, now_ms)
        return core.next_deadline_ms()

    def on_client_ended(self, error: RinglogError) -> None:
        """The IO thread ends: so does every batch."""
        self._core.abandon(error)
        for effect in self._core.take_effects():
            if isinstance(effect, Ended):
                self._ended(effect.batch, effect.base_offset, effect.error)

    def _produce(self, produce: Produce, now_ms: int) -> None:
        def on_done(answer: Answer, now_ms: int) -> None:
            self._core.on_produced(produce, answer, now_ms)

        request = Request(
            AtBroker(produce.broker_id),
            produce.body,
            [batch.payload for batch in produce.batches],
            timeout_ms=produce.timeout_ms,
            on_done=on_done,
            retry=False,
            silent=self._config.wire_acks == 0,
        )
        for batch in produce.batches:
            batch.carrier = request
        self._client.session.submit(request, now_ms)

    def _ask_for_id(self, now_ms: int) -> None:
        def on_done(answer: Answer, now_ms: int) -> None:
            if isinstance(answer.body, InitProducerIdResponse):
                self._core.on_producer_id(answer.body.producer_id, answer.body.producer_epoch)
            elif answer.error is not None:
                self._core.on_no_producer_id(answer.error, now_ms)

        request = Request(
            ANY_BROKER,
            InitProducerIdRequest(),
            timeout_ms=self._client.config.request_timeout_ms,
            on_done=on_done,
        )
        self._client.session.submit(request, now_ms)

    def _ended(self, batch: Batch, base_offset: int, error: RinglogError | None) -> None:
        if error is not None:
            log.warning(
                "%d record(s) to %s-%d: %s", batch.count, batch.topic, batch.partition, error
            )
        batch.finish(base_offset, error)
        whole = batch
        while whole.parent is not None:
            whole = whole.parent
        if whole.done:
            self._accumulator().ended(whole)

    def _update(self, topic: Topic, view: TopicView | None) -> None:
        if view is None:
            # Deleted: the next record looks it up again, and finds it made anew or gone.
            if self._topics.pop(topic.name, None) is not None:
                self._accumulator().sticky.pop(topic.name, None)
            return
        topic.update(len(view.partitions), led(view))

    def _give_up_empty(self, batch: Batch, wall_ms: int) -> Columns:
        return self._accumulator().give_up_empty(batch, wall_ms)

    def _accumulator(self) -> Accumulator:
        assert self.accumulator is not None, "set by the producer before the first batch"
        return self.accumulator


def led(view: TopicView) -> list[int]:
    """The partitions that have a leader."""
    return [partition for partition, row in enumerate(view.partitions) if row.leader != NO_LEADER]
