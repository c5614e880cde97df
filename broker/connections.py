"""Which connections are open, how many may be, and hanging up on those that do not belong.

Owns descriptors' numbers, not the descriptors: ZeroMQ holds those and has no call to end one
connection, so this ends them through a copy. Must not know ZeroMQ.

Invariants:
    CN1 At most `most` connections stay open, however many are dialled.
    CN2 A connection that sends nothing for `silent_ms` is ended. ZeroMQ's own heartbeats see to
        that for peers that answer them; a stranger whose first byte is a length, such as an HTTP
        client, passes for a ZMTP/1.0 peer, which has neither handshake nor heartbeats.
    CN3 A number that meanwhile belongs to something else is left alone, unless that is a
        connection of the same listener.

Source: linux/tcp.h, struct tcp_info; security advisory GHSA-25wp-cf8g-938m on ZMTP/1.0 peers.
"""

import contextlib
import logging
import socket
import struct
from collections.abc import Iterator

from ringlog.broker.log_limits import LimitedLog

_LAST_DATA_RECEIVED = struct.Struct("=52xI")
"""`tcpi_last_data_recv` of struct tcp_info: milliseconds since the last byte came."""

_log = logging.getLogger(__name__)


class Connections:
    """Connections of one listener. Used by the reactor thread only."""

    def __init__(self, *, most: int, silent_ms: int) -> None:
        self.most = most
        self.port = 0
        """Port of the listener; 0 before it listens."""
        self.refused = 0
        self.strangers = 0
        self._silent_ms = silent_ms
        self._open: set[int] = set()
        self._limited = LimitedLog(_log)

    def __len__(self) -> int:
        """Connections open, those just ended included until ZeroMQ has noticed."""
        return len(self._open)

    def opened(self, descriptor: int, now_ms: int) -> None:
        """A connection was accepted; over the cap it is ended at once."""
        self._open.add(descriptor)
        if len(self._open) > self.most and self._hang_up(descriptor):
            self.refused += 1
            self._limited.log(
                "refused connections",
                logging.WARNING,
                now_ms,
                "closed a new connection: %d are open (max_connections)",
                self.most,
            )

    def closed(self, descriptor: int) -> None:
        """A connection has ended."""
        self._open.discard(descriptor)

    def end_silent(self, now_ms: int) -> None:
        """End connections that have sent nothing for too long (CN2)."""
        for descriptor in list(self._open):
            if self._silence_ms(descriptor) >= self._silent_ms and self._hang_up(descriptor):
                self.strangers += 1
                self._limited.log(
                    "silent connections",
                    logging.INFO,
                    now_ms,
                    "closed a connection that sent nothing for %d ms: no ringlog client",
                    self._silent_ms,
                )

    def _silence_ms(self, descriptor: int) -> int:
        with self._copy_of(descriptor) as connection:
            if connection is None:
                return 0
            info = connection.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size
            )
            return int(_LAST_DATA_RECEIVED.unpack(info)[0])

    def _hang_up(self, descriptor: int) -> bool:
        with self._copy_of(descriptor) as connection:
            if connection is None:
                return False
            with contextlib.suppress(OSError):  # the peer has just hung up itself
                connection.shutdown(socket.SHUT_RDWR)
            return True

    @contextlib.contextmanager
    def _copy_of(self, descriptor: int) -> Iterator[socket.socket | None]:
        """The connection behind a number, or None when it is none of this listener (CN3)."""
        try:
            connection = socket.socket(fileno=socket.dup(descriptor))
        except OSError:
            yield None
            return
        with connection:
            try:
                ours = connection.getsockname()[1] == self.port
                connection.getpeername()
            except (OSError, IndexError, TypeError):
                ours = False
            yield connection if ours else None
