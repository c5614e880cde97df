"""Which partitions to ask whom, and what to do with the answers: the consumer's core.

Owns positions, buffers and the order of turns between partitions. Sans-IO: `turn` gives the
requests that are due, `on_answer` takes what became of one. Must not know sockets, threads or
how records are decoded. Its owner guards it with one lock.

Invariants:
    FE1 Every offset from a slot's position on is fetched once, in order: a slot has at most one
        request on its way, and `fetch_from` moves only by an answer to that request.
    FE2 What is buffered never exceeds `buffer_bytes` by more than the answers on their way may
        bring; a slot with a full share is not asked for.
    FE3 A position never jumps in silence: each jump is a `Lost` event or an error.
    FE4 An error halts its own partition and is raised once; the others go on.

Source: Kafka's fetcher for the idea of one request over many partitions; several may be on
their way here, over disjoint partitions, so that one that waits for an idle partition never
holds up a busy one.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple

from ringlog.client.errors import (
    BrokerError,
    CorruptRecord,
    NotLeader,
    OffsetOutOfRange,
    RinglogError,
    error_from,
)
from ringlog.client.fetch_slot import NO_OFFSET, Chunk, Slot, SlotState
from ringlog.client.messages import (
    EARLIEST,
    LATEST,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from ringlog.client.metadata import MetadataCache
from ringlog.client.requests import Answer
from ringlog.client.retry import Backoff
from ringlog.storage.errors import CorruptBatch
from ringlog.storage.record_batch import iter_batches
from ringlog.storage.types import TopicPartition

MAX_PARTITIONS_PER_REQUEST = 1000
"""Below the limit on payload frames of one answer."""

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
"""`auto_offset_reset` -> what to look for."""


class Lost(NamedTuple):
    """Records that could not be read: [`from_offset`, `to_offset`) is gone."""

    partition: TopicPartition
    from_offset: int
    to_offset: int


class Outgoing(NamedTuple):
    """A request that is due. `slots[i]` with `versions[i]` belongs to row i of the body."""

    broker_id: int
    body: FetchRequest | ListOffsetsRequest
    slots: list[Slot]
    versions: list[int]


class FetchLimits(NamedTuple):
    """The settings a fetcher needs. Sizes in bytes."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    partition_bytes: int
    buffer_bytes: int


