"""A core without partitions, so that the shell is tested on its own over real sockets.

Metadata echoes the topics asked for; ListOffsets fails inside with a bug; Produce answers after
its batch went through the flusher, with the batch as a payload frame's length; Fetch waits until
`max_wait_ms` or the end, then sends `max_bytes` zero bytes.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringlog.broker.context import Context
from ringlog.broker.shell import FlushJob, Handler, Reply, Timer
from ringlog.client.errors import BrokerError
from ringlog.client.messages import (
    ApiKey,
    FetchRequest,
    FetchResponse,
    FetchResult,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    TopicMetadata,
)
from ringlog.storage.errors import StorageError
from ringlog.storage.files import File
from ringlog.storage.types import TopicPartition


class StubJob:
    """A flush job that may be told to fail."""

    def __init__(self, failure: StorageError | None) -> None:
        self._failure = failure

    def write(self) -> None:
        if self._failure is not None:
            raise self._failure

    def files_to_sync(self) -> Sequence[File]:
        return ()

    def mark(self) -> None:
        pass


class StubCore:
    """`broker.shell.Core` with switches for what goes wrong."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.waiting: dict[int, tuple[Reply, Timer]] = {}
        self.flush_failure: StorageError | None = None
        self.start_error: Exception | None = None
        self.stop_hangs = False
        self.abandon_fails = False
        self.stop_seen = threading.Event()
        self._on_stopped: Callable[[], None] | None = None
        self.stopped = False
        self.abandoned: BrokerError | None = None
        self.frames: list[Any] = []

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.METADATA: self._metadata,
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._broken,
        }

    def start(self, on_done: Callable[[Exception | None], None]) -> None:
        error = self.start_error
        self.context.shell.run(lambda: None, lambda _result, _error: on_done(error))

    def stop(self, on_done: Callable[[], None]) -> None:
        self._answer_all()
        self.stopped = True
        self._on_stopped = on_done
        self.stop_seen.set()
        if not self.stop_hangs:
            self.finish_stop()

    def answer_soon(self) -> None:
        """Answer every waiter. Any thread."""
        self.context.shell.run(lambda: None, lambda _result, _error: self._answer_all())

    def finish_stop(self) -> None:
        """End a stop that hangs. Any thread."""
        on_done = self._on_stopped
        assert on_done is not None
        self.context.shell.run(lambda: None, lambda _result, _error: on_done())

    def abandon(self, error: BrokerError) -> None:
        self.abandoned = error
        if self.abandon_fails:
            raise RuntimeError("planted")
        for reply, timer in self.waiting.values():
            timer.cancel()
            reply.fail(error)
        self.waiting.clear()

    def _metadata(
        self, request: MetadataRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        names = request.topics or []
        topics = [TopicMetadata(name, b"", []) for name in names]
        reply.send(MetadataResponse(self.context.cluster_id, 0, [], topics))

    def _produce(
        self, request: ProduceRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        if request.acks == 0:
            reply.discard()
            return
        sizes = [len(frame) for frame in frames]
        self.frames = [(type(frame.obj).__name__, len(frame)) for frame in frames]

        def done(job: FlushJob, error: Exception | None) -> None:
            if reply.done or error is not None:
                return  # abandoned, or about to be
            self.waiting.pop(id(reply))
            reply.send(ProduceResponse([ProduceResult(size, 0) for size in sizes]))

        self.waiting[id(reply)] = (reply, self.context.shell.call_at(1 << 60, _nothing))
        self.context.shell.flush(TopicPartition("t", 0), StubJob(self.flush_failure), done)

    def _fetch(
        self, request: FetchRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        def answer() -> None:
            self.waiting.pop(id(reply))
            data = bytes(request.max_bytes)
            reply.send(FetchResponse([FetchResult(0, 0, 0)]), [data])

        deadline_ms = self.context.shell.monotonic_ms() + request.max_wait_ms
        self.waiting[id(reply)] = (reply, self.context.shell.call_at(deadline_ms, answer))

    def _broken(self, request: object, frames: list[memoryview], reply: Reply, now_ms: int) -> None:
        raise ZeroDivisionError("a planted bug")

    def _answer_all(self) -> None:
        for reply, timer in self.waiting.values():
            timer.cancel()
            reply.send(FetchResponse([FetchResult(0, 0, -1)]))
        self.waiting.clear()


def _nothing() -> None:
    pass
