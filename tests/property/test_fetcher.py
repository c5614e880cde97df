"""The consumer's core against a hostile leader: everything once, in order, or an event that says.

The leader delays, loses and fails answers, loses its place, deletes old records and appends new
ones; between its answers the application takes records, pauses, resumes and seeks.
"""

import contextlib
import random

from hypothesis import given
from hypothesis import strategies as st

from ringlog.client.fetcher import Fetcher, FetchLimits, Lost, Outgoing
from ringlog.client.hand_out import HandOut
from ringlog.client.messages import EARLIEST
from ringlog.client.record import Record
from ringlog.client.retry import Backoff
from ringlog.storage.types import TopicPartition
from tests.unit.client.fetch_world import Leader, metadata_of

LARGEST_BATCH_BYTES = 200
"""Of eight short records."""

ROUNDS_TO_THE_END = 2_000
"""Far more than the longest log has batches."""


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
            assert isinstance(event, Lost), "nobody seeks behind the end here"
            self.gaps.add((event.partition.partition, event.from_offset, event.to_offset))
        self.fetcher.lost.clear()
        for record in records:
            self.check(record)

    def check(self, record: Record) -> None:
        number = record.partition
        assert record.value == b"%d:%d" % (number, record.offset)
        assert not self.fetcher.slots[TopicPartition("t", number)].paused
        # What was passed over was said, gap by gap; a gap may follow on another.
        if number not in self.next:
            # The log start when it was looked for, or any later one until the first fetch.
            assert record.offset <= self.leader.start[number]
            self.next[number] = record.offset
        while self.next[number] != record.offset:
            ends = [
                end for at, start, end in self.gaps if (at, start) == (number, self.next[number])
            ]
            assert ends, f"jumped from {self.next[number]} to {record.offset} in silence"
            self.next[number] = max(ends)
        self.next[number] = record.offset + 1


def check_memory(fetcher: Fetcher, limits: FetchLimits, due: list[Outgoing]) -> None:
    """Over the bound goes only what makes the first batch of an answer fit, once a partition."""
    if any(request.max_bytes for request in due):
        # Nothing is asked for that has no room.
        assert fetcher.buffered_bytes + fetcher.asked_bytes <= limits.buffer_bytes
    slots = fetcher.slots.values()
    buffered = sum(len(chunk.data) for slot in slots for chunk in slot.chunks)
    assert fetcher.buffered_bytes == buffered
    assert fetcher.asked_bytes >= 0
    first_batches = LARGEST_BATCH_BYTES * len(fetcher.slots)
    assert buffered + fetcher.asked_bytes <= limits.buffer_bytes + first_batches


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
        due = fetcher.turn(now_ms, metadata)
        under_way += due
        check_memory(fetcher, limits, due)
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
                reply = leader.answer(request, None if calm else draw)
                fetcher.on_answer(request, reply, now_ms)
                assert fetcher.take_error() is None
            case _:
                pass
    for slot in fetcher.slots.values():
        slot.paused = False
    for _ in range(ROUNDS_TO_THE_END):
        if all(slot.position == leader.end[at.partition] for at, slot in fetcher.slots.items()):
            break
        now_ms += 60
        under_way += fetcher.turn(now_ms, metadata)
        assert under_way or fetcher.next_chunk(), "nothing is asked for and nothing is buffered"
        for request in under_way:
            fetcher.on_answer(request, leader.answer(request), now_ms)
        under_way.clear()
        reader.take(50)
    else:
        raise AssertionError("it does not come to the end")
    for number in range(partitions):
        assert max(reader.next.get(number, 0), leader.start[number]) == leader.end[number]
    assert fetcher.next_chunk() is None
    assert fetcher.buffered_bytes == 0
    assert fetcher.asked_bytes == sum(request.max_bytes for request in under_way)
