"""One IO thread per client object: it owns the sockets and drives the session.

Owns zmq, name resolution, the thread, the wake-up and the clock of the client. Decides nothing:
`session` does, and the agents (the producer's and the consumer's cores). The API for agents::

    client = Client(config)
    answer = client.call(AtLeader("orders", 0), body, frames)     blocks; any thread but the IO's
    client.submit(request)                                        any thread; request.on_done on IO
    client.post(fn)                                               fn(now_ms) on the IO thread
    client.attach(agent)                                          agent.turn(now_ms) after events
    client.session                                                IO thread only

Invariants:
    C1  Sockets, session and agents are touched by the IO thread alone.
    C2  The IO thread never waits but in its one poll; names are resolved on a thread of their own.
    C3  A caller's wait ends with its deadline or an interrupt, also when the IO thread dies: that
        answers everything with the error that killed it, at once, whatever stood half done.
    C4  After a fork the child's copy refuses every call with `ClientForked`; it touches neither
        the sockets nor the thread, which are the parent's.
    C5  A connection that closed is never reused: the next one resolves the name anew.
"""

import logging
import os
import random
import socket
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import zmq

from ringlog import __version__
from ringlog.client.config import ClientConfig, split_address
from ringlog.client.errors import (
    ClientClosed,
    ClientForked,
    InternalError,
    InvalidArgument,
    RinglogError,
)
from ringlog.client.messages import Message
from ringlog.client.pool import Answered, Close, Effect, Open, Send
from ringlog.client.requests import Answer, Request, Route
from ringlog.client.session import Session
from ringlog.storage.types import Buffer

log = logging.getLogger("ringlog.client")

COPY_BELOW_BYTES = 64 * 1024
"""Frames from this size on are handed to zmq without a copy."""

MESSAGES_PER_ROUND = 64
"""Messages taken from one connection before the others and the deadlines have their turn."""

MAX_FRAME_BYTES = 256 * 1024 * 1024
HEARTBEAT_MS = 5_000
HEARTBEAT_TIMEOUT_MS = 15_000
CLOSE_LINGER_MS = 1_000
"""How long a closing client lets what it has sent leave the process."""

_GUARD_MS = 5_000
_FAILED_EVENTS: dict[int, str] = {
    zmq.EVENT_DISCONNECTED: "the connection was closed by the other side",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "accepts connections, but is no ringlog broker",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "accepts connections, but is no ringlog broker",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "refuses this client (authentication)",
    zmq.EVENT_CLOSED: "the connection was closed",
    zmq.EVENT_CONNECT_RETRIED: "the connection could not be made",
}


class Agent(Protocol):
    """A sans-IO core that the IO thread drives."""

    def turn(self, now_ms: int) -> int | None:
        """Do what is due. Called after every round of events.

        Returns:
            When it wants to be called again even if nothing happens (monotonic ms), or None.
        """

    def on_client_ended(self, error: RinglogError) -> None:
        """The IO thread ended with `error`: end whatever is open. Again when more came late."""


class _Wire:
    """The sockets of one open connection."""

    __slots__ = ("dealer", "monitor")

    def __init__(self, dealer: "zmq.Socket[bytes]", monitor: "zmq.Socket[bytes]") -> None:
        self.dealer = dealer
        self.monitor = monitor


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.on_forked()


os.register_at_fork(after_in_child=_after_fork_in_child)


def forked_error() -> ClientForked:
    """What every call in the child of a fork raises."""
    return ClientForked(
        "this object was used before the fork and belongs to the parent process",
        hint="make a new one in the child",
    )


