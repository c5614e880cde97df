"""Requests to answers over connections that come and go: routing, deadlines, retries, metadata.

Owns every decision of a client that is not about records. The synchronous and the asynchronous
client drive the same object. Must not know sockets, threads or the clock.

    submit, refresh, on_opened, on_closed, on_message, on_deadline      -> take_effects()

The driver executes the effects in order: `Open` (resolve and connect, then `on_opened` or
`on_closed`), `Send`, `Close` (no event follows), `Answered` (call `request.on_done`).

Invariants:
    N1  Every request is answered exactly once, at the latest when its deadline has passed.
    N2  An answer that says "not sent" is true of every attempt; a request that left and got no
        answer says "lost".
    N3  A request with `retry=False` leaves at most once.
    N4  Failed attempts pause with jittered exponential backoff, per link and per request.
    N5  Metadata is asked for by one request at a time, at least `retry_backoff_ms` apart.
"""

import random
from collections.abc import Iterable

from ringlog.client.config import ClientConfig
from ringlog.client.errors import (
    BrokerError,
    DeadlineExceeded,
    DiskFull,
    InvalidArgument,
    NoBrokerReachable,
    RinglogError,
    UnknownPartition,
    UnsupportedVersion,
    error_from,
)
from ringlog.client.links import Link, LinkState, read_reply
from ringlog.client.messages import Message, MetadataRequest, MetadataResponse
from ringlog.client.metadata import NO_LEADER, MetadataCache
from ringlog.client.pool import Answered, Close, Effect, LinkPool, Send, unreachable
from ringlog.client.requests import (
    ANY_BROKER,
    Answer,
    AnyBroker,
    AtAddress,
    AtBroker,
    AtLeader,
    Request,
)
from ringlog.client.retry import Backoff
from ringlog.client.timers import TimedCall, Timers
from ringlog.client.wire import MalformedFrame
from ringlog.storage.types import Buffer

ATTEMPTS_IN_TIME = 3
"""A request that may be repeated is, when this part of its time has passed without an answer."""

MIN_ATTEMPT_MS = 1_000
"""But not before this: a broker may be slow."""


