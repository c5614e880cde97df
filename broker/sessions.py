"""Credit of each peer: what it may ask at once, and what may wait to be sent to it.

Owns the counters and the queues of replies. Must not know zmq: sending is a callable.
ZeroMQ's own limits count messages and drop in silence, so the broker keeps its own in bytes.

Invariants:
    K1  A session holds at most `max_session_requests` unanswered requests and
        `max_session_bytes` of them; all together at most `max_request_bytes`.
    K2  Replies not yet taken by the network are at most `max_session_outbound_bytes` for each
        session, or one reply where that is larger.
    K3  Replies to one peer leave in the order they were given.
    K4  Every reply that is not sent is counted, with the reason.
    K5  A session without requests and replies is forgotten: memory follows work, not the
        number of peers ever seen.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ringlog.broker.config import BrokerConfig
from ringlog.client.errors import BrokerError, Busy, InvalidRequest
from ringlog.storage.types import Buffer

REPLY_OVERHEAD_BYTES = 512
"""Counted for each waiting reply on top of its bytes, so that empty ones are not free."""


class PeerBlocked(Exception):
    """The peer does not take more now; try again later."""


class PeerGone(Exception):
    """No such peer is connected."""


class Transit(Protocol):
    """A reply on its way out of this process."""

    @property
    def done(self) -> bool:
        """Whether its memory has been given back."""


Transmit = Callable[[bytes, Sequence[Buffer]], Transit | None]
"""(peer, frames) -> what to watch, or None. Raises PeerBlocked, PeerGone."""


class Drops(msgspec.Struct):
    """Replies that never left, by reason (K4)."""

    vanished: int = 0
    outbound_full: int = 0


class _Waiting(msgspec.Struct):
    frames: Sequence[Buffer]
    size_bytes: int


class _Moving(msgspec.Struct):
    transit: Transit
    size_bytes: int


class Session:
    """One peer, while it has work here."""

    __slots__ = ("moving", "outbound_bytes", "request_bytes", "requests", "waiting")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.outbound_bytes = 0
        self.waiting: collections.deque[_Waiting] = collections.deque()
        self.moving: collections.deque[_Moving] = collections.deque()

    @property
    def idle(self) -> bool:
        """Whether it can be forgotten (K5)."""
        return not self.requests and not self.waiting and not self.moving


class Sessions:
    """All peers with work in this broker. Used by the reactor thread only."""

    def __init__(self, config: BrokerConfig, transmit: Transmit) -> None:
        self._config = config
        self._transmit = transmit
        self._sessions: dict[bytes, Session] = {}
        self._unsettled: set[bytes] = set()
        self.request_bytes = 0
        self.outbound_bytes = 0
        self.refused = 0
        self.drops = Drops()

    def __len__(self) -> int:
        """Number of peers with work."""
        return len(self._sessions)

    @property
    def unsettled(self) -> bool:
        """Whether replies wait or move, so that `sweep` should be called again soon."""
        return bool(self._unsettled)

    def admit(self, peer: bytes, size_bytes: int) -> BrokerError | None:
        """Take a request of `size_bytes` in, or say why not. `finish` gives it back."""
        session = self._sessions.get(peer)
        if session is None:
            session = self._sessions[peer] = Session()
        refusal = self._refusal(session, size_bytes)
        if refusal is not None:
            self.refused += 1
            self._forget_if_idle(peer, session)
            return refusal
        session.requests += 1
        session.request_bytes += size_bytes
        self.request_bytes += size_bytes
        return None

    def finish(self, peer: bytes, size_bytes: int) -> None:
        """A request taken in has ended, answered or not."""
        session = self._sessions[peer]
        session.requests -= 1
        session.request_bytes -= size_bytes
        self.request_bytes -= size_bytes
        assert session.requests >= 0, "K1: credit given back twice"
        assert session.request_bytes >= 0, "K1: more credit given back than taken"
        self._forget_if_idle(peer, session)

    def room_bytes(self, peer: bytes) -> int:
        """Bytes a reply to `peer` may have without being in danger of a drop; at least 0."""
        session = self._sessions.get(peer)
        used = session.outbound_bytes if session is not None else 0
        room = min(
            self._config.max_session_outbound_bytes - used,
            self._config.max_outbound_bytes - self.outbound_bytes,
        )
        return max(0, room)

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> bool:
        """Send a reply now, or keep it until the peer takes it. False: dropped and counted."""
        size_bytes = REPLY_OVERHEAD_BYTES + sum(len(frame) for frame in frames)
        session = self._sessions.get(peer)
        if session is None:
            session = self._sessions[peer] = Session()
        over = session.outbound_bytes + size_bytes > self._config.max_session_outbound_bytes
        if session.outbound_bytes and over:
            self._release(peer, session)
            over = session.outbound_bytes + size_bytes > self._config.max_session_outbound_bytes
        if session.outbound_bytes and over:
            self.drops.outbound_full += 1
            return False
        if session.waiting:
            self._keep(peer, session, _Waiting(frames, size_bytes))
            return True
        try:
            transit = self._transmit(peer, frames)
        except PeerBlocked:
            self._keep(peer, session, _Waiting(frames, size_bytes))
        except PeerGone:
            self.drops.vanished += 1
            self._forget_if_idle(peer, session)
            return False
        else:
            self._moved(peer, session, transit, size_bytes)
        return True

    def sweep(self) -> None:
        """Try waiting replies again and count what has left. Call while `unsettled`."""
        for peer in list(self._unsettled):
            session = self._sessions[peer]
            self._release(peer, session)
            self._push(peer, session)
            if not session.waiting and not session.moving:
                self._unsettled.discard(peer)
            self._forget_if_idle(peer, session)

    def _refusal(self, session: Session, size_bytes: int) -> BrokerError | None:
        config = self._config
        if size_bytes > config.max_session_bytes:
            return InvalidRequest(
                f"the request has {size_bytes} bytes, the limit is {config.max_session_bytes}",
                hint="send fewer batches at once, or raise max_session_bytes on the broker",
            )
        if session.requests >= config.max_session_requests:
            return _busy("unanswered requests of this connection", "max_session_requests", config)
        if session.request_bytes + size_bytes > config.max_session_bytes:
            return _busy(
                "bytes of unanswered requests of this connection", "max_session_bytes", config
            )
        if self.request_bytes + size_bytes > config.max_request_bytes:
            return _busy("bytes of unanswered requests", "max_request_bytes", config)
        if session.outbound_bytes >= config.max_session_outbound_bytes:
            return _busy(
                "bytes of replies this connection has not read",
                "max_session_outbound_bytes",
                config,
            )
        if self.outbound_bytes >= config.max_outbound_bytes:
            return _busy("bytes of replies not read by clients", "max_outbound_bytes", config)
        return None

    def _keep(self, peer: bytes, session: Session, waiting: _Waiting) -> None:
        session.waiting.append(waiting)
        self._add_outbound(session, waiting.size_bytes)
        self._unsettled.add(peer)

    def _moved(
        self, peer: bytes, session: Session, transit: Transit | None, size_bytes: int
    ) -> None:
        if transit is None:
            self._forget_if_idle(peer, session)
            return
        session.moving.append(_Moving(transit, size_bytes))
        self._add_outbound(session, size_bytes)
        self._unsettled.add(peer)

    def _push(self, peer: bytes, session: Session) -> None:
        while session.waiting:
            head = session.waiting[0]
            try:
                transit = self._transmit(peer, head.frames)
            except PeerBlocked:
                return
            except PeerGone:
                self.drops.vanished += len(session.waiting)
                self._add_outbound(session, -sum(one.size_bytes for one in session.waiting))
                session.waiting.clear()
                return
            session.waiting.popleft()
            self._add_outbound(session, -head.size_bytes)
            self._moved(peer, session, transit, head.size_bytes)

    def _release(self, peer: bytes, session: Session) -> None:
        while session.moving and session.moving[0].transit.done:
            self._add_outbound(session, -session.moving.popleft().size_bytes)
        if not session.waiting and not session.moving:
            self._unsettled.discard(peer)

    def _add_outbound(self, session: Session, size_bytes: int) -> None:
        session.outbound_bytes += size_bytes
        self.outbound_bytes += size_bytes

    def _forget_if_idle(self, peer: bytes, session: Session) -> None:
        if session.idle:
            self._sessions.pop(peer, None)


def _busy(what: str, name: str, config: BrokerConfig) -> Busy:
    return Busy(
        f"too many {what}: the limit is {getattr(config, name)}",
        hint=f"wait for answers before sending more, or raise {name} on the broker",
    )
