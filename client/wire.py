"""The frame around every request and response.

    message         = [header][payload frame]*
    request header  = msgpack [api key, version, correlation id, body]
    response header = msgpack [correlation id, error or nil, body]

Payload frames carry record batches untouched. Owns the header's encoding and its bounds. Must
not know sockets, nor what a body means: `client.messages` types it.

Invariants:
    W1  Decoding untrusted bytes raises `MalformedFrame` and nothing else.
    W2  A correlation id is echoed as it came; it is never looked up on the broker.
"""

from typing import TypeVar

import msgspec

from ringlog.client.errors import ErrorInfo, InvalidArgument

T = TypeVar("T")

MAX_HEADER_BYTES = 1 << 20
"""A header frame above this is refused before it is decoded."""

MAX_PAYLOAD_FRAMES = 1024
"""More payload frames than this in one message are refused."""


class MalformedFrame(Exception):
    """A header that does not decode; the text says where."""


class RequestHeader(msgspec.Struct, array_like=True, frozen=True):
    """First frame of a request. `body` is still encoded: its type depends on the api key."""

    api_key: int
    api_version: int
    correlation_id: int
    body: msgspec.Raw


class ResponseHeader(msgspec.Struct, array_like=True, frozen=True):
    """First frame of a response. With an `error`, `body` is nil."""

    correlation_id: int
    error: ErrorInfo | None
    body: msgspec.Raw


_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(RequestHeader)
_response_decoder = msgspec.msgpack.Decoder(ResponseHeader)


def encode_request(api_key: int, api_version: int, correlation_id: int, body: object) -> bytes:
    """Encode a request's first frame.

    Raises:
        InvalidArgument: something in `body` has no encoding, such as a text that is no Unicode.
    """
    try:
        return _encoder.encode((api_key, api_version, correlation_id, body))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"the request cannot be encoded: {error}") from error


def encode_response(correlation_id: int, error: ErrorInfo | None, body: object) -> bytes:
    """Encode a response's first frame. `body` is None with an error."""
    return _encoder.encode((correlation_id, error, body))


def decode_request(frame: bytes | memoryview) -> RequestHeader:
    """Decode a request's first frame. Raises MalformedFrame."""
    return _decode(_request_decoder, frame)


def decode_response(frame: bytes | memoryview) -> ResponseHeader:
    """Decode a response's first frame. Raises MalformedFrame."""
    return _decode(_response_decoder, frame)


def decode_body(raw: msgspec.Raw, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Decode a body with the decoder of its type. Raises MalformedFrame."""
    return _decode(decoder, raw)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview | msgspec.Raw) -> T:
    if len(memoryview(data)) > MAX_HEADER_BYTES:
        raise MalformedFrame(f"header of {len(memoryview(data))} bytes, limit {MAX_HEADER_BYTES}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # ValidationError is a DecodeError; RecursionError is msgspec's answer to deep nesting.
        raise MalformedFrame(str(error)) from error
