"""Open batches to acknowledged ones: when each leaves, in what order, and how it ends.

Owns linger, pipelining, retries, deadlines, and what an answer means for a batch and for those
behind it. Must not know threads, sockets or the clock; the records' columns it takes once, when
a batch leaves.

    on_opened, on_hurry, on_hurry_all, on_producer_id, on_no_producer_id, on_produced,
    on_metadata, on_deadline, then turn -> take_effects()

The driver executes: `Produce` (send once to that broker, then `on_produced`), `WantProducerId`,
`WantMetadata`, `Closed` (the batch holds this many bytes), `Ended` (call `batch.finish`).

Invariants:
    R1  Every batch ends exactly once, at the latest at its deadline.
    R2  Well: a broker has said so. Badly but not DeliveryUnknown: no attempt can have stored it.
        DeliveryUnknown: some attempt left, and nobody has said what became of it.
    R3  With idempotence the records of a partition are stored in the order given, each at most
        once: sequences follow `lane`, and while a batch must be sent again nothing new is.
    R4  A batch leaves at once when somebody waits for it, when nothing is under way to its
        partition or when it is full; else when it has lingered.
"""

import random
from collections.abc import Callable, Iterable

from ringlog.client.batch import Batch, Columns
from ringlog.client.errors import (
    BatchTooLarge,
    BrokerError,
    DeadlineExceeded,
    DeliveryUnknown,
    InternalError,
    OutOfOrderSequence,
    ProducerFenced,
    RequestTimedOut,
    RinglogError,
    StaleTopic,
    StorageFailed,
    error_from,
)
from ringlog.client.lane import MAX_EPOCH, Lane
from ringlog.client.messages import ProduceResponse
from ringlog.client.metadata import NO_LEADER, MetadataCache
from ringlog.client.produce_requests import produce_requests
from ringlog.client.producer_config import ProducerConfig
from ringlog.client.producer_effects import (
    Closed,
    Effect,
    Ended,
    Produce,
    WantMetadata,
    WantProducerId,
)
from ringlog.client.requests import Answer
from ringlog.client.retry import Backoff
from ringlog.client.split import split_batch, too_large
from ringlog.client.timers import Timers
from ringlog.storage.record_codec import encode_body, seal_batch
from ringlog.storage.types import NO_PRODUCER_ID

EMPTY_SLOT_GRACE_MS = 100
"""After this long a slot that was taken and not written is left out of its batch."""

TURN_BYTES = 256 * 1024
"""A partition that has given this much in one turn waits for the next: what is encoded leaves, and
the broker works on it, while the rest is encoded."""

_UNKNOWN_OUTCOME = (RequestTimedOut, StorageFailed, InternalError)
"""Answers of a broker after which the batch may be stored all the same."""