class Fetcher:
    """See the module."""

    def __init__(
        self, limits: FetchLimits, *, reset: str, backoff: Backoff, rng: random.Random
    ) -> None:
        self._limits = limits
        self._reset = RESETS[reset]
        self._backoff = backoff
        self._rng = rng
        self.slots: dict[TopicPartition, Slot] = {}
        self.lost: list[Lost] = []
        """Events not yet reported, oldest first."""
        self.stale_topics: set[str] = set()
        """Topics whose metadata should be asked for again."""
        self._buffered_bytes = 0
        self._turns = 0

    # -- Commands ------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition], target_ms: int) -> None:
        """Make `partitions` the assignment; new ones start at `target_ms`, others go on."""
        wanted = list(dict.fromkeys(partitions))
        for gone in self.slots.keys() - set(wanted):
            self._drop(self.slots.pop(gone))
        for partition in wanted:
            if partition not in self.slots:
                slot = self.slots[partition] = Slot(partition)
                slot.look_for(target_ms)

    def look_for(self, slot: Slot, target_ms: int) -> None:
        """Seek to EARLIEST, LATEST or a timestamp."""
        self._drop(slot)
        slot.topic_uuid = b""
        slot.look_for(target_ms)

    def seek(self, slot: Slot, offset: int) -> None:
        """Seek to an offset; it is checked by the next fetch."""
        self._drop(slot)
        slot.topic_uuid = b""
        slot.start_at(offset)

    # -- Handing out ---------------------------------------------------------------------

    def next_chunk(self) -> Chunk | None:
        """The next buffered batches, partitions taking turns."""
        slots = list(self.slots.values())
        for place in range(len(slots)):
            slot = slots[(self._turns + place) % len(slots)]
            if slot.chunks and not slot.paused:
                self._turns += place + 1
                return slot.chunks[0]
        return None

    def finish(self, chunk: Chunk) -> None:
        """`chunk` was handed out to its end (or proved unreadable): free its room."""
        slot = chunk.slot
        if slot.chunks and slot.chunks[0] is chunk:
            slot.chunks.popleft()
            self._buffered_bytes -= len(chunk.data)
            # The next chunk may begin behind a gap.
            slot.position = slot.chunks[0].offset if slot.chunks else slot.fetch_from

    def fail(self, slot: Slot, error: RinglogError) -> None:
        """What is buffered of a partition cannot be read: halt it where it stands."""
        self._drop(slot)
        slot.fetch_from = slot.position
        slot.halt(error)

    @property
    def has_error(self) -> bool:
        """Whether `take_error` has one, now or behind what is buffered."""
        return any(slot.error is not None for slot in self.slots.values())

    def take_error(self) -> RinglogError | None:
        """The next error to raise, once."""
        for slot in self.slots.values():
            # What was fetched before the error is handed out first.
            if slot.error is not None and not slot.chunks:
                error, slot.error = slot.error, None
                return error
        return None

    # -- Asking --------------------------------------------------------------------------

    def turn(self, now_ms: int, metadata: MetadataCache) -> list[Outgoing]:
        """Requests that are due; each of their slots counts as being asked for."""
        looks: dict[int, list[Slot]] = {}
        fetches: dict[int, list[Slot]] = {}
        for slot in self._in_turn():
            if not self._due(slot, now_ms):
                continue
            leader = self._leader_of(slot, now_ms, metadata)
            if leader < 0:
                continue
            group = looks if slot.state is SlotState.LOOKING else fetches
            group.setdefault(leader, []).append(slot)
        due = [self._look(leader, slots) for leader, slots in looks.items()]
        return due + [self._fetch(leader, slots) for leader, slots in fetches.items()]

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When a partition that backs off is due again."""
        waits = [
            slot.not_before_ms
            for slot in self.slots.values()
            if slot.not_before_ms > now_ms and slot.state is not SlotState.HALTED
        ]
        return min(waits, default=None)

    def _in_turn(self) -> list[Slot]:
        """All slots, starting after those that were handed out last."""
        slots = list(self.slots.values())
        start = self._turns % len(slots) if slots else 0
        return slots[start:] + slots[:start]

    def _due(self, slot: Slot, now_ms: int) -> bool:
        if slot.state is SlotState.HALTED or slot.fetching or now_ms < slot.not_before_ms:
            return False
        if slot.state is SlotState.LOOKING:
            return True
        # Two chunks a partition: one being handed out, one ready behind it.
        room = self._buffered_bytes < self._limits.buffer_bytes and len(slot.chunks) < 2
        return not slot.paused and (room or (not slot.chunks and self._buffered_bytes == 0))

    def _leader_of(self, slot: Slot, now_ms: int, metadata: MetadataCache) -> int:
        topic, partition = slot.partition
        view = metadata.topic(topic)
        missing = metadata.missing(topic)
        if view is None and missing is not None:
            slot.halt(error_from(missing))
            return -1
        leader = metadata.leader(topic, partition)
        if view is None or leader < 0:
            self.stale_topics.add(topic)
            self._pause(slot, _no_leader(slot.partition), now_ms)
            return -1
        if not slot.topic_uuid:
            slot.topic_uuid = view.topic_uuid
        return leader

    def _look(self, leader: int, slots: list[Slot]) -> Outgoing:
        slots = slots[:MAX_PARTITIONS_PER_REQUEST]
        rows = [
            ListOffsetsPartition(
                slot.partition.topic, slot.topic_uuid, slot.partition.partition, slot.target_ms
            )
            for slot in slots
        ]
        return _outgoing(leader, ListOffsetsRequest(rows), slots)

    def _fetch(self, leader: int, slots: list[Slot]) -> Outgoing:
        slots = slots[:MAX_PARTITIONS_PER_REQUEST]
        limits = self._limits
        rows = [
            FetchPartition(
                slot.partition.topic,
                slot.topic_uuid,
                slot.partition.partition,
                slot.fetch_from,
                limits.partition_bytes,
            )
            for slot in slots
        ]
        room = max(limits.partition_bytes, limits.buffer_bytes - self._buffered_bytes)
        body = FetchRequest(limits.max_wait_ms, limits.min_bytes, min(room, limits.max_bytes), rows)
        return _outgoing(leader, body, slots)

    # -- Answers -------------------------------------------------------------------------

    def on_answer(self, request: Outgoing, answer: Answer, now_ms: int) -> None:
        """Take in what became of a request."""
        body = answer.body
        rows: list[FetchResult] | list[ListOffsetsResult] = []
        error = answer.error
        if isinstance(body, FetchResponse | ListOffsetsResponse):
            rows = body.results
        if error is None and len(rows) != len(request.slots):
            error = CorruptRecord(
                f"{answer.address} answered {len(rows)} of {len(request.slots)} partitions"
            )
        for place, slot in enumerate(request.slots):
            if slot.version != request.versions[place]:
                continue
            slot.fetching = False
            if error is not None:
                self._on_error(slot, error, now_ms)
            else:
                self._on_row(slot, rows[place], answer, now_ms)

    def _on_row(
        self, slot: Slot, row: FetchResult | ListOffsetsResult, answer: Answer, now_ms: int
    ) -> None:
        if isinstance(row, FetchResult):
            slot.high_watermark, slot.log_start = row.high_watermark, row.log_start
        if row.error is not None:
            error = error_from(row.error)
            if isinstance(error, OffsetOutOfRange) and isinstance(row, FetchResult):
                self._on_out_of_range(slot, error)
            else:
                self._on_error(slot, error, now_ms)
        elif isinstance(row, ListOffsetsResult):
            self._on_found(slot, row)
        else:
            slot.get_on()
            self._on_data(slot, row, answer)

    def _on_data(self, slot: Slot, row: FetchResult, answer: Answer) -> None:
        if row.frame < 0:
            return
        if row.frame >= len(answer.frames):
            slot.halt(CorruptRecord(f"{answer.address} names a frame it did not send"))
            return
        data = memoryview(answer.frames[row.frame])
        next_offset, end_bytes = slot.fetch_from, 0
        try:
            for position_bytes, header in iter_batches(data):
                next_offset = header.next_offset
                end_bytes = position_bytes + header.size_bytes
        except CorruptBatch as problem:
            slot.halt(_corrupt(slot, str(problem)))
            return
        if next_offset <= slot.fetch_from or end_bytes != len(data):
            slot.halt(_corrupt(slot, f"{len(data)} bytes are no whole batches behind it"))
            return
        slot.chunks.append(Chunk(slot, slot.fetch_from, data))
        self._buffered_bytes += len(data)
        slot.fetch_from = next_offset

    def _on_found(self, slot: Slot, row: ListOffsetsResult) -> None:
        if row.offset == NO_OFFSET:
            # No record is that young: go on with what comes.
            slot.target_ms = LATEST
            slot.get_on()
            return
        slot.start_at(row.offset)

    def _on_out_of_range(self, slot: Slot, error: OffsetOutOfRange) -> None:
        if self._reset is None or slot.log_start < 0:
            slot.halt(error)
            return
        start, end = slot.log_start, slot.high_watermark
        target = start if self._reset == EARLIEST else end
        self.lost.append(Lost(slot.partition, slot.fetch_from, target))
        # Records fetched before stay: they lie below the gap, and the position follows them.
        slot.fetch_from = target
        if not slot.chunks:
            slot.position = target
        slot.get_on()

    def _on_error(self, slot: Slot, error: RinglogError, now_ms: int) -> None:
        if isinstance(error, BrokerError) and error.refresh_metadata:
            self.stale_topics.add(slot.partition.topic)
        if error.retriable and error.code != "STALE_TOPIC":
            self._pause(slot, error, now_ms)
        else:
            slot.halt(error)

    def _pause(self, slot: Slot, error: RinglogError, now_ms: int) -> None:
        slot.attempts += 1
        slot.back_off(error, now_ms + self._backoff.pause_ms(slot.attempts, self._rng))

    def _drop(self, slot: Slot) -> None:
        self._buffered_bytes -= sum(len(chunk.data) for chunk in slot.chunks)
        slot.chunks.clear()
        slot.version += 1


def _outgoing(leader: int, body: FetchRequest | ListOffsetsRequest, slots: list[Slot]) -> Outgoing:
    for slot in slots:
        slot.fetching = True
    return Outgoing(leader, body, slots, [slot.version for slot in slots])


def _no_leader(partition: TopicPartition) -> RinglogError:
    return NotLeader(f"no leader of {partition} is known", hint="it is looked up again")


def _corrupt(slot: Slot, what: str) -> CorruptRecord:
    return CorruptRecord(
        f"{slot.partition} at offset {slot.fetch_from}: {what}",
        hint="nothing of it was handed out; seek past it to go on",
    )
