"""A whole broker core on a simulated disk, driven step by step: no thread, no clock, no socket.

`Bench` is shell and world in one: jobs wait in `flushes`, worker calls in `calls`, timers in a
heap; `settle` runs all of it until nothing is left. Replies are collected.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ringlog.broker.config import BrokerConfig
from ringlog.broker.context import Context
from ringlog.broker.core import BrokerCore
from ringlog.broker.error_codes import broker_error, is_known
from ringlog.broker.partition import Partition
from ringlog.broker.shell import FlushJob, J
from ringlog.broker.timers import HeapTimer, TimerHeap
from ringlog.client import messages as m
from ringlog.client.errors import BrokerError, error_from
from ringlog.registry.model import BrokerInfo
from ringlog.registry.standalone import StandaloneRegistry
from ringlog.storage.crash_images import CrashMode
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.files import Directory
from ringlog.storage.record_batch import iter_batches
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import BrokerId, Buffer, TopicPartition

T = TypeVar("T")
R = TypeVar("R", bound=m.Message)
NOW_MS = 1_700_000_000_000


class FakeReply:
    """Collects the one answer."""

    def __init__(self) -> None:
        self.body: m.Message | None = None
        self.frames: list[bytes] = []
        self.error: BrokerError | None = None
        self.discarded = False
        self.room_bytes = 1 << 30

    @property
    def done(self) -> bool:
        return self.body is not None or self.error is not None or self.discarded

    def send(self, body: m.Message, frames: Sequence[Buffer] = ()) -> None:
        assert not self.done, "answered twice"
        # Through the codec, so that a body that cannot travel is noticed.
        self.body = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=type(body))
        self.frames = [bytes(frame) for frame in frames]

    def fail(self, error: BrokerError) -> None:
        assert not self.done, "answered twice"
        self.error = error

    def discard(self) -> None:
        assert not self.done, "answered twice"
        self.discarded = True

    def result(self, kind: type[R]) -> R:
        """The answer, or raises its error."""
        if self.error is not None:
            raise self.error
        assert isinstance(self.body, kind), f"no {kind.__name__} yet"
        return self.body


class Bench:
    """One life of a broker core on `disk`. `Shell` of that core."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        start: bool = True,
        life: int = 1,
        directory: Directory | None = None,
        **settings: Any,  # noqa: ANN401  of BrokerConfig
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.settings = settings
        self.life = life
        self.wall_ms = NOW_MS
        self.clock_ms = 0
        self.timers = TimerHeap()
        self.calls: deque[Callable[[], None]] = deque()
        self.flushes: deque[Callable[[], None]] = deque()
        self.hold_flushes = False
        self.hold_calls = False
        self.failure: Exception | None = None
        self.start_error: Exception | None = None
        self.started = False
        directory = directory or self.disk.directory()
        directory.create()
        config = BrokerConfig(**{"disk_reserve_bytes": 0, **settings})
        registry = StandaloneRegistry.open(directory, BrokerInfo(7, "127.0.0.1:5555"))
        self.marks = DurableMarks.open(directory)
        context = Context(
            config=config,
            shell=self,
            registry=registry,
            directory=directory,
            marks=self.marks,
            cluster_id="cluster",
            broker_id=BrokerId(7),
            directory_id="directory-uuid",
            listen="127.0.0.1:5555",
            advertise="127.0.0.1:5555",
            started_ms=NOW_MS,
            rng=random.Random(life),
        )
        self.core = BrokerCore(context)
        self.handlers = self.core.handlers()
        self.registry = registry
        if start:
            self.start()

    def start(self) -> None:
        def started(error: Exception | None) -> None:
            self.started, self.start_error = True, error

        self.core.start(started)
        self.settle()

    # -- Shell -----------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.clock_ms

    def flush(
        self,
        partition: TopicPartition,
        job: J,
        on_done: Callable[[J, Exception | None], None],
        *,
        sync: bool = True,
    ) -> None:
        def run() -> None:
            error = _run_job(job, sync=sync)
            if error is None and sync:
                self.marks.flush()
            on_done(job, error)

        self.flushes.append(run)

    def run(
        self, fn: Callable[[], T], on_done: Callable[[T | None, Exception | None], None]
    ) -> None:
        def call() -> None:
            try:
                result = fn()
            except Exception as error:  # noqa: BLE001  as a worker
                on_done(None, error)
            else:
                on_done(result, None)

        self.calls.append(call)

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> HeapTimer:
        return self.timers.call_at(monotonic_ms, callback)

    def fatal(self, error: Exception) -> None:
        self.failure = self.failure or error

    # -- driving ---------------------------------------------------------------------------

    def settle(self) -> None:
        """Run what waits, and what that brings, except what is held."""
        while True:
            if self.calls and not self.hold_calls:
                self.calls.popleft()()
            elif self.flushes and not self.hold_flushes:
                self.flushes.popleft()()
            else:
                return

    def flush_one(self) -> None:
        """Run one job that is held."""
        self.flushes.popleft()()

    def advance(self, by_ms: int) -> None:
        """Let time pass, timer by timer."""
        end_ms = self.clock_ms + by_ms
        while (due_ms := self.timers.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._move_to(max(due_ms, self.clock_ms))
            self.timers.run_due(self.clock_ms)
            self.settle()
        self._move_to(end_ms)

    def _move_to(self, clock_ms: int) -> None:
        self.wall_ms += clock_ms - self.clock_ms
        self.clock_ms = clock_ms

    def send(self, key: m.ApiKey, body: m.Message, frames: Sequence[Buffer] = ()) -> FakeReply:
        """Hand a request to its handler, as dispatch does; nothing is run yet."""
        reply = FakeReply()
        try:
            self.handlers[key](body, [memoryview(f) for f in frames], reply, self.wall_ms)
        except Exception as error:
            if not is_known(error):
                raise
            reply.fail(broker_error(error))
        return reply

    def ask(
        self, key: m.ApiKey, body: m.Message, kind: type[R], frames: Sequence[Buffer] = ()
    ) -> R:
        """Send a request, settle, and return its answer."""
        reply = self.send(key, body, frames)
        self.settle()
        return reply.result(kind)

    def stop(self) -> None:
        """Graceful stop."""
        stopped: list[bool] = []
        self.core.stop(lambda: stopped.append(True))
        self.settle()
        assert stopped == [True]
        self.marks.flush()

    def restarted(self) -> "Bench":
        """The next life after a graceful stop."""
        self.stop()
        return self.next_life(self.disk.crash(random.Random(0), CrashMode.SURVIVE_ALL))

    def crashed(self, mode: CrashMode = CrashMode.LOSE_ALL, seed: int = 0) -> "Bench":
        """The next life after a crash at this moment."""
        return self.next_life(self.disk.crash(random.Random(seed), mode))

    def next_life(self, disk: SimulatedDisk) -> "Bench":
        """A start of the same broker on `disk`."""
        return Bench(disk, life=self.life + 1, **self.settings)

    # -- requests --------------------------------------------------------------------------

    def create(
        self,
        name: str = "t",
        partitions: int = 1,
        *,
        request_id: bytes = b"",
        replication_factor: int = -1,
        **config: str,
    ) -> bytes:
        """Create a topic; settings with `_` for `.`."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        body = m.CreateTopicRequest(
            name, partitions, replication_factor, settings, request_id, 10_000
        )
        return self.ask(m.ApiKey.CREATE_TOPIC, body, m.CreateTopicResponse).topic_uuid

    def delete(self, name: str = "t", topic_uuid: bytes = b"") -> None:
        self.ask(m.ApiKey.DELETE_TOPIC, m.DeleteTopicRequest(name, topic_uuid, 10_000), m.Done)

    def alter(self, name: str = "t", **config: str | None) -> None:
        changes = {key.replace("_", "."): value for key, value in config.items()}
        self.ask(m.ApiKey.ALTER_TOPIC, m.AlterTopicRequest(name, changes, 10_000), m.Done)

    def describe(self, name: str = "t") -> m.DescribeTopicResponse:
        body = m.DescribeTopicRequest(name)
        return self.ask(m.ApiKey.DESCRIBE_TOPIC, body, m.DescribeTopicResponse)

    def send_produce(
        self,
        *batches: bytes,
        topic: str = "t",
        uuid: bytes = b"",
        acks: int = -1,
        partition: int = 0,
        timeout_ms: int = 10_000,
    ) -> FakeReply:
        targets = [m.ProducePartition(topic, uuid, partition)] * len(batches)
        body = m.ProduceRequest(acks, timeout_ms, targets)
        return self.send(m.ApiKey.PRODUCE, body, batches)

    def produce(self, *batches: bytes, **named: Any) -> list[int]:  # noqa: ANN401  passed on
        """Produce to one partition; base offsets, or the first error."""
        reply = self.send_produce(*batches, **named)
        self.settle()
        return [ok(r).base_offset for r in reply.result(m.ProduceResponse).results]

    def send_fetch(
        self,
        offset: int = 0,
        *,
        topic: str = "t",
        uuid: bytes = b"",
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> FakeReply:
        target = m.FetchPartition(topic, uuid, partition, offset, max_bytes)
        body = m.FetchRequest(max_wait_ms, min_bytes, max_bytes, [target])
        return self.send(m.ApiKey.FETCH, body)

    def fetch(self, offset: int = 0, **named: Any) -> list[int]:  # noqa: ANN401  passed on
        """Fetch one partition; base offsets of the batches, or the error."""
        reply = self.send_fetch(offset, **named)
        self.settle()
        return fetched(reply)

    def offset_at(self, timestamp_ms: int, *, topic: str = "t", partition: int = 0) -> int:
        target = m.ListOffsetsPartition(topic, b"", partition, timestamp_ms)
        body = m.ListOffsetsRequest([target])
        return ok(self.ask(m.ApiKey.LIST_OFFSETS, body, m.ListOffsetsResponse).results[0]).offset

    def delete_records(self, before_offset: int, *, topic: str = "t") -> int:
        body = m.DeleteRecordsRequest(topic, b"", 0, before_offset, 10_000)
        return self.ask(m.ApiKey.DELETE_RECORDS, body, m.DeleteRecordsResponse).log_start

    def partition(self, topic: str = "t", number: int = 0) -> Partition:
        return self.core.partitions.find(topic, b"", number)


X = TypeVar("X", m.ProduceResult, m.FetchResult, m.ListOffsetsResult)


def ok(result: X) -> X:
    """The result, or raises its error."""
    if result.error is not None:
        raise error_from(result.error)
    return result


def fetched(reply: FakeReply) -> list[int]:
    """Base offsets of the batches in a fetch's only result."""
    result = ok(reply.result(m.FetchResponse).results[0])
    if result.frame < 0:
        return []
    return [header.base_offset for _, header in iter_batches(reply.frames[result.frame])]


def batch(*values: bytes, at_ms: int = NOW_MS, **named: Any) -> bytes:  # noqa: ANN401  passed on
    """A record batch as a producer sends it."""
    return encode_batch(values or (b"v",), timestamps=at_ms, **named)


def sized(size_bytes: int, **named: Any) -> bytes:  # noqa: ANN401  passed on
    """A batch of one record of about that size."""
    return batch(bytes(size_bytes), **named)


def _run_job(job: FlushJob, *, sync: bool) -> Exception | None:
    try:
        job.write()
        if sync:
            for file in job.files_to_sync():
                file.sync()
            job.mark()
    except Exception as error:  # noqa: BLE001  as the flusher
        return error
    return None


def settings_of(bench: Bench) -> Mapping[str, str]:
    """Settings in force of topic `t`."""
    return bench.describe().config
