"""Logs, a leader that answers from them, and a fetcher that asks: all values, no clock."""

import contextlib
import random
from collections.abc import Sequence

from ringlog.client.consumer_config import Deserializer
from ringlog.client.errors import (
    Busy,
    NoBrokerReachable,
    NotLeader,
    OffsetOutOfRange,
    RinglogError,
)
from ringlog.client.fetch_slot import Slot
from ringlog.client.fetcher import Fetcher, FetchLimits, Outgoing
from ringlog.client.hand_out import HandOut
from ringlog.client.messages import (
    EARLIEST,
    LATEST,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsResult,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from ringlog.client.metadata import MetadataCache
from ringlog.client.record import Record
from ringlog.client.requests import Answer
from ringlog.client.retry import Backoff
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.types import TopicPartition

UUID = b"u" * 16
LIMITS = FetchLimits(1, 500, 10_000, 1_000, 100_000)


class Leader:
    """The true logs of topic `t`. A batch is (base offset, record count, bytes).

    The value of a record is `<partition>:<offset>`, its timestamp 1,000 x offset.
    """

    def __init__(self, partitions: int) -> None:
        self.batches: list[list[tuple[int, int, bytes]]] = [[] for _ in range(partitions)]
        self.start = [0] * partitions
        self.end = [0] * partitions

    def append(self, partition: int, count: int, padding: int = 0) -> None:
        base = self.end[partition]
        offsets = range(base, base + count)
        values = [b"%d:%d" % (partition, offset) + b"." * padding for offset in offsets]
        times = [1_000 * offset for offset in offsets]
        batch = encode_batch(values, timestamps=times, base_offset=base)
        self.batches[partition].append((base, count, batch))
        self.end[partition] += count

    def delete(self, partition: int, before: int) -> None:
        self.start[partition] = max(self.start[partition], min(before, self.end[partition]))

    def fetch(self, row: FetchPartition, frames: list[bytes], left: int) -> FetchResult:
        """`left` bytes may be sent; the first batch of an answer always fits."""
        at, start, end = row.partition, self.start[row.partition], self.end[row.partition]
        if not start <= row.offset <= end:
            return FetchResult(end, start, -1, OffsetOutOfRange("gone").info())
        room = min(row.max_bytes, left)
        data = b""
        for base, count, batch in self.batches[at]:
            if base + count <= row.offset:
                continue
            if (data or frames) and len(data) + len(batch) > room:
                break
            data += batch
        if not data:
            return FetchResult(end, start, -1)
        frames.append(data)
        return FetchResult(end, start, len(frames) - 1)

    def look(self, row: ListOffsetsPartition) -> ListOffsetsResult:
        start, end = self.start[row.partition], self.end[row.partition]
        if row.timestamp_ms == EARLIEST:
            return ListOffsetsResult(start, -1)
        if row.timestamp_ms == LATEST:
            return ListOffsetsResult(end, -1)
        offset = max(start, -(-row.timestamp_ms // 1_000))
        return ListOffsetsResult(offset if offset < end else -1, -1)

    def answer(self, request: Outgoing, trouble: random.Random | None = None) -> Answer:
        """What a leader with this much `trouble` makes of a request."""
        if trouble is not None and trouble.random() < 0.15:
            return Answer(error=NoBrokerReachable("cut"), lost=True)
        if not isinstance(request.body, FetchRequest):
            return Answer(ListOffsetsResponse([self.look(row) for row in request.body.partitions]))
        frames: list[bytes] = []
        results = []
        for row in request.body.partitions:
            if trouble is not None and trouble.random() < 0.1:
                error = trouble.choice((NotLeader("moved"), Busy("full")))
                results.append(FetchResult(-1, -1, -1, error.info()))
            else:
                left = request.body.max_bytes - sum(map(len, frames))
                results.append(self.fetch(row, frames, left))
        return Answer(FetchResponse(results), frames)


def topic_metadata(partitions: int, topic: str = "t", uuid: bytes = UUID) -> TopicMetadata:
    """Partitions are led by brokers 0 and 1 in turn."""
    rows = [PartitionMetadata(number, number % 2, 1, [number % 2]) for number in range(partitions)]
    return TopicMetadata(topic, uuid, rows)


def metadata_of(partitions: int) -> MetadataCache:
    cache = MetadataCache()
    cache.apply(MetadataResponse("c", 0, [], [topic_metadata(partitions)]))
    return cache


class FetchWorld:
    """A fetcher and its leader, step by step; partitions of `t` are told by number."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        reset: str = "earliest",
        limits: FetchLimits = LIMITS,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
    ) -> None:
        self.leader = Leader(partitions)
        self.metadata = metadata_of(partitions)
        self.fetcher = Fetcher(limits, reset=reset, backoff=Backoff(), rng=random.Random(1))
        self.hand_out = HandOut(self.fetcher, contextlib.nullcontext(), key, value)
        self.now_ms = 0

    def assign(self, *numbers: int, target_ms: int = EARLIEST) -> None:
        self.fetcher.assign([TopicPartition("t", number) for number in numbers], target_ms)

    def slot(self, number: int = 0) -> Slot:
        return self.fetcher.slots[TopicPartition("t", number)]

    def ask(self) -> list[Outgoing]:
        """What is due, after the longest pause."""
        self.now_ms += 2_000
        return self.fetcher.turn(self.now_ms, self.metadata)

    def one(self) -> Outgoing:
        (request,) = self.ask()
        return request

    def reply(self, request: Outgoing, answer: Answer | None = None) -> None:
        """None: what a kind leader says."""
        self.fetcher.on_answer(request, answer or self.leader.answer(request), self.now_ms)

    def refuse(self, request: Outgoing, error: RinglogError) -> None:
        self.reply(request, Answer(error=error))

    def go_on(self, rounds: int = 2) -> None:
        """Ask and be answered; two rounds find a position and fetch from it."""
        for _ in range(rounds):
            for request in self.ask():
                self.reply(request)

    def take(self, most: int = 1_000) -> list[Record]:
        records: list[Record] = []
        assert self.hand_out.take(most, records.extend) == len(records)
        return records

    def offsets(self, most: int = 1_000) -> list[int]:
        return [record.offset for record in self.take(most)]


def fetched(*results: FetchResult, frames: Sequence[bytes] = ()) -> Answer:
    return Answer(FetchResponse(list(results)), list(frames), address="b:1")


def ready(records: int = 10, **settings: str) -> FetchWorld:
    """One partition with a batch of so many records, its position found."""
    world = FetchWorld(1, **settings)  # type: ignore[arg-type]  # by name
    world.leader.append(0, records)
    world.assign(0)
    world.go_on(1)
    return world


def with_topic(uuid: bytes, partitions: int = 1) -> MetadataResponse:
    return MetadataResponse("c", 0, [], [topic_metadata(partitions, uuid=uuid)])
