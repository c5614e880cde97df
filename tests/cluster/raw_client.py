"""A DEALER that sends exactly the bytes a test gives it, and a broker shell with a stub core.

For tests of the shell that must depend neither on the client library nor on partitions.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq

from ringlog.broker.config import BrokerConfig
from ringlog.broker.context import Context
from ringlog.broker.endpoint import Endpoint
from ringlog.broker.server import Server
from ringlog.client import wire
from ringlog.client.messages import ApiKey, Message
from tests.cluster.stub_core import StubCore

M = TypeVar("M", bound=Message)

PATIENCE_MS = 20_000


class RawClient:
    """One connection. Frames are sent as they are; nothing is retried."""

    def __init__(self, endpoint: Endpoint, options: dict[int, int] | None = None) -> None:
        self._context = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        for option, value in (options or {}).items():
            self.socket.setsockopt(option, value)
        self.socket.connect(f"tcp://{endpoint}")
        self._correlation = 0

    def send(self, frames: Sequence[bytes]) -> None:
        self.socket.send_multipart(frames)

    def request(
        self, api: ApiKey, body: Message, frames: Sequence[bytes] = (), version: int = 0
    ) -> int:
        """Send a valid request; gives its correlation id."""
        self._correlation += 1
        header = wire.encode_request(int(api), version, self._correlation, body)
        self.send([header, *frames])
        return self._correlation

    def receive(self, patience_ms: int = PATIENCE_MS) -> tuple[wire.ResponseHeader, list[bytes]]:
        """The next response, its header decoded."""
        if not self.socket.poll(patience_ms):
            raise TimeoutError("no response")
        header, *frames = self.socket.recv_multipart()
        return wire.decode_response(header), frames

    def call(self, api: ApiKey, body: Message, answer: type[M], frames: Sequence[bytes] = ()) -> M:
        """Send a valid request and decode its answer, which must be the next to come."""
        correlation = self.request(api, body, frames)
        response, _ = self.receive()
        assert response.correlation_id == correlation
        assert response.error is None, response.error
        return msgspec.msgpack.decode(response.body, type=answer)

    def refusal(self) -> tuple[int, str]:
        """The next response, which must be an error: (code, cause)."""
        response, _ = self.receive()
        assert response.error is not None, response
        return response.error.code, response.error.cause

    def close(self) -> None:
        self._context.destroy(linger=0)


class Broker:
    """A server of this process with a stub core, on a free port of loopback."""

    def __init__(self, directory: Path, **settings: object) -> None:
        values: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "data_dir": str(directory / "data"),
            **settings,
        }
        self.config = BrokerConfig(**values)  # type: ignore[arg-type]  # checked by BrokerConfig
        self.lines: list[str] = []
        self._cores: list[StubCore] = []
        self.server = Server(self.config, build_core=self._build, announce=self.lines.append)

    @property
    def core(self) -> StubCore:
        return self._cores[0]

    @property
    def endpoint(self) -> Endpoint:
        assert self.server.endpoint is not None
        return self.server.endpoint

    @contextlib.contextmanager
    def running(self) -> Iterator["Broker"]:
        """Serve within the block, then stop."""
        self.server.start()
        try:
            yield self
        finally:
            self.server.stop()

    @contextlib.contextmanager
    def client(self, options: dict[int, int] | None = None) -> Iterator[RawClient]:
        client = RawClient(self.endpoint, options)
        try:
            yield client
        finally:
            client.close()

    def _build(self, context: Context) -> StubCore:
        core = StubCore(context)
        self._cores.append(core)
        return core


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the broker's thread brings about."""
    tick = threading.Event()
    for _ in range(4000):
        if condition():
            return
        tick.wait(0.005)
    raise AssertionError("it did not come about within 20 s")
