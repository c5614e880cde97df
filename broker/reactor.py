"""The only event loop of a broker, and the only module of it that knows ZeroMQ.

Owns the ROUTER socket, the poll and the clock's reading for timers.
Must not know what a message means: it goes to `on_message`.

One turn: wait for the socket, the eventfd or the next deadline; run completions; receive up to
`MESSAGES_PER_TURN` messages; run due timers; try waiting replies again.

Invariants:
    RX1 The socket is touched by the thread of `run` only (after `bind`).
    RX2 Nothing in a turn waits but the poll.
    RX3 A message with more than `MAX_PAYLOAD_FRAMES` payload frames, or more payload bytes than
        a session may hold, is read to its end without being kept, a bounded number of frames
        per turn, and answered.
    RX4 A callback that raises is our bug in the middle of a state change: it goes to
        `on_broken`, which ends the broker.

Source: zmq_socket(7) on ROUTER_MANDATORY; zmq_setsockopt(3). Measured: without MANDATORY a
ROUTER drops in silence towards a slow peer; unbinding ends established connections too.
"""

import errno
import logging
import time
from collections.abc import Callable, Sequence

import zmq
from zmq.utils.monitor import parse_monitor_message

from ringlog.broker.completions import Completions
from ringlog.broker.config import BrokerConfig
from ringlog.broker.connections import Connections
from ringlog.broker.endpoint import Endpoint
from ringlog.broker.log_limits import LimitedLog
from ringlog.broker.sessions import PeerBlocked, PeerGone, Sessions, Transit
from ringlog.broker.timers import HeapTimer, TimerHeap
from ringlog.client.errors import RinglogError
from ringlog.client.wire import MAX_HEADER_BYTES, MAX_PAYLOAD_FRAMES
from ringlog.storage.types import Buffer

MESSAGES_PER_TURN = 256
SKIPPED_FRAMES_PER_TURN = 10_000
SWEEP_INTERVAL_MS = 5
ZERO_COPY_BYTES = 64 << 10
"""From this size on a frame is neither copied in nor out."""

MISSED_HEARTBEATS = 3

LINGER_MS = 500
"""How long the end of the process waits for replies already handed to ZeroMQ."""

_log = logging.getLogger(__name__)


class ListenFailed(RinglogError):
    """The address cannot be listened on."""

    code = "LISTEN_FAILED"


OnMessage = Callable[[bytes, bytes | memoryview, list[memoryview]], None]
OnOversized = Callable[[bytes, bytes | memoryview, str, str], None]


class _Skipped:
    """A message that is being read to its end without being kept."""

    __slots__ = ("cause", "header", "hint", "peer")

    def __init__(self, peer: bytes, header: bytes | memoryview, cause: str, hint: str) -> None:
        self.peer = peer
        self.header = header
        self.cause = cause
        self.hint = hint


class _Transits:
    """Several frames on their way out: done when each is."""

    __slots__ = ("_trackers",)

    def __init__(self, trackers: list[zmq.MessageTracker]) -> None:
        self._trackers = trackers

    @property
    def done(self) -> bool:
        """Whether ZeroMQ has given every frame back."""
        return all(tracker.done for tracker in self._trackers)


