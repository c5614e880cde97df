"""From a message's frames to a handler, and from its answer back to frames.

Owns header and version checks, decoding, credit of requests and the mapping of errors. Must
not know zmq nor partitions: handlers come as a table.

Invariants:
    D1  Whatever the bytes, no exception leaves `on_message`; each message gets one answer, or
        none where the request asks for none.
    D2  A request's credit is taken before its body is decoded and given back with its answer.
    D3  While stopping, requests that write are refused before they reach a handler.
    D4  An answer names the request's correlation id, or `UNKNOWN_CORRELATION` when the header
        does not even have one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ringlog.broker.error_codes import broker_error, is_known
from ringlog.broker.log_limits import LimitedLog, escaped
from ringlog.broker.sessions import Sessions
from ringlog.broker.shell import Handler
from ringlog.client import wire
from ringlog.client.errors import BrokerError, BrokerStopping, InvalidRequest, UnsupportedVersion
from ringlog.client.messages import APIS, ApiKey, Message
from ringlog.storage.types import Buffer

UNKNOWN_CORRELATION = -1

WRITING_APIS = frozenset(
    {
        ApiKey.CREATE_TOPIC,
        ApiKey.DELETE_TOPIC,
        ApiKey.ALTER_TOPIC,
        ApiKey.ADD_PARTITIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.PRODUCE,
        ApiKey.DELETE_RECORDS,
    }
)

_log = logging.getLogger(__name__)
_correlation_decoder = msgspec.msgpack.Decoder(list[Any])


class _Row(msgspec.Struct, frozen=True):
    handler: Handler
    decoder: msgspec.msgpack.Decoder[Any]
    min_version: int
    max_version: int
    writes: bool


class PeerReply:
    """The answer to one request of one peer (`broker.shell.Reply`)."""

    __slots__ = ("_correlation_id", "_dispatcher", "_done", "_peer", "_size_bytes")

    def __init__(
        self, dispatcher: "Dispatcher", peer: bytes, correlation_id: int, size_bytes: int
    ) -> None:
        self._dispatcher = dispatcher
        self._peer = peer
        self._correlation_id = correlation_id
        self._size_bytes = size_bytes
        self._done = False

    @property
    def done(self) -> bool:
        """Whether it was answered or discarded."""
        return self._done

    @property
    def room_bytes(self) -> int:
        """Bytes of payload this peer may be sent now without being in danger of a drop."""
        return self._dispatcher.sessions.room_bytes(self._peer)

    def send(self, body: Message, frames: Sequence[Buffer] = ()) -> None:
        """Answer with a body and payload frames."""
        self._end()
        header = wire.encode_response(self._correlation_id, None, body)
        self._dispatcher.transmit(self._peer, [header, *frames])

    def fail(self, error: BrokerError) -> None:
        """Answer the whole request with an error."""
        self._end()
        self._dispatcher.send_error(self._peer, self._correlation_id, error)

    def discard(self) -> None:
        """End the request without an answer."""
        self._end()

    def _end(self) -> None:
        assert not self._done, "B3: a request is answered at most once"
        self._done = True
        self._dispatcher.sessions.finish(self._peer, self._size_bytes)


class Dispatcher:
    """The table of APIs of one broker. Used by the reactor thread only."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        sessions: Sessions,
        *,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.sessions = sessions
        self.stopping = False
        self.internal_errors = 0
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._log = LimitedLog(_log)
        self._rows = {int(key): _row(key, handler) for key, handler in handlers.items()}

    def on_message(self, peer: bytes, header: bytes | memoryview, frames: list[memoryview]) -> None:
        """Handle one message: a header and its payload frames."""
        try:
            request = wire.decode_request(header)
        except wire.MalformedFrame as error:
            self._refuse_header(peer, header, error)
            return
        size_bytes = len(header) + sum(map(len, frames))
        refusal = self.sessions.admit(peer, size_bytes)
        if refusal is not None:
            self.send_error(peer, request.correlation_id, refusal)
            return
        reply = PeerReply(self, peer, request.correlation_id, size_bytes)
        try:
            self._handle(request, frames, reply)
        # Nothing a peer sends may end the broker: our bugs become INTERNAL and a traceback.
        except Exception as error:  # noqa: BLE001
            self._answer_exception(request, reply, error)

    def on_oversized(self, peer: bytes, header: bytes | memoryview, cause: str, hint: str) -> None:
        """Answer a message whose payload frames were thrown away unread."""
        self._log.log(
            "oversized messages",
            logging.WARNING,
            self._monotonic_ms(),
            "refused a message of peer %s: %s",
            peer.hex(),
            cause,
        )
        self.send_error(peer, _correlation_of(header), InvalidRequest(cause, hint=hint))

    def transmit(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Send frames to a peer; a drop is counted by the sessions, one that is a fault logged."""
        slow = self.sessions.drops.outbound_full
        if self.sessions.send(peer, frames):
            return
        drops = self.sessions.drops
        if drops.outbound_full == slow:
            # A client that closes while its fetch waits: everyday life, only counted.
            _log.debug("peer %s left before its reply", peer.hex())
            return
        self._log.log(
            "dropped replies",
            logging.WARNING,
            self._monotonic_ms(),
            "dropped a reply to peer %s, which does not read its replies (so far %d dropped)",
            peer.hex(),
            drops.outbound_full,
        )

    def send_error(self, peer: bytes, correlation_id: int, error: BrokerError) -> None:
        """Answer a request with an error."""
        self.transmit(peer, [wire.encode_response(correlation_id, error.info(), None)])

    def _handle(
        self, request: wire.RequestHeader, frames: list[memoryview], reply: PeerReply
    ) -> None:
        row = self._rows.get(request.api_key)
        if row is None:
            supported = ", ".join(f"{key} ({ApiKey(key).name})" for key in sorted(self._rows))
            raise UnsupportedVersion(
                f"api key {request.api_key} is unknown; this broker has {supported}",
                hint="use a client of the broker's version, or upgrade the broker",
            )
        if not row.min_version <= request.api_version <= row.max_version:
            raise UnsupportedVersion(
                f"{ApiKey(request.api_key).name} version {request.api_version} is unknown; this "
                f"broker has {row.min_version} to {row.max_version}",
                hint="ask for the versions first (api key 0) and use one of both sides",
            )
        if self.stopping and row.writes:
            raise BrokerStopping("the broker is shutting down", hint="try again in a moment")
        try:
            body = wire.decode_body(request.body, row.decoder)
        except wire.MalformedFrame as error:
            raise InvalidRequest(
                f"{ApiKey(request.api_key).name}: {error}", hint="docs/protocol.md has the fields"
            ) from error
        row.handler(body, frames, reply, self._now_ms())

    def _answer_exception(
        self, request: wire.RequestHeader, reply: PeerReply, error: Exception
    ) -> None:
        if not is_known(error):
            self.internal_errors += 1
            self._log.failure(
                "handler failures",
                error,
                self._monotonic_ms(),
                f"api key {request.api_key} failed: a bug of the broker, please report it",
            )
        if not reply.done:
            reply.fail(broker_error(error))

    def _refuse_header(
        self, peer: bytes, header: bytes | memoryview, error: wire.MalformedFrame
    ) -> None:
        self._log.log(
            "malformed headers",
            logging.INFO,
            self._monotonic_ms(),
            "malformed header of peer %s: %s",
            peer.hex(),
            escaped(str(error)),
        )
        self.send_error(
            peer,
            _correlation_of(header),
            InvalidRequest(
                f"the header does not decode: {error}",
                hint="[api key, api version, correlation id, body]; see docs/protocol.md",
            ),
        )


def _row(key: ApiKey, handler: Handler) -> _Row:
    api = APIS[key]
    return _Row(
        handler=handler,
        decoder=msgspec.msgpack.Decoder(api.request),
        min_version=api.min_version,
        max_version=api.max_version,
        writes=key in WRITING_APIS,
    )


def _correlation_of(header: bytes | memoryview) -> int:
    """The correlation id of a header that is wrong elsewhere, if there is one."""
    if len(header) > wire.MAX_HEADER_BYTES:
        return UNKNOWN_CORRELATION
    try:
        fields = _correlation_decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNKNOWN_CORRELATION
    if len(fields) < 3 or type(fields[2]) is not int:
        return UNKNOWN_CORRELATION
    return fields[2]
