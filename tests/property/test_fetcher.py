"""The consumer's core against a hostile leader: everything once, in order, or an event that says.

The leader delays, loses and fails answers, loses its place, deletes old records and appends new
ones; between its answers the application takes records, pauses, resumes and seeks.
"""

import contextlib
import random

from hypothesis import given
from hypothesis import strategies as st

from ringlog.client.errors import Busy, NoBrokerReachable, NotLeader, OffsetOutOfRange
from ringlog.client.fetcher import Fetcher, FetchLimits, Outgoing
from ringlog.client.hand_out import HandOut
from ringlog.client.messages import (
    EARLIEST,
    LATEST,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
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


class Leader:
    """The true logs. A batch is (base offset, record count, bytes)."""

    def __init__(self, partitions: int) -> None:
        self.batches: list[list[tuple[int, int, bytes]]] = [[] for _ in range(partitions)]
        self.start = [0] * partitions
        self.end = [0] * partitions

    def append(self, partition: int, count: int) -> None:
        base = self.end[partition]
        values = [b"%d:%d" % (partition, base + place) for place in range(count)]
        self.batches[partition].append((base, count, encode_batch(values, base_offset=base)))
        self.end[partition] += count

    def delete(self, partition: int, before: int) -> None:
        self.start[partition] = max(self.start[partition], min(before, self.end[partition]))

    def fetch(self, row: FetchPartition, frames: list[bytes]) -> FetchResult:
        at, start, end = row.partition, self.start[row.partition], self.end[row.partition]
        if not start <= row.offset <= end:
            return FetchResult(end, start, -1, OffsetOutOfRange("gone").info())
        data = b""
        for base, count, batch in self.batches[at]:
            if base + count > row.offset and (not data or len(data) + len(batch) <= row.max_bytes):
                data += batch
            elif data:
                break
        if not data:
            return FetchResult(end, start, -1)
        frames.append(data)
        return FetchResult(end, start, len(frames) - 1)


def answer_of(leader: Leader, request: Outgoing, trouble: random.Random | None) -> Answer:
    """None: no more trouble."""
    if trouble is not None and trouble.random() < 0.15:
        return Answer(error=NoBrokerReachable("cut"), lost=True)
    frames: list[bytes] = []
    if isinstance(request.body, FetchRequest):
        results = []
        for row in request.body.partitions:
            if trouble is not None and trouble.random() < 0.1:
                error = trouble.choice((NotLeader("moved"), Busy("full")))
                results.append(FetchResult(-1, -1, -1, error.info()))
            else:
                results.append(leader.fetch(row, frames))
        return Answer(FetchResponse(results), frames)
    found = []
    for look in request.body.partitions:
        place = leader.start if look.timestamp_ms == EARLIEST else leader.end
        found.append(ListOffsetsResult(place[look.partition], -1))
    return Answer(ListOffsetsResponse(found))


def metadata_of(partitions: int) -> MetadataCache:
    cache = MetadataCache()
    rows = [PartitionMetadata(number, number % 2, 1, [number % 2]) for number in range(partitions)]
    cache.apply(MetadataResponse("c", 0, [], [TopicMetadata("t", UUID, rows)]))
    return cache


class Reader:
    """An application that knows what it must see next."""

    def __init__(self, leader: Leader, fetcher: Fetcher) -> None:
        self.leader = leader
        self.fetcher = fetcher
        self.hand_out = HandOut(fetcher, contextlib.nullcontext(), None, None)
        self.next: dict[int, int] = {}
        """Per partition; not there before the first record after a start at the earliest."""
        self.gaps: set[tuple[int, int, int]] = set()

    def take(self, count: int) -> None:
        records: list[Record] = []
        assert self.hand_out.take(count, records.extend) == len(records) <= count
        for event in self.fetcher.lost:
            self.gaps.add((event.partition.partition, event.from_offset, event.to_offset))
        self.fetcher.lost.clear()
        for record in records:
            self.check(record)

    def check(self, record: Record) -> None:
        number = record.partition
        assert record.value == b"%d:%d" % (number, record.offset)
        assert not self.fetcher.slots[TopicPartition("t", number)].paused
        # What was passed over was said, gap by gap; a gap may follow on another.
        self.next.setdefault(number, record.offset)
        while self.next[number] != record.offset:
            ends = [
                end for at, start, end in self.gaps if (at, start) == (number, self.next[number])
            ]
            assert ends, f"jumped from {self.next[number]} to {record.offset} in silence"
            self.next[number] = max(ends)
        self.next[number] = record.offset + 1


@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([60, 400, 4000]))
def test_every_record_once_and_in_order(seed: int, partitions: int, partition_bytes: int) -> None:
    draw = random.Random(seed)
    leader = Leader(partitions)
    limits = FetchLimits(1, 500, 10_000, partition_bytes, 3 * partition_bytes)
    fetcher = Fetcher(limits, reset="earliest", backoff=Backoff(5, 50), rng=random.Random(seed))
    reader = Reader(leader, fetcher)
    metadata = metadata_of(partitions)
    fetcher.assign([TopicPartition("t", number) for number in range(partitions)], EARLIEST)
    under_way: list[Outgoing] = []
    now_ms = 0
    for step in range(400):
        calm = step >= 250
        now_ms += draw.randrange(20)
        under_way += fetcher.turn(now_ms, metadata)
        slot = fetcher.slots[TopicPartition("t", draw.randrange(partitions))]
        number = slot.partition.partition
        match draw.randrange(8):
            case 0 | 1 if not calm:
                leader.append(number, draw.randrange(1, 9))
            case 2 if not calm:
                leader.delete(number, draw.randrange(leader.end[number] + 1))
            case 3 if not calm and slot.position >= 0:
                target = draw.randrange(leader.end[number] + 1)
                fetcher.seek(slot, target)
                reader.next[number] = target
            case 4:
                slot.paused = not slot.paused and not calm
            case 5:
                reader.take(draw.randrange(1, 20))
            case _ if under_way:
                request = under_way.pop(draw.randrange(len(under_way)))
                reply = answer_of(leader, request, None if calm else draw)
                fetcher.on_answer(request, reply, now_ms)
                assert fetcher.take_error() is None
            case _:
                pass
    for slot in fetcher.slots.values():
        slot.paused = False
    while not all(slot.position == leader.end[at.partition] for at, slot in fetcher.slots.items()):
        now_ms += 60
        under_way += fetcher.turn(now_ms, metadata)
        assert under_way or fetcher.next_chunk(), "nothing is asked for and nothing is buffered"
        for request in under_way:
            fetcher.on_answer(request, answer_of(leader, request, None), now_ms)
        under_way.clear()
        reader.take(50)
    for number in range(partitions):
        assert max(reader.next.get(number, 0), leader.start[number]) == leader.end[number]
    assert fetcher.next_chunk() is None


def test_the_latest_is_where_it_was_asked_for() -> None:
    leader = Leader(1)
    leader.append(0, 5)
    limits = FetchLimits(1, 500, 10_000, 100, 1000)
    fetcher = Fetcher(limits, reset="latest", backoff=Backoff(), rng=random.Random(0))
    fetcher.assign([TopicPartition("t", 0)], LATEST)
    (look,) = fetcher.turn(0, metadata_of(1))
    fetcher.on_answer(look, answer_of(leader, look, None), 0)
    assert fetcher.slots[TopicPartition("t", 0)].position == 5