class Session:
    """See the module. One thread at a time."""

    def __init__(self, config: ClientConfig, rng: random.Random, *, client_version: str) -> None:
        self.config = config
        self.metadata = MetadataCache()
        self.metadata_answers = 0
        """How many metadata answers were applied: a change means look again."""
        self._rng = rng
        self._version = client_version
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._timers = Timers()
        self._pool = LinkPool(
            config,
            rng,
            self._timers,
            self.metadata,
            client_version=client_version,
            on_dropped=self._on_dropped,
        )
        self._open: dict[Request, None] = {}
        """Every request that is not answered, wherever it stands."""
        self._unrouted: dict[Request, None] = {}
        self._pausing: dict[Request, None] = {}
        self._last_id = 0
        self._wanted: set[str] = set()
        self._refresh: Request | None = None
        self._refresh_after_ms = 0
        self._refresh_timer: TimedCall | None = None
        self._age_timer: TimedCall | None = None
        self._closed: RinglogError | None = None

    # -- what users ask ---------------------------------------------------------------------

    def submit(self, request: Request, now_ms: int) -> None:
        """Start a request. Its answer comes as an `Answered` effect, maybe at once."""
        if self._closed is not None:
            self._finish(request, Answer(error=self._closed, sent=False))
            return
        self._open[request] = None
        request.deadline_ms = now_ms + request.timeout_ms
        request.timer = self._timers.at(request.deadline_ms, lambda _: self._expire(request))
        self._route(request, now_ms)

    def refresh(self, topics: Iterable[str], now_ms: int) -> None:
        """Ask for metadata of `topics` soon; several wishes become one request."""
        self._wanted.update(topics)
        self._start_refresh(now_ms)

    def close(self, error: RinglogError) -> None:
        """Answer everything with `error`, drop every connection, refuse what comes."""
        self._closed = error
        for link in self._pool.links:
            for request in link.in_flight.values():
                request.lost = True
            if link.state is not LinkState.IDLE:
                self._pool.effects.append(Close(link.address))
        for request in list(self._open):
            self._give_up(request, error)

    def take_effects(self) -> list[Effect]:
        """What the driver has to do now, in order; empties the list."""
        effects, self._pool.effects = self._pool.effects, []
        return effects

    @property
    def max_message_bytes(self) -> int | None:
        """Smallest payload limit of the brokers met so far, in bytes; None before the first."""
        known = [link.max_message_bytes for link in self._pool.links if link.max_message_bytes]
        return min(known) if known else None

    # -- events -----------------------------------------------------------------------------

    def on_opened(self, address: str) -> None:
        """A connection stands (or is about to)."""
        self._pool.on_opened(address)

    def on_closed(self, address: str, reason: str, now_ms: int) -> None:
        """A connection could not be made, or went away. `reason` is a clause."""
        link = self._pool.known(address)
        if link is not None and self._closed is None:
            self._pool.drop(link, reason, now_ms, close=False)

    def on_message(self, address: str, frames: list[Buffer], now_ms: int) -> None:
        """A message came."""
        link = self._pool.known(address)
        if link is None or link.state is LinkState.IDLE or not frames:
            return
        try:
            reply = read_reply(frames[0], link.in_flight)
        except MalformedFrame as error:
            reason = f"does not speak ringlog's protocol ({error})"
            link.fatal = NoBrokerReachable(f"{address} {reason}", hint="check the port")
            self._pool.drop(link, reason, now_ms, close=True)
            return
        if reply is None:
            return
        if link.state is LinkState.GREETING:
            if self._pool.on_greeting(link, reply.body, reply.error, now_ms):
                self._on_ready(link, now_ms)
        elif (request := link.in_flight.pop(reply.correlation_id, None)) is not None:
            self._on_reply(request, reply.body, reply.error, frames[1:], now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `on_deadline` wants to be called."""
        return self._timers.next_ms()

    def on_deadline(self, now_ms: int) -> None:
        """Do what is due."""
        self._timers.run(now_ms)

    def _on_ready(self, link: Link, now_ms: int) -> None:
        waiting = list(link.queue)
        link.queue.clear()
        for request in waiting:
            self._send(link, request, now_ms)
        self._retry_unrouted(now_ms)

    def _on_dropped(self, link: Link, waiting: list[Request], now_ms: int) -> None:
        error = unreachable([link])
        for request in waiting:
            self._attempt_failed(request, error, now_ms, after_ms=link.retry_at_ms)
        if self._wants_any():
            self._try_candidate(now_ms)

    # -- routing ----------------------------------------------------------------------------

    def _route(self, request: Request, now_ms: int) -> None:
        if request.done:
            return
        self._unrouted.pop(request, None)
        self._pausing.pop(request, None)
        match request.route:
            case AtAddress(address):
                self._route_to(self._pool.link(address), request, now_ms)
            case AtBroker(broker_id):
                self._route_to_broker(broker_id, (), request, now_ms)
            case AtLeader(topic, partition):
                self._route_to_leader(topic, partition, request, now_ms)
            case AnyBroker():
                self._route_anywhere(request, now_ms)

    def _route_anywhere(self, request: Request, now_ms: int) -> None:
        ready = self._pool.any_ready()
        if ready is not None:
            self._send(ready, request, now_ms)
            return
        self._unrouted[request] = None
        if not self._pool.greeted and request.first_ms is None:
            request.first_ms = now_ms
            self._timers.at(
                now_ms + self.config.bootstrap_timeout_ms,
                lambda _: self._bootstrap_over(request),
            )
        self._try_candidate(now_ms)

    def _route_to_leader(self, topic: str, partition: int, request: Request, now_ms: int) -> None:
        view = self.metadata.topic(topic)
        if view is not None and not 0 <= partition < len(view.partitions):
            count = len(view.partitions)
            self._give_up(
                request,
                UnknownPartition(f"topic {topic!r} has no partition {partition}, it has {count}"),
            )
            return
        leader = self.metadata.leader(topic, partition)
        if leader == NO_LEADER:
            refusal = self.metadata.refusal(topic, partition, request.look)
            if refusal is not None:
                self._give_up(request, refusal)
                return
            request.last_error = self.metadata.trouble(topic, partition) or request.last_error
            self._await_metadata(request, (topic,), now_ms)
        else:
            self._route_to_broker(leader, (topic,), request, now_ms)

    def _route_to_broker(
        self, broker_id: int, topics: tuple[str, ...], request: Request, now_ms: int
    ) -> None:
        # A connection that greeted with this id will do, whatever address it was made by: the
        # advertised one may be out of reach from here.
        ready = self._pool.ready_broker(broker_id)
        if ready is not None:
            self._send(ready, request, now_ms)
            return
        endpoint = self.metadata.endpoint(broker_id)
        if endpoint is None:
            self._await_metadata(request, topics, now_ms)
        else:
            self._route_to(self._pool.link(endpoint), request, now_ms)

    def _route_to(self, link: Link, request: Request, now_ms: int) -> None:
        if link.state is LinkState.READY:
            self._send(link, request, now_ms)
        elif link.state is not LinkState.IDLE:
            link.queue.append(request)
        elif now_ms >= link.retry_at_ms:
            link.queue.append(request)
            self._pool.open(link, now_ms)
        else:
            self._attempt_failed(request, unreachable([link]), now_ms, after_ms=link.retry_at_ms)

    def _wants_any(self) -> bool:
        return any(isinstance(request.route, AnyBroker) for request in self._unrouted)

    def _try_candidate(self, now_ms: int) -> None:
        error = self._pool.try_candidate(now_ms, self._wants_any)
        if error is not None:
            for request in list(self._unrouted):
                self._give_up(request, error)

    def _bootstrap_over(self, request: Request) -> None:
        if request in self._unrouted and not self._pool.greeted:
            self._give_up(request, unreachable(self._pool.candidates()))

    def _retry_unrouted(self, now_ms: int) -> None:
        for request in list(self._unrouted):
            self._route(request, now_ms)

    # -- metadata ---------------------------------------------------------------------------

    def _await_metadata(self, request: Request, topics: tuple[str, ...], now_ms: int) -> None:
        self._unrouted[request] = None
        self.refresh(topics, now_ms)

    def _start_refresh(self, now_ms: int) -> None:
        if self._refresh is not None or self._closed is not None:
            return
        if now_ms < self._refresh_after_ms:
            # Paced, so that a partition without a leader does not make a hot loop.
            if self._refresh_timer is None:
                self._refresh_timer = self._timers.at(self._refresh_after_ms, self._refresh_due)
            return
        self._refresh = Request(
            ANY_BROKER,
            MetadataRequest(sorted(self._wanted)),
            timeout_ms=self.config.request_timeout_ms,
            on_done=self._on_refreshed,
        )
        self._wanted.clear()
        self.submit(self._refresh, now_ms)

    def _refresh_due(self, now_ms: int) -> None:
        self._refresh_timer = None
        self._start_refresh(now_ms)

    def _on_refreshed(self, answer: Answer, now_ms: int) -> None:
        self._refresh = None
        self._refresh_after_ms = now_ms + self.config.retry_backoff_ms
        if isinstance(answer.error, NoBrokerReachable | UnsupportedVersion):
            for request in list(self._unrouted):
                self._give_up(request, answer.error)
        self._retry_unrouted(now_ms)
        if self._wanted:
            self._start_refresh(now_ms)

    def _apply_metadata(self, body: MetadataResponse, now_ms: int) -> None:
        self.metadata.apply(body)
        self.metadata_answers += 1
        errors = {row.name: error_from(row.error) for row in body.topics if row.error is not None}
        for request in list(self._unrouted):
            if isinstance(request.route, AtLeader):
                error = errors.get(request.route.topic)
                if error is not None and not error.retriable:
                    self._give_up(request, error)
        if self._age_timer is None:
            max_age_ms = self.config.metadata_max_age_ms
            self._age_timer = self._timers.at(now_ms + max_age_ms, self._refresh_aged)
        self._retry_unrouted(now_ms)

    def _refresh_aged(self, now_ms: int) -> None:
        self._age_timer = None
        self.refresh(self.metadata.names, now_ms)

    # -- one attempt and its end ------------------------------------------------------------

    def _send(self, link: Link, request: Request, now_ms: int) -> None:
        if request.done:
            return
        self._last_id += 1
        request.correlation_id = self._last_id
        request.address = link.address
        try:
            frames = link.encode(request, self._version)
        except (UnsupportedVersion, InvalidArgument) as error:
            self._give_up(request, error)
            return
        request.attempts += 1
        request.sent = True
        self._pool.effects.append(Send(link.address, frames))
        if request.silent:
            self._finish(request, Answer(address=link.address))
            return
        link.in_flight[request.correlation_id] = request
        if request.retry:
            correlation_id = request.correlation_id
            wait_ms = max(MIN_ATTEMPT_MS, request.timeout_ms // ATTEMPTS_IN_TIME)
            if request.attempt_timer is not None:
                request.attempt_timer.cancel()
            request.attempt_timer = self._timers.at(
                now_ms + wait_ms, lambda now: self._attempt_late(link, correlation_id, now)
            )

    def _attempt_late(self, link: Link, correlation_id: int, now_ms: int) -> None:
        request = link.in_flight.pop(correlation_id, None)
        if request is not None:
            request.lost = True
            late = DeadlineExceeded(f"no answer from {link.address}")
            self._attempt_failed(request, late, now_ms)

    def _on_reply(
        self,
        request: Request,
        body: Message | None,
        error: BrokerError | None,
        frames: list[Buffer],
        now_ms: int,
    ) -> None:
        if error is None:
            answer = Answer(body, frames, lost=request.lost, address=request.address)
            self._finish(request, answer)
            if isinstance(body, MetadataResponse):
                self._apply_metadata(body, now_ms)
        elif request.retry and error.retriable and not isinstance(error, DiskFull):
            # A full disk is left to a person, who wants to know now; producers retry themselves.
            if error.refresh_metadata and isinstance(request.route, AtLeader):
                self.refresh((request.route.topic,), now_ms)
            self._attempt_failed(request, error, now_ms)
        else:
            self._give_up(request, error)

    def _attempt_failed(
        self, request: Request, error: RinglogError, now_ms: int, *, after_ms: int = 0
    ) -> None:
        request.last_error = error
        if request.done:
            return
        if not request.retry:
            self._give_up(request, error)
            return
        pause_ms = self._backoff.pause_ms(max(1, request.attempts), self._rng)
        again_ms = max(now_ms + pause_ms, after_ms)
        self._pausing[request] = None
        if again_ms < request.deadline_ms:
            self._timers.at(again_ms, lambda now: self._route(request, now))

    def _expire(self, request: Request) -> None:
        link = self._pool.known(request.address)
        if link is not None and link.in_flight.pop(request.correlation_id, None) is not None:
            request.lost = True
        text = f"{request.api.name} did not end within {request.timeout_ms} ms"
        if request.last_error is not None:
            text += f": {request.last_error.cause}"
        elif request.sent:
            text += f": no answer from {request.address}"
        else:
            text += f": {unreachable(self._pool.candidates()).cause}"
        self._give_up(request, DeadlineExceeded(text))

    def _give_up(self, request: Request, error: RinglogError) -> None:
        answer = Answer(error=error, sent=request.sent, lost=request.lost, address=request.address)
        self._finish(request, answer)

    def _finish(self, request: Request, answer: Answer) -> None:
        self._open.pop(request, None)
        self._unrouted.pop(request, None)
        self._pausing.pop(request, None)
        if not request.done:
            request.done = True
            request.frames = ()
            request.cancel_timers()
            self._pool.effects.append(Answered(request, answer))
