"""From header to handler and back: refusals, versions, credit, errors, stopping."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ringlog.broker.config import BrokerConfig
from ringlog.broker.dispatch import UNKNOWN_CORRELATION, WRITING_APIS, Dispatcher
from ringlog.broker.sessions import PeerGone, Sessions, Transit
from ringlog.broker.shell import Reply
from ringlog.client import wire
from ringlog.client.errors import Busy, ErrorCode
from ringlog.client.messages import (
    ApiKey,
    DescribeTopicRequest,
    Done,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
)
from ringlog.storage.errors import DiskFull
from ringlog.storage.types import Buffer

PEER = b"peer"
METADATA = MetadataRequest(["t"])
PRODUCE = ProduceRequest(-1, 1000, [ProducePartition("t", b"", 0)])


class Stuck:
    """A reply that never leaves."""

    done = False


class Bench:
    """A dispatcher whose answers are collected, with one handler for all APIs."""

    def __init__(self, **settings: int) -> None:
        self.sent: list[tuple[wire.ResponseHeader, list[bytes]]] = []
        self.calls: list[tuple[Any, list[memoryview], Reply, int]] = []
        self.raises: Exception | None = None
        self.answers = True
        self.gone = False
        self.transit: Transit | None = None
        config = BrokerConfig(**settings)  # type: ignore[arg-type]  # only numbers are given
        self.sessions = Sessions(config, self.transmit)
        served = [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.DESCRIBE_TOPIC]
        self.dispatcher = Dispatcher(
            dict.fromkeys(served, self.handle),
            self.sessions,
            now_ms=lambda: 777,
            monotonic_ms=lambda: 0,
        )

    def transmit(self, peer: bytes, frames: Sequence[Buffer]) -> Transit | None:
        assert peer == PEER
        if self.gone:
            raise PeerGone
        header, *payload = [bytes(frame) for frame in frames]
        self.sent.append((wire.decode_response(header), payload))
        return self.transit

    def handle(self, request: object, frames: list[memoryview], reply: Reply, now_ms: int) -> None:
        self.calls.append((request, frames, reply, now_ms))
        if self.raises is not None:
            raise self.raises
        if self.answers:
            reply.send(Done(), [b"payload"])

    def send(self, header: bytes, frames: Sequence[bytes] = ()) -> None:
        self.dispatcher.on_message(PEER, header, [memoryview(frame) for frame in frames])

    def refusal(self) -> tuple[ErrorCode, str, str, int]:
        """The one answer so far, which must be an error: (code, cause, hint, correlation)."""
        ((response, payload),) = self.sent
        self.sent.clear()
        assert payload == []
        assert response.error is not None
        error = response.error
        return ErrorCode(error.code), error.cause, error.hint, response.correlation_id


def encoded(key: int, body: object, *, version: int = 0, correlation: int = 5) -> bytes:
    return wire.encode_request(key, version, correlation, body)


def test_a_request_reaches_its_handler_typed_and_its_answer_goes_back() -> None:
    bench = Bench()
    bench.send(encoded(ApiKey.METADATA, METADATA), [b"frame"])
    ((request, frames, reply, now_ms),) = bench.calls
    assert request == METADATA
    assert [bytes(frame) for frame in frames] == [b"frame"]
    assert now_ms == 777
    assert reply.done
    ((response, payload),) = bench.sent
    assert (response.correlation_id, response.error, payload) == (5, None, [b"payload"])
    assert len(bench.sessions) == 0


@pytest.mark.parametrize("correlation", [0, -1, 2**63 - 1, -(2**63), 2**64 - 1])
def test_a_correlation_id_comes_back_as_it_came(correlation: int) -> None:
    bench = Bench()
    bench.send(encoded(ApiKey.METADATA, METADATA, correlation=correlation))
    assert bench.sent[0][0].correlation_id == correlation


@pytest.mark.parametrize("key", [12, 999, -1, 2**40])
def test_an_unknown_api_is_refused_naming_what_there_is(key: int) -> None:
    bench = Bench()
    bench.send(encoded(key, METADATA))
    code, cause, _, correlation = bench.refusal()
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert correlation == 5
    assert "1 (METADATA), 4 (DESCRIBE_TOPIC), 8 (PRODUCE)" in cause


@pytest.mark.parametrize("version", [1, 32767, -1])
def test_an_unknown_version_is_refused_naming_what_there_is(version: int) -> None:
    bench = Bench()
    bench.send(encoded(ApiKey.METADATA, METADATA, version=version))
    code, cause, hint, _ = bench.refusal()
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert f"METADATA version {version} is unknown; this broker has 0 to 0" in cause
    assert "api key 0" in hint
    assert bench.calls == []


def test_a_body_of_another_shape_is_refused_with_the_place() -> None:
    bench = Bench()
    bench.send(encoded(ApiKey.METADATA, [[1]]))
    code, cause, hint, _ = bench.refusal()
    assert code is ErrorCode.INVALID_REQUEST
    assert "Expected `str`, got `int`" in cause
    assert "docs/protocol.md" in hint


def test_fields_of_a_newer_client_are_ignored() -> None:
    bench = Bench()
    bench.send(encoded(ApiKey.METADATA, [["t"], "newer"]))
    assert bench.calls[0][0] == METADATA


@pytest.mark.parametrize(
    ("header", "correlation"),
    [
        (b"", UNKNOWN_CORRELATION),
        (b"GET / HTTP/1.1\r\n", UNKNOWN_CORRELATION),
        (msgspec.msgpack.encode([1, 0]), UNKNOWN_CORRELATION),
        (msgspec.msgpack.encode([1, 0, "7", None]), UNKNOWN_CORRELATION),
        (msgspec.msgpack.encode([1, "0", 7, None]), 7),
        (msgspec.msgpack.encode([1, 0, True, None]), UNKNOWN_CORRELATION),
        (b"\x91" * 100_000, UNKNOWN_CORRELATION),
        (bytes(wire.MAX_HEADER_BYTES + 1), UNKNOWN_CORRELATION),
    ],
)
def test_a_header_that_does_not_decode_is_answered(header: bytes, correlation: int) -> None:
    bench = Bench()
    bench.send(header)
    code, cause, _, answered = bench.refusal()
    assert code is ErrorCode.INVALID_REQUEST
    assert "header" in cause
    assert answered == correlation


def test_a_message_with_too_much_payload_is_answered() -> None:
    bench = Bench()
    header = encoded(ApiKey.PRODUCE, PRODUCE)
    bench.dispatcher.on_oversized(PEER, header, "too many frames", "send fewer")
    assert bench.refusal() == (ErrorCode.INVALID_REQUEST, "too many frames", "send fewer", 5)


def test_errors_raised_by_a_handler_become_the_answer() -> None:
    bench = Bench()
    for error, code in ((Busy("full", hint="wait"), ErrorCode.BUSY),
                        (DiskFull("no space"), ErrorCode.DISK_FULL)):  # fmt: skip
        bench.raises = error
        bench.send(encoded(ApiKey.PRODUCE, PRODUCE))
        assert bench.refusal()[0] is code
    assert bench.dispatcher.internal_errors == 0
    assert len(bench.sessions) == 0


def test_a_bug_in_a_handler_is_internal_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.raises = KeyError("planted")
    bench.send(encoded(ApiKey.PRODUCE, PRODUCE))
    assert bench.refusal()[0] is ErrorCode.INTERNAL
    assert bench.dispatcher.internal_errors == 1
    assert "planted" in caplog.text
    assert "Traceback" in caplog.text


def test_a_bug_after_the_answer_sends_no_second_one() -> None:
    bench = Bench()

    def answer_and_fail(
        request: object, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        reply.send(Done())
        raise KeyError("planted")

    bench.dispatcher = Dispatcher(
        {ApiKey.METADATA: answer_and_fail}, bench.sessions, now_ms=int, monotonic_ms=int
    )
    bench.send(encoded(ApiKey.METADATA, METADATA))
    assert len(bench.sent) == 1


def test_an_answer_that_comes_later_gives_the_credit_back_once() -> None:
    bench = Bench(max_session_requests=1)
    bench.answers = False
    header = encoded(ApiKey.PRODUCE, PRODUCE)
    bench.send(header)
    bench.send(header)
    assert bench.refusal()[0] is ErrorCode.BUSY
    reply = bench.calls[0][2]
    reply.discard()
    assert bench.sent == []
    with pytest.raises(AssertionError, match="B3"):
        reply.send(Done())
    bench.send(header)
    assert len(bench.calls) == 2


def test_while_stopping_what_writes_is_refused_and_what_reads_is_not() -> None:
    bench = Bench()
    bench.dispatcher.stopping = True
    bench.send(encoded(ApiKey.PRODUCE, PRODUCE))
    assert bench.refusal()[0] is ErrorCode.BROKER_STOPPING
    bench.send(encoded(ApiKey.METADATA, METADATA))
    bench.send(encoded(ApiKey.DESCRIBE_TOPIC, DescribeTopicRequest("t")))
    assert len(bench.calls) == 2


def test_every_api_is_either_reading_or_writing() -> None:
    reading = {ApiKey.VERSIONS, ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC, ApiKey.FETCH,
               ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_BROKER}  # fmt: skip
    assert set(ApiKey) == reading | WRITING_APIS
    assert not reading & WRITING_APIS


def test_replies_know_how_much_a_peer_can_take() -> None:
    bench = Bench()
    bench.answers = False
    bench.send(encoded(ApiKey.PRODUCE, PRODUCE))
    assert bench.calls[0][2].room_bytes == BrokerConfig().max_session_outbound_bytes


def test_a_client_that_left_while_its_request_waited_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.answers = False
    bench.send(encoded(ApiKey.METADATA, METADATA))
    bench.gone = True
    with caplog.at_level(logging.INFO):
        bench.calls[0][2].send(Done())
    assert bench.sessions.drops.vanished == 1
    assert caplog.text == ""


def test_a_reply_dropped_because_its_peer_reads_nothing_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(max_message_bytes=64 * 1024, max_session_outbound_bytes=64 * 1024)
    bench.transit = Stuck()
    bench.answers = False
    for correlation in (1, 2):
        bench.send(encoded(ApiKey.METADATA, METADATA, correlation=correlation))
    for call in bench.calls:
        call[2].send(Done(), [bytes(60_000)])
    assert bench.sessions.drops.outbound_full == 1
    assert "does not read its replies" in caplog.text
