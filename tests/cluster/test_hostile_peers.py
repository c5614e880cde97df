"""What peers that do not keep the protocol can do to a broker: nothing that others notice.

Every test ends with an honest client being served. Rows W1 to W7 of the fault catalogue.
"""

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from ringlog.client import wire
from ringlog.client.errors import ErrorCode
from ringlog.client.messages import (
    ApiKey,
    FetchRequest,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
    VersionsRequest,
    VersionsResponse,
)
from tests.cluster.raw_client import Broker, RawClient, until

HELLO = VersionsRequest("test", "0")
METADATA = MetadataRequest(["topic-a", "topic-b"])


@contextlib.contextmanager
def serving(directory: Path, **settings: object) -> Iterator[Broker]:
    """A broker that must still serve an honest client at the end, without an internal error."""
    broker = Broker(directory, **settings)
    with broker.running():
        yield broker
        with broker.client() as honest:
            honest.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        dispatcher = broker.server._dispatcher
        assert dispatcher is not None
        assert dispatcher.internal_errors == 0
        assert broker.server.failure is None
        assert broker.server._reactor.sessions.request_bytes == 0


def valid_header() -> bytes:
    return wire.encode_request(int(ApiKey.METADATA), 0, 1, METADATA)


# -- Malformed bodies (W4) ---------------------------------------------------------------


def answered(client: RawClient, count: int) -> list[wire.ResponseHeader]:
    return [client.receive()[0] for _ in range(count)]


def test_every_truncation_of_a_request_is_answered(tmp_path: Path) -> None:
    header = valid_header()
    with serving(tmp_path) as broker, broker.client() as client:
        for end in range(len(header)):
            client.send([header[:end]])
        errors = [response.error for response in answered(client, len(header))]
        assert all(error is not None for error in errors)
        assert {error.code for error in errors if error} == {ErrorCode.INVALID_REQUEST}


def test_every_flipped_bit_of_a_request_is_answered(tmp_path: Path) -> None:
    header = valid_header()
    with serving(tmp_path) as broker, broker.client() as client:
        for place in range(len(header)):
            for bit in range(8):
                flipped = bytearray(header)
                flipped[place] ^= 1 << bit
                client.send([bytes(flipped)])
            answered(client, 8)


def test_trailing_junk_and_random_bytes_are_answered(tmp_path: Path) -> None:
    rng = random.Random(7)
    with serving(tmp_path) as broker, broker.client() as client:
        client.send([valid_header() + b"\x00"])
        assert client.refusal()[0] == ErrorCode.INVALID_REQUEST
        for _ in range(500):
            client.send([rng.randbytes(rng.randrange(64))])
            client.receive()


@pytest.mark.parametrize(
    "value",
    [-1, 2**31, 2**63, 2**64 - 1, None, "x", 1.5, [], {}],
    ids=repr,
)
def test_wrong_values_in_every_field_of_the_header_are_answered(
    tmp_path: Path, value: object
) -> None:
    with serving(tmp_path) as broker, broker.client() as client:
        for place in range(4):
            fields: list[object] = [int(ApiKey.METADATA), 0, 1, METADATA]
            fields[place] = value
            client.send([msgspec.msgpack.encode(fields)])
            client.receive()


@pytest.mark.parametrize(
    "header",
    [
        b"\xdd\xff\xff\xff\xff",  # an array that claims 4 billion entries
        b"\xc6\xff\xff\xff\xff",  # a byte string that claims 4 GiB
        b"\x94\x01\x00\x01" + b"\xdd\xff\xff\xff\xff",
        b"\x94\x01\x00\x01" + b"\x91" * 100_000,  # nested 100,000 deep
        b"\x94\x01\x00\x01\x91\x91\xdb\xff\xff\xff\xff",  # a text that claims 4 GiB
        b"\x94\x01\x00\x01\x91\x91\xa2\xc3\x28",  # not UTF-8
        b"\xc1",  # a byte that MessagePack does not have
        b"\x00" * (wire.MAX_HEADER_BYTES + 1),
    ],
    ids=lambda header: header[:12].hex(),
)
def test_lengths_that_lie_and_deep_nesting_are_answered(tmp_path: Path, header: bytes) -> None:
    with serving(tmp_path) as broker, broker.client() as client:
        client.send([header])
        assert client.refusal()[0] == ErrorCode.INVALID_REQUEST


