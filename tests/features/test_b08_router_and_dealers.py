"""B08: `BrokerServer(host='localhost', port=5555)`: a ROUTER bound to tcp, DEALER clients, frames.

Here `ringlog broker` with no option. The old frames were `[identity, command, ...]`; ours are
`[header][record batch]*`, and any DEALER that sends them is served: these tests use no client
library, only pyzmq and the documented frames.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zmq

from ringlog.broker.config import BrokerConfig
from ringlog.broker.endpoint import Endpoint
from ringlog.client.messages import ApiKey
from ringlog.storage.record_codec import decode_records, encode_batch
from tests.features.broker_on_loopback import broker_on_loopback

PATIENCE_MS = 20_000


@contextlib.contextmanager
def dealer(endpoint: Endpoint) -> Iterator["zmq.Socket[bytes]"]:
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.connect(f"tcp://{endpoint.host}:{endpoint.port}")
    try:
        yield socket
    finally:
        context.destroy(linger=0)


def ask(
    socket: "zmq.Socket[bytes]", command: int, body: list[object], *frames: bytes
) -> tuple[list[object], list[bytes]]:
    """Send `[api key, version, correlation id, body]` and frames; gives the answer's."""
    socket.send_multipart([msgspec.msgpack.encode([command, 0, 42, body]), *frames])
    assert socket.poll(PATIENCE_MS), "no answer"
    header, *payload = socket.recv_multipart()
    correlation_id, error, answer = msgspec.msgpack.decode(header)
    assert correlation_id == 42
    assert error is None, error
    return answer, payload


def test_b08_with_no_option_it_listens_on_port_5555_of_this_machine_only() -> None:
    endpoint = BrokerConfig().listen_endpoint
    assert (endpoint.address, endpoint.port) == ("127.0.0.1", 5555)
    assert endpoint.is_loopback
    assert BrokerConfig(listen="localhost:5555").listen_endpoint.address == "127.0.0.1"


def test_b08_a_bare_dealer_creates_produces_and_consumes(tmp_path: Path) -> None:
    batch = encode_batch([b"hello", b"world"], timestamps=1_700_000_000_000)
    with broker_on_loopback(tmp_path) as endpoint, dealer(endpoint) as socket:
        ask(socket, ApiKey.CREATE_TOPIC, ["orders", 1, -1, {}, b"r" * 16, 10_000])
        answer, _ = ask(socket, ApiKey.PRODUCE, [-1, 10_000, [["orders", b"", 0]]], batch)
        assert answer == [[[0, 0, None]]]
        wanted = [["orders", b"", 0, 0, 1 << 20]]
        answer, frames = ask(socket, ApiKey.FETCH, [1000, 1, 1 << 20, wanted])
        assert answer == [[[2, 0, 0, None]]]
        records = decode_records(frames[0])
        assert [record.value for record in records] == [b"hello", b"world"]


def test_b08_many_dealers_are_told_apart_by_the_router(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(dealer(endpoint)) for _ in range(50)]
        for number, socket in enumerate(sockets):
            request = [int(ApiKey.VERSIONS), 0, number, ["client", "0"]]
            socket.send(msgspec.msgpack.encode(request))
        for number, socket in enumerate(sockets):
            assert socket.poll(PATIENCE_MS)
            assert msgspec.msgpack.decode(socket.recv())[0] == number