def monotonic_ms() -> int:
    """The clock of every deadline, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Client:
    """See the module. Starts its thread at the first call."""

    def __init__(self, config: ClientConfig, rng: random.Random | None = None) -> None:
        self.config = config
        # Jitter and choice of addresses: nothing secret depends on it.
        rng = rng or random.Random()  # noqa: S311 not for cryptography
        self.session = Session(config, rng, client_version=__version__)
        self._agents: list[Agent] = []
        self._inbox: deque[Callable[[int], None]] = deque()
        self._effects: deque[Effect] = deque()
        """Not yet carried out."""
        self._asleep = False
        self._stopping = False
        self.forked = False
        """Whether this is a child's copy of what the parent uses."""
        self._failure: RinglogError | None = None
        self._start_lock = threading.Lock()
        self._ending = threading.RLock()
        """Callbacks run under it, and may call this client: it refuses them."""
        self._thread: threading.Thread | None = None
        self._wires: dict[str, _Wire] = {}
        self._probes: dict[str, object] = {}
        _clients.add(self)

    # -- any thread -------------------------------------------------------------------------

    def post(self, fn: Callable[[int], None]) -> None:
        """Call `fn(now_ms)` on the IO thread, soon.

        Raises:
            ClientClosed, ClientForked, or the error that stopped the IO thread.
        """
        if self._thread is None or self._failure is not None or self.forked:
            self._start()
        self._inbox.append(fn)
        if self._asleep:
            self._asleep = False
            self._wake()
        elif self._failure is not None:
            # The thread ended between the check and the append; nobody else empties the inbox.
            self._refuse_inbox()

    def submit(self, request: Request) -> None:
        """Start a request; `request.on_done(answer, now_ms)` is called on the IO thread."""
        self.post(lambda now_ms: self.session.submit(request, now_ms))

    def call(
        self,
        route: Route,
        body: Message,
        frames: Sequence[Buffer] = (),
        *,
        timeout_ms: int | None = None,
        retry: bool = True,
    ) -> Answer:
        """Send a request and wait for its answer, which may hold an error.

        Raises:
            InvalidArgument: called on the IO thread, by a callback.
        """
        self.refuse_io_thread("a blocking call")
        wait_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        done = threading.Lock()
        done.acquire()
        answers: list[Answer] = []

        def on_done(answer: Answer, _now_ms: int) -> None:
            answers.append(answer)
            done.release()

        self.submit(Request(route, body, frames, timeout_ms=wait_ms, on_done=on_done, retry=retry))
        # The session answers by the deadline; the guard only catches a thread that is stuck.
        if not done.acquire(timeout=(wait_ms + _GUARD_MS) / 1000):
            raise InternalError(
                f"the client's IO thread did not answer within {wait_ms + _GUARD_MS} ms",
                hint="a callback that blocks holds it up",
            )
        return answers[0]

    def refuse_io_thread(self, what: str) -> None:
        """Raise InvalidArgument on the IO thread: waiting there for itself would never end."""
        if threading.current_thread() is self._thread:
            raise InvalidArgument(
                f"{what} inside a callback would wait for itself",
                hint="hand the work to another thread",
            )

    def attach(self, agent: Agent) -> None:
        """Drive `agent` from the first call on; before that call only."""
        assert self._thread is None, "agents are attached before the thread runs"
        self._agents.append(agent)

    def close(self, timeout: float | None = None) -> None:
        """Stop the thread; everything still open is answered with ClientClosed. Idempotent."""
        with self._start_lock:
            thread = self._thread
            if thread is None and self._failure is None:
                self._failure = ClientClosed("the client is closed", hint="make a new one")
        if thread is None or self.forked:
            return
        self._stopping = True
        self._wake()
        if threading.current_thread() is not thread:
            thread.join(timeout)

    def on_forked(self) -> None:
        """In the child: leave everything to the parent, unless nothing was started."""
        self._start_lock = threading.Lock()
        self.forked = self._thread is not None

    def _start(self) -> None:
        with self._start_lock:
            if self.forked:
                raise forked_error()
            if self._failure is not None:
                raise self._failure
            if self._thread is None:
                self._wake_in, self._wake_out = socket.socketpair()
                self._wake_in.setblocking(False)  # noqa: FBT003 the signature is the standard library's
                self._wake_out.setblocking(False)  # noqa: FBT003 the signature is the standard library's
                self._thread = threading.Thread(
                    target=self._run, name=f"ringlog-client-{self.config.client_id}", daemon=True
                )
                self._thread.start()

    def _wake(self) -> None:
        try:
            self._wake_out.send(b"\0")
        except (BlockingIOError, OSError):
            # Full: the thread will wake anyway. Closed: the thread has ended.
            return

    # -- the IO thread ----------------------------------------------------------------------

    def _run(self) -> None:
        ended: RinglogError = ClientClosed("the client is closed", hint="make a new one")
        self._context = zmq.Context(io_threads=1)
        self._poller = zmq.Poller()
        self._poller.register(self._wake_in.fileno(), zmq.POLLIN)
        try:
            while not self._stopping:
                self._round()
        except Exception as error:
            log.exception("the IO thread of client %s failed", self.config.client_id)
            ended = InternalError(f"the client's IO thread failed: {error!r}", hint="report it")
        finally:
            self._end(ended)

    def _round(self) -> None:
        now_ms = monotonic_ms()
        deadline_ms = self._settle(now_ms)
        timeout_ms = None if deadline_ms is None else max(0, deadline_ms - now_ms)
        self._asleep = True
        if self._inbox or self._stopping:
            timeout_ms = 0
        ready = dict(self._poller.poll(timeout_ms))
        self._asleep = False
        if not ready:
            return
        if self._wake_in.fileno() in ready:
            self._wake_in.recv(4096)
        now_ms = monotonic_ms()
        for address, wire in list(self._wires.items()):
            if wire.dealer in ready:
                self._receive(address, wire, now_ms)
            if wire.monitor in ready and self._wires.get(address) is wire:
                self._watch(address, wire, now_ms)

    def _settle(self, now_ms: int) -> int | None:
        """Run everything that is due; returns when something is due next."""
        session = self.session
        while True:
            self._run_inbox(now_ms)
            due_ms = session.next_deadline_ms()
            if due_ms is not None and due_ms <= now_ms:
                session.on_deadline(now_ms)
            deadlines = [agent.turn(now_ms) for agent in self._agents]
            effects = self._effects
            effects.extend(session.take_effects())
            if not effects:
                deadlines.append(session.next_deadline_ms())
                return min((when for when in deadlines if when is not None), default=None)
            while effects:
                match effects.popleft():
                    case Send(address, frames):
                        self._send(address, frames)
                    case Answered(request, answer):
                        request.on_done(answer, now_ms)
                    case Open(address):
                        self._probe(address)
                    case Close(address):
                        self._drop(address)

    def _run_inbox(self, now_ms: int) -> None:
        inbox = self._inbox
        while inbox:
            inbox.popleft()(now_ms)

    def _send(self, address: str, frames: Sequence[Buffer]) -> None:
        wire = self._wires.get(address)
        if wire is None:
            return
        last = len(frames) - 1
        for index, frame in enumerate(frames):
            flags = zmq.NOBLOCK if index == last else zmq.NOBLOCK | zmq.SNDMORE
            wire.dealer.send(frame, flags, copy=len(frame) < COPY_BELOW_BYTES)

    def _receive(self, address: str, wire: _Wire, now_ms: int) -> None:
        for _ in range(MESSAGES_PER_ROUND):
            # Asking costs 1 us, the exception of a read in vain several times that.
            events = wire.dealer.getsockopt(zmq.EVENTS)
            assert isinstance(events, int)
            if not events & zmq.POLLIN:
                return
            frames = wire.dealer.recv_multipart(zmq.NOBLOCK, copy=False)
            self.session.on_message(address, [frame.buffer for frame in frames], now_ms)

    def _watch(self, address: str, wire: _Wire, now_ms: int) -> None:
        while self._wires.get(address) is wire:
            try:
                fact, _address = wire.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            # libzmq: the event's number in 16 bits, its value in 32, in the machine's byte order.
            reason = _FAILED_EVENTS.get(int.from_bytes(fact[:2], sys.byteorder))
            if reason is not None:
                # What came before the end counts.
                self._receive(address, wire, now_ms)
                self._drop(address)
                log.info("connection to %s: %s", address, reason)
                self.session.on_closed(address, reason, now_ms)

    # -- opening and closing ----------------------------------------------------------------

    def _probe(self, address: str) -> None:
        """Resolve and dial on a thread of its own: zmq does not say why it cannot connect."""
        token = object()
        self._probes[address] = token
        timeout_s = self.config.connect_timeout_ms / 1000

        def run() -> None:
            found = _dial(address, timeout_s)
            self._inbox.append(lambda now_ms: self._probed(address, token, found, now_ms))
            self._wake()

        threading.Thread(target=run, name=f"ringlog-dial-{address}", daemon=True).start()

    def _probed(self, address: str, token: object, found: "_Dialled", now_ms: int) -> None:
        if self._stopping or self._probes.get(address) is not token:
            return
        del self._probes[address]
        if found.endpoint is None:
            log.info("connection to %s: %s", address, found.reason)
            self.session.on_closed(address, found.reason, now_ms)
            return
        self._wires[address] = self._connect(found.endpoint)
        self.session.on_opened(address)

    def _connect(self, endpoint: str) -> _Wire:
        dealer: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.IPV6, 1)
        dealer.setsockopt(zmq.RECONNECT_IVL, -1)
        # What may wait in the socket is bounded above it: by buffer_memory and by what was asked
        # for. A limit here would make `send` fail with part of a message written.
        dealer.setsockopt(zmq.SNDHWM, 0)
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        dealer.setsockopt(zmq.HANDSHAKE_IVL, self.config.connect_timeout_ms)
        dealer.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        dealer.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        mask = 0
        for event in _FAILED_EVENTS:
            mask |= event
        monitor = dealer.get_monitor_socket(mask)
        self._poller.register(dealer, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)
        dealer.connect(endpoint)
        return _Wire(dealer, monitor)

    def _drop(self, address: str, linger_ms: int = 0) -> None:
        self._probes.pop(address, None)
        wire = self._wires.pop(address, None)
        if wire is not None:
            self._poller.unregister(wire.dealer)
            self._poller.unregister(wire.monitor)
            wire.dealer.disable_monitor()
            wire.monitor.close(linger=0)
            wire.dealer.close(linger=linger_ms)

    def _end(self, error: RinglogError) -> None:
        """Answer everything, refuse what comes, give every resource back."""
        self._failure = error
        self._last_call(lambda: self.session.close(error))
        self._refuse_inbox()
        for address in list(self._wires):
            self._drop(address, CLOSE_LINGER_MS)
        self._refuse_inbox()
        self._wake_in.close()
        self._wake_out.close()
        self._context.term()

    def _refuse_inbox(self) -> None:
        """Run what was posted against the closed session; by whichever thread comes late.

        Whatever fails here, everybody else who waits is woken.
        """
        now_ms, error = monotonic_ms(), self._failure
        assert error is not None, "the IO thread has ended"
        with self._ending:
            while self._inbox:
                self._last_call(partial(self._inbox.popleft(), now_ms))
            self._effects.extend(self.session.take_effects())
            while self._effects:
                effect = self._effects.popleft()
                if isinstance(effect, Answered):
                    self._last_call(partial(effect.request.on_done, effect.answer, now_ms))
            for agent in self._agents:
                self._last_call(partial(agent.on_client_ended, error))

    def _last_call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("at the end of client %s", self.config.client_id)


class _Dialled:
    """What became of dialling: a zmq endpoint, or the reason there is none."""

    __slots__ = ("endpoint", "reason")

    def __init__(self, endpoint: str | None, reason: str = "") -> None:
        self.endpoint = endpoint
        self.reason = reason


def _dial(address: str, timeout_s: float) -> _Dialled:
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return _Dialled(None, f"the name {host!r} does not resolve ({_text(error)})")
    reason = "the name has no address"
    for family, kind, protocol, _, place in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.settimeout(timeout_s)
                probe.connect(place)
        except TimeoutError:
            reason = f"no connection within {timeout_s:g} s"
        except OSError as error:
            reason = _text(error).lower()
        else:
            ip = f"[{place[0]}]" if family == socket.AF_INET6 else str(place[0])
            return _Dialled(f"tcp://{ip}:{port}")
    return _Dialled(None, reason)


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