def test_an_unknown_api_and_a_future_version_are_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, broker.client() as client:
        client.send([wire.encode_request(999, 0, 1, METADATA)])
        code, cause = client.refusal()
        assert code == ErrorCode.UNSUPPORTED_VERSION
        assert "METADATA" in cause
        client.request(ApiKey.METADATA, METADATA, version=9)
        code, cause = client.refusal()
        assert code == ErrorCode.UNSUPPORTED_VERSION
        assert "0 to 0" in cause


# -- Too much (W3) -----------------------------------------------------------------------


def test_300_000_empty_frames_are_drained_and_refused_while_others_are_served(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as broker, broker.client() as flood, broker.client() as honest:
        honest.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        header = wire.encode_request(int(ApiKey.PRODUCE), 0, 77, METADATA)
        flood.send([header, *[b""] * 300_000])
        honest.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        response, _ = flood.receive()
        assert response.correlation_id == 77
        assert response.error is not None
        assert response.error.code == ErrorCode.INVALID_REQUEST
        assert "1024 payload frames" in response.error.cause
        flood.call(ApiKey.VERSIONS, HELLO, VersionsResponse)


@pytest.mark.parametrize(("frames", "refused"), [(1024, False), (1025, True)])
def test_the_cap_on_frames_is_exact(tmp_path: Path, frames: int, refused: bool) -> None:
    request = ProduceRequest(-1, 1000, [])
    with serving(tmp_path) as broker, broker.client() as client:
        client.request(ApiKey.PRODUCE, request, [b"x"] * frames)
        response, _ = client.receive()
        assert (response.error is not None) == refused


def test_a_message_over_the_bytes_of_a_session_is_refused_without_being_kept(
    tmp_path: Path,
) -> None:
    small = 1 << 20
    settings = {
        "max_message_bytes": small, "max_session_bytes": small, "max_request_bytes": small,
        "max_session_outbound_bytes": small,
    }  # fmt: skip
    with serving(tmp_path, **settings) as broker, broker.client() as client:
        request = ProduceRequest(-1, 1000, [])
        client.request(ApiKey.PRODUCE, request, [bytes(600_000)] * 10)
        code, cause = client.refusal()
        assert code == ErrorCode.INVALID_REQUEST
        assert "1048576 payload bytes" in cause
        client.request(ApiKey.PRODUCE, request, [bytes(600_000)])
        response, _ = client.receive()
        assert response.error is None


def test_a_frame_over_the_limit_ends_the_connection_only(tmp_path: Path) -> None:
    with serving(tmp_path, max_message_bytes=64 << 10) as broker, broker.client() as client:
        client.send([valid_header(), bytes((64 << 10) + 1)])
        with pytest.raises(TimeoutError):
            client.receive(patience_ms=300)


def test_too_many_requests_at_once_get_busy(tmp_path: Path) -> None:
    with serving(tmp_path, max_session_requests=3) as broker, broker.client() as client:
        for _ in range(5):
            client.request(ApiKey.FETCH, FetchRequest(600_000, 1, 1, []))
        assert [client.refusal()[0] for _ in range(2)] == [ErrorCode.BUSY] * 2
        broker.core.answer_soon()
        assert [client.receive()[0].error for _ in range(3)] == [None] * 3


# -- Peers that do not read, or leave (W1, W2) -------------------------------------------


def slow_reader_options() -> dict[int, int]:
    return {zmq.RCVHWM: 1, zmq.RCVBUF: 4096}


def test_a_slow_reader_is_bounded_and_others_are_served(tmp_path: Path) -> None:
    reply_bytes = 1 << 20
    settings = {"send_queue": 1, "max_session_outbound_bytes": 11 << 20}
    with serving(tmp_path, **settings) as broker:
        sessions = broker.server._reactor.sessions
        with broker.client(slow_reader_options()) as slow, broker.client() as honest:
            for _ in range(100):
                slow.request(ApiKey.FETCH, FetchRequest(0, 1, reply_bytes, []))
            for _ in range(20):
                honest.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
            assert sessions.outbound_bytes <= (11 << 20) + reply_bytes + 512
            # What was promised arrives in order once it reads; the rest was refused or counted.
            correlations: list[int] = []
            while len(correlations) + sessions.drops.outbound_full < 100:
                if slow.socket.poll(50):  # another may have been dropped meanwhile
                    correlations.append(slow.receive()[0].correlation_id)
            assert len(set(correlations)) == len(correlations)
            assert sessions.drops.outbound_full + sessions.refused > 0
        assert sessions.drops.vanished == 0


def test_replies_to_a_vanished_client_are_dropped_and_counted(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        sessions = broker.server._reactor.sessions
        with broker.client() as client:
            for _ in range(3):
                client.request(ApiKey.FETCH, FetchRequest(600_000, 1, 1, []))
            client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        until(lambda: len(broker.server._reactor.connections) == 0)
        broker.core.answer_soon()
        until(lambda: sessions.drops.vanished == 3)
        until(lambda: len(sessions) == 0)


def test_a_second_client_with_the_same_routing_id_gets_nobody_s_replies(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, broker.client() as first:
        first.close()
        sockets = []
        context = zmq.Context()
        for _ in range(2):
            dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
            dealer.setsockopt(zmq.ROUTING_ID, b"same")
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(f"tcp://{broker.endpoint}")
            sockets.append(dealer)
            if len(sockets) == 1:
                dealer.send(wire.encode_request(int(ApiKey.VERSIONS), 0, 1, HELLO))
                assert dealer.poll(20_000)
                dealer.recv()
        sockets[0].send(wire.encode_request(int(ApiKey.VERSIONS), 0, 2, HELLO))
        assert sockets[0].poll(20_000)
        assert not sockets[1].poll(0)
        context.destroy(linger=0)


# -- Peers that are no peers (W5, W6) ----------------------------------------------------


def connect(broker: Broker) -> socket.socket:
    return socket.create_connection((broker.endpoint.address, broker.endpoint.port), timeout=20)


@pytest.mark.parametrize(
    "text",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"", b"\xff"],
    ids=["a TLS hello", "nothing", "one byte"],
)
def test_a_stranger_is_hung_up_on_within_the_handshake_time(tmp_path: Path, text: bytes) -> None:
    # Heartbeats, which would end it too, are a minute away.
    with (
        serving(tmp_path, handshake_timeout_ms=200, heartbeat_interval_ms=60_000) as broker,
        connect(broker) as stranger,
    ):
        stranger.sendall(text)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):
                pass


def test_a_silent_stranger_is_hung_up_on_and_a_silent_client_is_not(tmp_path: Path) -> None:
    with serving(tmp_path, heartbeat_interval_ms=100) as broker, broker.client() as idle:
        idle.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        connections = broker.server._reactor.connections
        with connect(broker) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
        until(lambda: connections.strangers == 1)
        until(lambda: len(connections) == 1)
        idle.call(ApiKey.VERSIONS, HELLO, VersionsResponse)


def test_connections_over_the_cap_are_closed_and_the_rest_is_served(tmp_path: Path) -> None:
    with serving(tmp_path, max_connections=3) as broker:
        reactor = broker.server._reactor
        with contextlib.ExitStack() as stack:
            honest = stack.enter_context(broker.client())
            honest.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
            flood = [stack.enter_context(connect(broker)) for _ in range(20)]
            closed = 0
            for stranger in flood[2:]:
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(4096):
                        pass
                closed += 1
            assert closed == 18
            until(lambda: reactor.connections.refused >= 18)
            honest.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        until(lambda: len(reactor.connections) == 0)


def test_nothing_is_left_of_a_flood_of_requests_from_many_peers(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        for _ in range(20):
            with broker.client() as client:
                for _ in range(50):
                    client.request(ApiKey.PRODUCE, produce_nothing(), [b"x"])
                client.receive()
        sessions = broker.server._reactor.sessions
        until(lambda: len(sessions) == 0 and len(broker.server._reactor.connections) == 0)
        assert sessions.outbound_bytes == 0


def produce_nothing() -> ProduceRequest:
    return ProduceRequest(-1, 1000, [ProducePartition("t", b"", 0)])
