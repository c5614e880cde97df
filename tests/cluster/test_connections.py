"""The guard of connections, over real loopback connections without ZeroMQ."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from ringlog.broker.connections import Connections

NOW_MS = 0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@contextlib.contextmanager
def dialled(listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """(the peer's end, our end) of a new connection."""
    with socket.create_connection(listener.getsockname(), timeout=20) as peer:
        ours, _ = listener.accept()
        with ours:
            yield peer, ours


def guard(listener: socket.socket, *, most: int = 100, silent_ms: int = 1 << 30) -> Connections:
    made = Connections(most=most, silent_ms=silent_ms)
    made.port = listener.getsockname()[1]
    return made


def is_open(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) != b""
    except BlockingIOError:
        return True


def test_the_connection_over_the_cap_is_ended_and_no_other(listener: socket.socket) -> None:
    connections = guard(listener, most=1)
    with dialled(listener) as (first, ours_1), dialled(listener) as (second, ours_2):
        connections.opened(ours_1.fileno(), NOW_MS)
        connections.opened(ours_2.fileno(), NOW_MS)
        assert second.recv(1) == b""
        assert is_open(first)
        assert connections.refused == 1
        connections.closed(ours_2.fileno())
        assert len(connections) == 1


def test_a_closed_connection_makes_room(listener: socket.socket) -> None:
    connections = guard(listener, most=1)
    with dialled(listener) as (_, ours_1), dialled(listener) as (second, ours_2):
        connections.opened(ours_1.fileno(), NOW_MS)
        connections.closed(ours_1.fileno())
        connections.opened(ours_2.fileno(), NOW_MS)
        assert is_open(second)
        assert connections.refused == 0


def test_silence_ends_a_connection_and_speech_keeps_it(listener: socket.socket) -> None:
    connections = guard(listener, silent_ms=200)
    tick = threading.Event()
    with dialled(listener) as (silent, ours_1), dialled(listener) as (talking, ours_2):
        for ours in (ours_1, ours_2):
            connections.opened(ours.fileno(), NOW_MS)
        for _ in range(2000):
            talking.sendall(b"x")
            assert ours_2.recv(1) == b"x"
            connections.end_silent(NOW_MS)
            if connections.strangers:
                break
            tick.wait(0.01)
        assert connections.strangers == 1
        assert silent.recv(1) == b""
        assert is_open(talking)


def test_a_number_that_belongs_to_something_else_is_left_alone(listener: socket.socket) -> None:
    connections = guard(listener, most=0, silent_ms=0)
    other_listener = socket.create_server(("127.0.0.1", 0))
    reading, writing = os.pipe()
    with other_listener, dialled(other_listener) as (peer, ours):
        for number in (ours.fileno(), reading, writing, listener.fileno(), 1 << 20):
            connections.opened(number, NOW_MS)
        connections.end_silent(NOW_MS)
        assert is_open(peer)
        os.write(writing, b"x")
        assert os.read(reading, 1) == b"x"
    assert connections.refused == 0
    assert connections.strangers == 0
    os.close(reading)
    os.close(writing)