class ProducerCore:
    """See the module. One thread at a time."""

    def __init__(
        self,
        config: ProducerConfig,
        metadata: MetadataCache,
        rng: random.Random,
        *,
        backoff: Backoff,
        request_timeout_ms: int,
        give_up_empty: Callable[[Batch, int], Columns],
    ) -> None:
        """Begin with nothing.

        Args:
            config: the producer's settings.
            metadata: shared with the session, which keeps it fresh.
            rng: for jitter.
            backoff: pause between attempts.
            request_timeout_ms: of one attempt.
            give_up_empty: `Batch.give_up_empty` under whatever lock writers take.
        """
        self.max_message_bytes: int | None = None
        """Largest batch a broker takes in, once one has said so."""
        self._config = config
        self._metadata = metadata
        self._rng = rng
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self._give_up_empty = give_up_empty
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._look: dict[Lane, None] = {}
        self._rest: dict[Lane, None] = {}
        """May have more to send in the next turn."""
        self._leaderless: dict[Lane, None] = {}
        self._waiting_for_id: dict[Lane, None] = {}
        self._producer: tuple[int, int] | None = None
        self._asked_for_id = False
        self._timers = Timers()
        self._effects: list[Effect] = []

    # -- events -----------------------------------------------------------------------------

    def on_opened(self, batch: Batch, now_ms: int) -> None:
        """A batch takes records; the one before it in its partition takes no more."""
        lane = self._lane(batch.topic, batch.partition)
        if lane.open is not None:
            lane.queue.append(lane.open)
        lane.open = batch
        self._set_deadline(lane, batch)
        if not lane.idle:
            linger_ms = batch.opened_ms + self._config.linger_ms
            self._timers.at(max(linger_ms, now_ms), lambda _: self._look_at(lane))
        self._look[lane] = None

    def on_hurry(self, batch: Batch) -> None:
        """Somebody waits for `batch`."""
        batch.hurried = True
        self._look[self._lane(batch.topic, batch.partition)] = None

    def on_hurry_all(self) -> None:
        """Somebody waits for everything."""
        for lane in self._lanes.values():
            if lane.open is not None:
                lane.open.hurried = True
                self._look[lane] = None

    def on_producer_id(self, producer_id: int, epoch: int) -> None:
        """An id came."""
        self._asked_for_id = False
        self._producer = (producer_id, epoch)
        self._look.update(self._waiting_for_id)
        self._waiting_for_id.clear()

    def on_no_producer_id(self, error: RinglogError, now_ms: int) -> None:
        """No id came; ask again after a pause. Batches wait until their deadline."""
        self._asked_for_id = False
        waiting, self._waiting_for_id = self._waiting_for_id, {}
        for lane in waiting:
            self._pause(lane, error, now_ms)

    def on_metadata(self, now_ms: int) -> None:
        """The metadata may have changed."""
        waiting, self._leaderless = self._leaderless, {}
        self._look.update(waiting)
        for lane in self._lanes.values():
            if lane.not_before_ms > now_ms and lane.refused_by != NO_LEADER:
                leader = self._metadata.leader(lane.topic, lane.partition)
                if leader not in {NO_LEADER, lane.refused_by}:
                    lane.not_before_ms = now_ms
                    self._look[lane] = None

    def on_produced(self, produce: Produce, answer: Answer, now_ms: int) -> None:
        """A request ended."""
        results = answer.body.results if isinstance(answer.body, ProduceResponse) else []
        for index, batch in enumerate(produce.batches):
            lane = self._lane(batch.topic, batch.partition)
            batch.outstanding = False
            batch.carrier = None
            self._look[lane] = None
            if batch not in lane.in_flight:
                # Its deadline has passed meanwhile.
                continue
            if answer.error is not None:
                if not isinstance(answer.error, BrokerError):
                    batch.unknown = batch.unknown or answer.sent
                    self._want_metadata(lane)
                self._failed(lane, batch, answer.error, produce.broker_id, now_ms)
            elif self._config.wire_acks == 0:
                self._stored(lane, batch, -1, now_ms)
            elif index >= len(results):
                batch.unknown = True
                error = InternalError("the broker's answer leaves out a batch")
                self._failed(lane, batch, error, produce.broker_id, now_ms)
            elif (info := results[index].error) is not None:
                self._failed(lane, batch, error_from(info), produce.broker_id, now_ms)
            else:
                self._stored(lane, batch, results[index].base_offset, now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `on_deadline`, or `turn`, wants to be called."""
        return 0 if self._rest else self._timers.next_ms()

    def on_deadline(self, now_ms: int) -> None:
        """Do what is due."""
        self._timers.run(now_ms)

    def take_effects(self) -> list[Effect]:
        """What the driver has to do now, in order; empties the list."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def unfinished(self) -> Iterable[Batch]:
        """Every batch that has not ended."""
        return (batch for lane in self._lanes.values() for batch in lane.unfinished)

    def abandon(self, error: RinglogError) -> None:
        """End everything: what may be stored as unknown, the rest with `error`."""
        for lane in self._lanes.values():
            self._end_all(lane, error)

    # -- sending ----------------------------------------------------------------------------

    def turn(self, now_ms: int, wall_ms: int) -> None:
        """Send whatever may leave now. Call after every round of events.

        Args:
            now_ms: monotonic clock.
            wall_ms: milliseconds since 1970: timestamp of records that were given none.
        """
        ready: dict[int, list[Batch]] = {}
        self._look.update(self._rest)
        self._rest.clear()
        while self._look:
            lanes, self._look = self._look, {}
            for lane in lanes:
                leader = self._leader(lane)
                if leader == NO_LEADER or now_ms < lane.not_before_ms:
                    continue
                if batches := self._advance(lane, now_ms, wall_ms):
                    ready.setdefault(leader, []).extend(batches)
        for leader, batches in ready.items():
            self._effects += produce_requests(
                leader,
                batches,
                self._metadata,
                acks=self._config.wire_acks,
                timeout_ms=self._request_timeout_ms,
                now_ms=now_ms,
            )

    def _leader(self, lane: Lane) -> int:
        if lane.idle and lane.open is None:
            return NO_LEADER
        missing = self._metadata.missing(lane.topic)
        if missing is not None:
            self._end_all(lane, error_from(missing))
            return NO_LEADER
        leader = self._metadata.leader(lane.topic, lane.partition)
        if leader != NO_LEADER:
            lane.look.forget()
            return leader
        refusal = self._metadata.refusal(lane.topic, lane.partition, lane.look)
        if refusal is not None:
            lane.look.forget()
            self._end_all(lane, refusal)
        else:
            self._leaderless[lane] = None
            self._want_metadata(lane)
        return NO_LEADER

    def _advance(self, lane: Lane, now_ms: int, wall_ms: int) -> list[Batch]:
        if lane.draining or not self._has_identity(lane):
            return []
        sending: list[Batch] = []
        # A log that does not know the producer takes any first sequence: the second batch, too,
        # should the first be refused. So the first one goes alone until it is acknowledged.
        is_known = not self._config.idempotent or lane.is_proven(now_ms)
        limit = self._config.in_flight if is_known else 1
        if lane.must_resend:
            # No more than a broker remembers: a split may have made more.
            sending += lane.in_flight[:limit]
        size_bytes = 0
        while not lane.new_epoch and len(lane.in_flight) < limit:
            if size_bytes >= TURN_BYTES:
                self._rest[lane] = None
                break
            batch = self._next_batch(lane, now_ms, wall_ms)
            if batch is None:
                break
            lane.in_flight.append(batch)
            lane.number(batch)
            sending.append(batch)
            size_bytes += len(batch.payload)
        for batch in sending:
            batch.outstanding = True
        return sending

    def _has_identity(self, lane: Lane) -> bool:
        """Settle under which producer id and epoch the lane goes on; False: wait for an id."""
        if not self._config.idempotent:
            return True
        if lane.producer_id != NO_PRODUCER_ID:
            if not lane.new_epoch or lane.in_doubt or lane.bump_epoch():
                return True
            # That was the last epoch of the id.
            self._producer = None
        if self._producer is not None:
            lane.use_producer(*self._producer)
            return True
        self._waiting_for_id[lane] = None
        if not self._asked_for_id:
            self._asked_for_id = True
            self._effects.append(WantProducerId())
        return False

    def _next_batch(self, lane: Lane, now_ms: int, wall_ms: int) -> Batch | None:
        """Take the next batch that may leave, encoded."""
        if not lane.queue:
            batch = lane.open
            if batch is None or not lane.releases(batch, now_ms, self._config.linger_ms):
                return None
            batch.close()
            lane.open = None
            lane.queue.append(batch)
        batch = lane.queue[0]
        if batch.body is None and not self._encode(lane, batch, now_ms, wall_ms):
            return None
        size_bytes = batch.encoded().batch_size_bytes
        if size_bytes > (limit_bytes := self.max_message_bytes or size_bytes):
            self._make_fit(lane, batch, limit_bytes)
            return self._next_batch(lane, now_ms, wall_ms)
        lane.queue.popleft()
        return batch

    def _make_fit(self, lane: Lane, batch: Batch, limit_bytes: int) -> None:
        """Put halves in the place of a batch that no connection would carry, or end it."""
        batch.seal(seal_batch(batch.encoded()))
        if parts := split_batch(batch, self._config.compression):
            lane.queue.popleft()
            lane.queue.extendleft(reversed(parts))
            self._replace_deadline(lane, batch, parts)
        else:
            self._end(lane, batch, too_large(batch, limit_bytes))

    def _encode(self, lane: Lane, batch: Batch, now_ms: int, wall_ms: int) -> bool:
        columns = batch.take_columns(wall_ms)
        if columns is None:
            # A thread stands between taking a slot and writing it: it is about to.
            if batch.empty_since_ms is None:
                batch.empty_since_ms = now_ms
            if now_ms - batch.empty_since_ms < EMPTY_SLOT_GRACE_MS:
                self._timers.at(now_ms + 1, lambda _: self._look_at(lane))
                return False
            columns = self._give_up_empty(batch, wall_ms)
        if not columns.values:
            lane.queue.remove(batch)
            self._end_well(batch, -1)
            self._look[lane] = None
            return False
        batch.body = encode_body(
            columns.values,
            keys=columns.keys,
            headers=columns.headers,
            timestamps=columns.timestamps,
            compression=self._config.compression,
        )
        batch.free_records()
        self._effects.append(Closed(batch, batch.body.batch_size_bytes))
        return True

    # -- outcomes ---------------------------------------------------------------------------

    def _stored(self, lane: Lane, batch: Batch, base_offset: int, now_ms: int) -> None:
        lane.proven_ms = now_ms
        lane.in_flight.remove(batch)
        lane.failures = 0
        lane.last_error = None
        lane.not_before_ms = 0
        self._end_well(batch, base_offset)

    def _failed(
        self, lane: Lane, batch: Batch, error: RinglogError, broker_id: int, now_ms: int
    ) -> None:
        if isinstance(error, _UNKNOWN_OUTCOME):
            batch.unknown = True
        if isinstance(error, OutOfOrderSequence) and self._config.idempotent:
            # Before the first in flight nothing of ours is missing: the numbers themselves are
            # off. Behind another one it only has to wait for that one.
            lane.new_epoch = lane.new_epoch or batch is lane.in_flight[0]
            if lane.new_epoch and batch.unknown:
                # It cannot be stored under its number now, nor safely under another: an attempt
                # that got lost may still arrive.
                self._end(lane, batch, error)
            elif lane.new_epoch:
                self._pause(lane, error, now_ms)
        elif isinstance(error, BatchTooLarge) and self._split(lane, batch):
            return
        elif error.retriable:
            lane.refused_by = broker_id
            if isinstance(error, StaleTopic):
                # A topic made anew knows nobody.
                lane.proven_ms = None
            if isinstance(error, BrokerError) and error.refresh_metadata:
                self._want_metadata(lane)
            self._pause(lane, error, now_ms)
        else:
            if isinstance(error, ProducerFenced):
                # Somebody writes under a newer epoch of this id: leave it to them.
                lane.epoch = MAX_EPOCH
            self._end(lane, batch, error)

    def _pause(self, lane: Lane, error: RinglogError, now_ms: int) -> None:
        if now_ms >= lane.not_before_ms:
            lane.failures += 1
            pause_ms = self._backoff.pause_ms(lane.failures, self._rng)
            lane.not_before_ms = now_ms + pause_ms
            self._timers.at(lane.not_before_ms, lambda _: self._look_at(lane))
        lane.last_error = error

    def _split(self, lane: Lane, batch: Batch) -> bool:
        """Put two halves in the place of a batch that no broker takes whole."""
        if batch.unknown:
            # An earlier attempt may be stored whole.
            return False
        parts = split_batch(batch, self._config.compression)
        if not parts:
            return False
        lane.replace(batch, parts)
        self._replace_deadline(lane, batch, parts)
        return True

    def _replace_deadline(self, lane: Lane, batch: Batch, parts: Iterable[Batch]) -> None:
        self._cancel_deadline(batch)
        for part in parts:
            self._set_deadline(lane, part)

    def _set_deadline(self, lane: Lane, batch: Batch) -> None:
        batch.timer = self._timers.at(batch.deadline_ms, lambda now: self._expire(lane, batch, now))

    def _cancel_deadline(self, batch: Batch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None

    def _expire(self, lane: Lane, batch: Batch, now_ms: int) -> None:
        batch.close()
        waited_ms = now_ms - batch.opened_ms
        error = DeadlineExceeded(
            f"{batch.topic}-{batch.partition}: not delivered within {waited_ms} ms"
            f"{self._reason(lane)}",
            hint="the records are definitely not stored",
        )
        self._end(lane, batch, error)

    def _reason(self, lane: Lane) -> str:
        if lane.last_error is not None:
            return f": {lane.last_error.cause}"
        if self._metadata.leader(lane.topic, lane.partition) == NO_LEADER:
            trouble = self._metadata.trouble(lane.topic, lane.partition)
            return f": {trouble.cause}" if trouble else ": the partition has no leader"
        return ""

    def _end_all(self, lane: Lane, error: RinglogError) -> None:
        for batch in lane.unfinished:
            batch.close()
            self._end(lane, batch, error)

    def _end(self, lane: Lane, batch: Batch, error: RinglogError) -> None:
        """End a batch badly, wherever it stands."""
        if batch is lane.open:
            lane.open = None
        elif batch in lane.in_flight:
            lane.in_flight.remove(batch)
            # Its sequences are used up, and may or may not arrive.
            lane.new_epoch = self._config.idempotent
        else:
            lane.queue.remove(batch)
        left = batch.carrier is not None and batch.carrier.sent
        if batch.unknown or (batch.outstanding and left):
            error = DeliveryUnknown(
                f"{error.cause}; an attempt was sent and not answered",
                hint="the records may be stored: read the topic before sending them again",
            )
        self._cancel_deadline(batch)
        self._effects.append(Ended(batch, -1, error))
        self._look[lane] = None

    def _end_well(self, batch: Batch, base_offset: int) -> None:
        self._cancel_deadline(batch)
        self._effects.append(Ended(batch, base_offset, None))

    # -- lanes ------------------------------------------------------------------------------

    def _lane(self, topic: str, partition: int) -> Lane:
        key = (topic, partition)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(topic, partition)
        return lane

    def _look_at(self, lane: Lane) -> None:
        self._look[lane] = None

    def _want_metadata(self, lane: Lane) -> None:
        self._effects.append(WantMetadata((lane.topic,)))
