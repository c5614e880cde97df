"""Headers, and bytes that are none."""

import msgspec
import pytest

from ringlog.client import wire
from ringlog.client.errors import ErrorInfo
from ringlog.client.messages import InitProducerIdResponse
from ringlog.client.wire import MalformedFrame


def test_a_request_header_comes_back() -> None:
    header = wire.decode_request(wire.encode_request(7, 2, 99, InitProducerIdResponse(5, 6)))
    assert (header.api_key, header.api_version, header.correlation_id) == (7, 2, 99)
    decoder = msgspec.msgpack.Decoder(InitProducerIdResponse)
    assert wire.decode_body(header.body, decoder) == InitProducerIdResponse(5, 6)


def test_a_response_header_comes_back_with_its_error() -> None:
    error = ErrorInfo(19, "cause", "hint")
    header = wire.decode_response(wire.encode_response(3, error, None))
    assert (header.correlation_id, header.error) == (3, error)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        b"\x94\x01\x00\xa1a\xc0",
        b"GET / HTTP/1.1\r\n",
        b"\x91" * 5000,
        b"\x94\x01\x00\x01\xc0trailing",
    ],
)
def test_junk_is_malformed_and_nothing_else(junk: bytes) -> None:
    for decode in (wire.decode_request, wire.decode_response):
        with pytest.raises(MalformedFrame):
            decode(junk)


def test_a_header_beyond_its_bound_is_not_decoded() -> None:
    header = wire.encode_request(1, 0, 1, b"x" * wire.MAX_HEADER_BYTES)
    with pytest.raises(MalformedFrame, match="limit"):
        wire.decode_request(header)


def test_a_body_of_another_type_is_malformed() -> None:
    raw = msgspec.Raw(msgspec.msgpack.encode(["x"]))
    with pytest.raises(MalformedFrame):
        wire.decode_body(raw, msgspec.msgpack.Decoder(InitProducerIdResponse))
