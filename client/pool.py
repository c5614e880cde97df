"""The connections of one client: opening, greeting, dropping, and which address to try next.

Owns links and their backoff. Must not know routing or retries of requests: `session` is told
when a link is ready or gone. Must not know sockets.

Invariants:
    O1  An address is tried again only after its pause; the pause grows with failures in a row.
    O2  With nothing ready and an address left to try, some address is being tried or a timer is
        set to try one.
    O3  Every link that is not IDLE has a timer or a living connection behind it.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ringlog.client.config import ClientConfig
from ringlog.client.errors import BrokerError, NoBrokerReachable, RinglogError, UnsupportedVersion
from ringlog.client.links import Link, LinkState
from ringlog.client.messages import VersionsResponse
from ringlog.client.metadata import MetadataCache
from ringlog.client.requests import Answer, Request
from ringlog.client.retry import Backoff
from ringlog.client.timers import TimedCall, Timers
from ringlog.storage.types import Buffer

NEXT_CANDIDATE_MS = 250
"""A further address is tried while an earlier one has not answered for this long."""


class Open(NamedTuple):
    """Resolve and connect."""

    address: str


class Close(NamedTuple):
    """Drop the connection at once."""

    address: str


class Send(NamedTuple):
    """Put one message on an open connection."""

    address: str
    frames: list[Buffer]


class Answered(NamedTuple):
    """Hand an answer to whoever asked."""

    request: Request
    answer: Answer


Effect = Open | Close | Send | Answered

OnDropped = Callable[[Link, list[Request], int], None]
"""(link, requests that were queued or in flight, now_ms)."""


class LinkPool:
    """See the module. Driven by the session that owns it."""

    def __init__(
        self,
        config: ClientConfig,
        rng: random.Random,
        timers: Timers,
        metadata: MetadataCache,
        *,
        client_version: str,
        on_dropped: OnDropped,
    ) -> None:
        self.greeted = False
        """Whether any broker has ever greeted."""
        self.effects: list[Effect] = []
        self._config = config
        self._rng = rng
        self._timers = timers
        self._metadata = metadata
        self._version = client_version
        self._on_dropped = on_dropped
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._links: dict[str, Link] = {}
        self._next_candidate_ms = 0
        self._candidate_timer: TimedCall | None = None

    # -- looking up -------------------------------------------------------------------------

    def link(self, address: str) -> Link:
        """The link of an address, made if absent."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address)
        return link

    def known(self, address: str) -> Link | None:
        """The link of an address, if there is one."""
        return self._links.get(address)

    @property
    def links(self) -> tuple[Link, ...]:
        """Every link."""
        return tuple(self._links.values())

    def any_ready(self) -> Link | None:
        """A ready link, chosen at random."""
        ready = [link for link in self._links.values() if link.state is LinkState.READY]
        if len(ready) > 1:
            return self._rng.choice(ready)
        return ready[0] if ready else None

    def ready_broker(self, broker_id: int) -> Link | None:
        """A ready link to this broker, by whatever address it was made."""
        for link in self._links.values():
            if link.broker_id == broker_id and link.state is LinkState.READY:
                return link
        return None

    # -- one link ---------------------------------------------------------------------------

    def open(self, link: Link, now_ms: int) -> None:
        """Begin to connect."""
        link.state = LinkState.OPENING
        wait_ms = self._config.connect_timeout_ms
        link.timer = self._timers.at(now_ms + wait_ms, lambda now: self._open_late(link, now))
        self.effects.append(Open(link.address))

    def on_opened(self, address: str) -> None:
        """The connection stands (or is about to): greet."""
        link = self._links.get(address)
        if link is not None and link.state is LinkState.OPENING:
            link.state = LinkState.GREETING
            frame = link.greeting(self._config.client_id, self._version)
            self.effects.append(Send(address, [frame]))

    def on_greeting(self, link: Link, body: object, error: BrokerError | None, now_ms: int) -> bool:
        """Judge the answer to the greeting; True when the link is now ready."""
        if error is None and isinstance(body, VersionsResponse):
            try:
                link.on_greeting(body, self._version)
            except UnsupportedVersion as mismatch:
                error = mismatch
        if error is not None:
            if isinstance(error, UnsupportedVersion):
                link.fatal = error = self._with_both_versions(link, error)
            self.drop(link, error.cause, now_ms, close=True)
            return False
        link.state = LinkState.READY
        link.attempts = 0
        link.reason = ""
        link.fatal = None
        self.greeted = True
        if link.timer is not None:
            link.timer.cancel()
        return True

    def drop(self, link: Link, reason: str, now_ms: int, *, close: bool) -> None:
        """Back to IDLE. `close`: the connection still stands and has to go."""
        if link.state is LinkState.IDLE:
            return
        if close:
            self.effects.append(Close(link.address))
        if link.timer is not None:
            link.timer.cancel()
        link.state = LinkState.IDLE
        link.reason = reason
        link.attempts += 1
        link.retry_at_ms = now_ms + self._backoff.pause_ms(link.attempts, self._rng)
        waiting = [*link.in_flight.values(), *link.queue]
        for request in link.in_flight.values():
            request.lost = True
        link.in_flight = {}
        link.queue.clear()
        self._on_dropped(link, waiting, now_ms)

    def _open_late(self, link: Link, now_ms: int) -> None:
        wait_ms = self._config.connect_timeout_ms
        if link.state is LinkState.GREETING:
            reason = f"accepts connections, but no ringlog broker answered within {wait_ms} ms"
        else:
            reason = f"no connection within {wait_ms} ms"
        self.drop(link, reason, now_ms, close=True)

    def _with_both_versions(self, link: Link, error: UnsupportedVersion) -> UnsupportedVersion:
        ours = f"ringlog {self._version}"
        if ours in error.cause:
            return error
        return UnsupportedVersion(
            f"the broker at {link.address} refuses this client ({ours}): {error.cause}",
            hint=error.hint or "install a client of the broker's version",
        )

    # -- which address next -----------------------------------------------------------------

    def candidates(self) -> list[Link]:
        """Links of every address known: to start from, and advertised."""
        advertised = [broker.endpoint for broker in self._metadata.brokers]
        addresses = dict.fromkeys([*self._config.bootstrap, *advertised])
        return [self.link(address) for address in addresses]

    def try_candidate(self, now_ms: int, wanted: Callable[[], bool]) -> RinglogError | None:
        """Open one more link, unless one was begun just now; look again soon.

        Args:
            now_ms: the monotonic clock.
            wanted: asked later whether anybody still waits for any broker.

        Returns:
            The error to give up with when no address can ever answer (before the first greeting
            only), else None.
        """
        candidates = self.candidates()
        if not self.greeted and all(link.fatal is not None for link in candidates):
            return self._hopeless(candidates)
        resting = [link for link in candidates if link.state is LinkState.IDLE]
        due = [link for link in resting if now_ms >= link.retry_at_ms]
        busy = len(resting) < len(candidates)
        if due and (not busy or now_ms >= self._next_candidate_ms):
            link = self._rng.choice(due)
            self._next_candidate_ms = now_ms + NEXT_CANDIDATE_MS
            self.open(link, now_ms)
            resting.remove(link)
            busy = True
        self._look_again(resting, now_ms, wanted, busy=busy)
        return None

    def _look_again(
        self, resting: list[Link], now_ms: int, wanted: Callable[[], bool], *, busy: bool
    ) -> None:
        if self._candidate_timer is not None:
            self._candidate_timer.cancel()
            self._candidate_timer = None
        if resting:
            when_ms = max(min(link.retry_at_ms for link in resting), now_ms + 1)
            if busy:
                when_ms = max(when_ms, self._next_candidate_ms)

            def again(now: int) -> None:
                if wanted():
                    self.try_candidate(now, wanted)

            self._candidate_timer = self._timers.at(when_ms, again)

    def _hopeless(self, candidates: Sequence[Link]) -> RinglogError:
        error: RinglogError = unreachable(candidates)
        mismatches = [
            link.fatal for link in candidates if isinstance(link.fatal, UnsupportedVersion)
        ]
        if len(mismatches) == len(candidates):
            error = mismatches[0]
        for link in candidates:
            # The next call tries again: whoever answered may have been put right.
            link.fatal = None
        return error


def reasons(links: Iterable[Link]) -> tuple[tuple[str, str], ...]:
    """(address, reason) of each link."""
    return tuple((link.address, link.reason or "no answer yet") for link in links)


def unreachable(links: Iterable[Link]) -> NoBrokerReachable:
    """The error that names each address with its reason."""
    rows = reasons(links)
    text = "; ".join(f"{address}: {reason}" for address, reason in rows)
    if len(rows) != 1:
        text = f"no broker can be reached: {text}"
    return NoBrokerReachable(
        text, reasons=rows, hint="check the address, and that `ringlog broker` runs there"
    )