class Reactor:
    """Poll, timers, completions. `post` may be called from any thread."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._context = zmq.Context(io_threads=1)
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(
            zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_ACCEPT_FAILED
        )
        self._completions = Completions()
        self._timers = TimerHeap()
        self._skipping: _Skipped | None = None
        self._sweep_timer: HeapTimer | None = None
        self._running = True
        self._receiving = False
        self._on_message: OnMessage | None = None
        self._on_oversized: OnOversized | None = None
        self._limited = LimitedLog(_log)
        self.on_broken: Callable[[Exception], None] = _raise
        self.sessions = Sessions(config, self._transmit)
        self.connections = Connections(
            most=config.max_connections,
            silent_ms=(MISSED_HEARTBEATS + 1) * config.heartbeat_interval_ms,
        )
        self._poller = zmq.Poller()
        self._poller.register(self._completions.fileno(), zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    # -- Clock, timers, completions ------------------------------------------------------

    @staticmethod
    def monotonic_ms() -> int:
        """Monotonic clock, milliseconds."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def now_ms() -> int:
        """Wall clock, milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> HeapTimer:
        """Call back once the monotonic clock has reached `monotonic_ms`."""
        return self._timers.call_at(monotonic_ms, callback)

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` on the reactor thread. Any thread."""
        self._completions.post(call)

    # -- Life ----------------------------------------------------------------------------

    def bind(self, endpoint: Endpoint) -> Endpoint:
        """Listen; requests are read only after `receive_from`. Gives the address bound.

        Raises:
            ListenFailed: the port is taken, the address is not this machine's, no permission.
        """
        self._set_options(endpoint)
        try:
            self._socket.bind(f"tcp://{Endpoint(endpoint.address, endpoint.port)}")
        except zmq.ZMQError as error:
            raise _listen_failed(endpoint, error) from error
        bound = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        port = int(bound.rstrip(b"\0").rpartition(b":")[2])
        self.connections.port = port
        self._end_silent_connections()
        return Endpoint(endpoint.host, port)

    def limit_connections(self, most: int) -> None:
        """Keep at most that many connections (before `bind`)."""
        self.connections.most = most

    def receive_from(self, on_message: OnMessage, on_oversized: OnOversized) -> None:
        """Begin to read requests."""
        self._on_message = on_message
        self._on_oversized = on_oversized
        if not self._receiving:
            self._receiving = True
            self._poller.register(self._socket, zmq.POLLIN)

    def stop_receiving(self) -> None:
        """Leave further requests unread. Idempotent."""
        if self._receiving:
            self._receiving = False
            self._poller.unregister(self._socket)

    def run(self) -> None:
        """Turn until `end`."""
        while self._running:
            try:
                self._turn()
            # A callback of ours broke in the middle of something; see RX4.
            except Exception as error:  # noqa: BLE001
                self.on_broken(error)

    def close(self) -> None:
        """Close socket and context. Replies already handed over get `LINGER_MS`. Idempotent."""
        if self._socket.closed:
            return
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=LINGER_MS)
        self._context.term()
        self._completions.close()

    def end(self) -> None:
        """End `run` after the present turn. Reactor thread."""
        self._running = False

    # -- One turn ------------------------------------------------------------------------

    def _turn(self) -> None:
        ready = dict(self._poller.poll(self._timeout_ms()))
        if self._completions.fileno() in ready:
            self._completions.drain()
        if self._monitor in ready:
            self._count_connections()
        if self._socket in ready:
            self._receive_some()
        self._timers.run_due(self.monotonic_ms())
        if self.sessions.unsettled and self._sweep_timer is None:
            self._sweep_timer = self.call_at(self.monotonic_ms() + SWEEP_INTERVAL_MS, self._sweep)

    def _timeout_ms(self) -> int:
        # Never far away, so that it fits poll's C int: silent connections are looked for often.
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is None:
            return -1
        return max(0, deadline_ms - self.monotonic_ms())

    def _sweep(self) -> None:
        self._sweep_timer = None
        self.sessions.sweep()

    # -- Receiving -----------------------------------------------------------------------

    def _receive_some(self) -> None:
        for _ in range(MESSAGES_PER_TURN):
            if self._skipping is not None and not self._skip():
                return
            if not self._receiving or not self._receive():
                return

    def _receive(self) -> bool:
        """Read one message and hand it on. False: there is none."""
        # Asking costs 1 us; the exception of a recv in vain 12 us, once each turn.
        if not self._events() & zmq.POLLIN:
            return False
        peer = self._socket.recv(zmq.NOBLOCK)
        # A ROUTER puts the peer before at least one frame, and all frames of a message arrive
        # together: none of these calls waits.
        first = self._socket.recv(copy=False)
        header = _kept(first) if len(first.buffer) <= MAX_HEADER_BYTES else first.buffer
        frames: list[memoryview] = []
        size_bytes = 0
        more = first.more
        while more:
            frame = self._socket.recv(copy=False)
            more = frame.more
            size_bytes += len(frame.buffer)
            if len(frames) >= MAX_PAYLOAD_FRAMES or size_bytes > self._config.max_session_bytes:
                self._begin_skipping(peer, header, len(frames) + 1, size_bytes)
                return self._skip() if more else self._end_skipping()
            frames.append(
                frame.buffer if len(frame.buffer) >= ZERO_COPY_BYTES else memoryview(_kept(frame))
            )
        self._deliver(peer, header, frames)
        return True

    def _events(self) -> int:
        events = self._socket.getsockopt(zmq.EVENTS)
        assert isinstance(events, int)
        return events

    def _deliver(self, peer: bytes, header: bytes | memoryview, frames: list[memoryview]) -> None:
        assert self._on_message is not None
        self._on_message(peer, header, frames)

    def _begin_skipping(
        self, peer: bytes, header: bytes | memoryview, frames: int, size_bytes: int
    ) -> None:
        if frames > MAX_PAYLOAD_FRAMES:
            cause = f"the message has more than {MAX_PAYLOAD_FRAMES} payload frames"
            hint = "send fewer batches at once"
        else:
            limit = self._config.max_session_bytes
            cause = f"the message has more than {limit} payload bytes (read {size_bytes})"
            hint = "send fewer batches at once, or raise max_session_bytes on the broker"
        self._skipping = _Skipped(peer, header, cause, hint)

    def _skip(self) -> bool:
        """Read on without keeping. False: the message goes on in the next turn."""
        for _ in range(SKIPPED_FRAMES_PER_TURN):
            if not self._socket.recv(copy=False).more:
                return self._end_skipping()
        return False

    def _end_skipping(self) -> bool:
        skipped, self._skipping = self._skipping, None
        assert skipped is not None
        assert self._on_oversized is not None
        self._on_oversized(skipped.peer, skipped.header, skipped.cause, skipped.hint)
        return True

    # -- Sending -------------------------------------------------------------------------

    def _transmit(self, peer: bytes, frames: Sequence[Buffer]) -> Transit | None:
        """Hand one reply to ZeroMQ (`sessions.Transmit`)."""
        try:
            self._socket.send(peer, zmq.NOBLOCK | zmq.SNDMORE)
        except zmq.Again:
            raise PeerBlocked from None
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                raise PeerGone from None
            raise
        # The peer has taken the first frame; the rest cannot be refused any more.
        trackers: list[zmq.MessageTracker] = []
        last = len(frames) - 1
        for place, frame in enumerate(frames):
            flags = zmq.NOBLOCK if place == last else zmq.NOBLOCK | zmq.SNDMORE
            if len(frame) >= ZERO_COPY_BYTES:
                tracker = self._socket.send(frame, flags, copy=False, track=True)
                trackers.append(tracker)
            else:
                self._socket.send(frame, flags)
        return _Transits(trackers) if trackers else None

    # -- Connections ---------------------------------------------------------------------

    def _count_connections(self) -> None:
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            kind, descriptor = event["event"], event["value"]
            if kind == zmq.EVENT_ACCEPTED:
                self.connections.opened(descriptor, self.monotonic_ms())
            elif kind == zmq.EVENT_ACCEPT_FAILED:
                self._limited.log(
                    "failed accepts",
                    logging.WARNING,
                    self.monotonic_ms(),
                    "a connection could not be accepted: %s",
                    errno.errorcode.get(descriptor, "?"),
                )
            else:
                self.connections.closed(descriptor)

    def _end_silent_connections(self) -> None:
        now_ms = self.monotonic_ms()
        self.connections.end_silent(now_ms)
        self.call_at(now_ms + self._config.heartbeat_interval_ms, self._end_silent_connections)

    def _set_options(self, endpoint: Endpoint) -> None:
        config = self._config
        heartbeat_ms = config.heartbeat_interval_ms
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.RCVHWM, config.receive_queue),
            (zmq.SNDHWM, config.send_queue),
            (zmq.MAXMSGSIZE, config.max_message_bytes),
            (zmq.HANDSHAKE_IVL, config.handshake_timeout_ms),
            (zmq.HEARTBEAT_IVL, heartbeat_ms),
            (zmq.HEARTBEAT_TIMEOUT, MISSED_HEARTBEATS * heartbeat_ms),
            (zmq.LINGER, LINGER_MS),
            (zmq.BACKLOG, 128),
            (zmq.IPV6, int(":" in endpoint.host)),
        ):
            self._socket.setsockopt(option, value)


def _kept(frame: zmq.Frame) -> bytes:
    """A small frame's bytes, copied out so that ZeroMQ's buffer is not held."""
    return bytes(frame.buffer)


def _raise(error: Exception) -> None:
    raise error


def _listen_failed(endpoint: Endpoint, error: zmq.ZMQError) -> ListenFailed:
    hints = {
        errno.EADDRINUSE: "another process listens there; stop it, or choose another port "
        "(--listen HOST:PORT)",
        errno.EADDRNOTAVAIL: "the address is not one of this machine's",
        errno.ENODEV: "the address is not one of this machine's",
        errno.EACCES: "ports below 1024 need privileges; choose a higher one",
    }
    return ListenFailed(
        f"cannot listen on {endpoint}: {error.strerror}",
        hint=hints.get(error.errno or 0, "choose another address (--listen HOST:PORT)"),
    )
