"""Which partitions to ask whom, and what to do with the answers: the consumer's core.

Owns positions, buffers and the order of turns between partitions. Sans-IO: `turn` gives the
requests that are due, `on_answer` takes what became of one. Must not know sockets, threads or
how records are decoded. Its owner guards it with one lock.

Invariants:
    FE1 Every offset from a slot's position on is fetched once, in order: a slot has at most one
        request on its way, and `fetch_from` moves only by an answer to that request.
    FE2 What is buffered and what is asked for stay within `buffer_bytes`; over it goes only what
        makes the first batch of an answer fit. What is buffered of a paused partition makes
        room for the others.
    FE3 A position never jumps in silence: each jump is an event or an error. A start at
        the earliest that lost a race is no jump: nothing was read yet.
    FE4 An error halts its own partition and is raised once; the others go on.
    FE5 A topic that was deleted and made again is never read on by the old one's positions:
        it halts, until a seek or a new assignment asks for the new one.

Source: Kafka's fetcher for the idea of one request over many partitions; several may be on
their way here, over disjoint partitions, so that one that waits for an idle partition never
holds up a busy one.
"""

import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ringlog.client.errors import (
    BrokerError,
    CorruptRecord,
    NotLeader,
    OffsetOutOfRange,
    RinglogError,
    StaleTopic,
    UnknownPartition,
    UnknownTopic,
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


class BehindEnd(NamedTuple):
    """`offset` lay behind the end of the log: nothing was lost, reading goes on at `end`."""

    partition: TopicPartition
    offset: int
    end: int


class Outgoing(NamedTuple):
    """A request that is due, with the slots it is for and their versions.

    A fetch has a row per slot; a look has two, first LATEST, then what is looked for: where no
    record is that young, the end was asked for before the answer, and nothing is passed over.
    """

    broker_id: int
    body: FetchRequest | ListOffsetsRequest
    slots: list[Slot]
    versions: list[int]

    @property
    def max_bytes(self) -> int:
        """What its answer may bring."""
        return self.body.max_bytes if isinstance(self.body, FetchRequest) else 0


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
        self._reset = reset
        self._backoff = backoff
        self._rng = rng
        self.slots: dict[TopicPartition, Slot] = {}
        self.lost: list[Lost | BehindEnd] = []
        """Events not yet reported, oldest first."""
        self.stale_topics: set[str] = set()
        """Topics whose metadata should be asked for again."""
        self.buffered_bytes = 0
        self.asked_bytes = 0
        """What the answers on their way may bring."""
        self._doubted: set[str] = set()
        """Topics of which nothing known is believed any more."""
        self._turns = 0

    # -- Commands ------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition], target_ms: int) -> None:
        """Make `partitions` the assignment.

        New ones start at `target_ms`, others go on; those that were halted go on where they
        stood, in a topic that was made again at `target_ms`.
        """
        wanted = list(dict.fromkeys(partitions))
        for gone in self.slots.keys() - set(wanted):
            self._drop(self.slots.pop(gone))
        for partition in wanted:
            slot = self.slots.get(partition)
            if slot is None:
                slot = self.slots[partition] = Slot(partition)
                slot.look_for(target_ms)
            elif slot.state is SlotState.HALTED:
                is_other = isinstance(slot.trouble, StaleTopic | UnknownTopic)
                if is_other or slot.position == NO_OFFSET:
                    self.look_for(slot, target_ms)
                else:
                    self.seek(slot, slot.position)

    def finder(self, targets: Mapping[TopicPartition, int]) -> "Fetcher":
        """Make one that only looks for EARLIEST, LATEST or a timestamp in each partition."""
        other = Fetcher(self._limits, reset=self._reset, backoff=self._backoff, rng=self._rng)
        for partition, target_ms in targets.items():
            slot = other.slots[partition] = Slot(partition)
            slot.look_for(target_ms)
            slot.paused = True
        return other

    def look_for(self, slot: Slot, target_ms: int) -> None:
        """Seek to EARLIEST, LATEST or a timestamp."""
        self._start_anew(slot)
        slot.look_for(target_ms)

    def seek(self, slot: Slot, offset: int) -> None:
        """Seek to an offset; it is checked by the next fetch."""
        self._start_anew(slot)
        slot.start_at(offset)

    def rewind(self, slot: Slot, offset: int) -> None:
        """Go back to what was handed out and came back: an offset of the same topic."""
        self._drop(slot)
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

    @property
    def has_records(self) -> bool:
        """Whether `next_chunk` has one."""
        return any(slot.chunks and not slot.paused for slot in self.slots.values())

    def finish(self, chunk: Chunk) -> None:
        """`chunk`, which is live, was handed out to its end: free its room."""
        slot = chunk.slot
        slot.chunks.popleft()
        self.buffered_bytes -= len(chunk.data)
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
        while self._doubted:
            metadata.forget(self._doubted.pop())
        if self._room_bytes <= 0:
            self._evict_paused()
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
        for leader, slots in fetches.items():
            if self._room_bytes > 0:
                due.append(self._fetch(leader, slots))
        return due

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
        return not slot.paused and len(slot.chunks) < 2

    @property
    def _room_bytes(self) -> int:
        return self._limits.buffer_bytes - self.buffered_bytes - self.asked_bytes

    def _evict_paused(self) -> None:
        for slot in self.slots.values():
            # One that halted has an error to raise behind what is buffered.
            if slot.paused and slot.chunks and slot.state is SlotState.READY:
                self._drop(slot)
                slot.fetch_from = slot.position

    def _leader_of(self, slot: Slot, now_ms: int, metadata: MetadataCache) -> int:
        topic, number = slot.partition
        view = metadata.topic(topic)
        missing = metadata.missing(topic)
        if view is None and missing is not None:
            slot.halt(error_from(missing))
            return -1
        if view is not None and not 0 <= number < len(view.partitions):
            self._doubted.add(topic)
            if slot.attempts > 0:
                slot.halt(_no_partition(slot.partition, len(view.partitions)))
                return -1
        leader = metadata.leader(topic, number)
        if view is None or leader < 0:
            refusal = metadata.refusal(topic, number, slot.look)
            if refusal is not None:
                slot.halt(refusal)
                return -1
            self.stale_topics.add(topic)
            why = metadata.trouble(topic, number) or _no_leader(slot.partition)
            self._pause(slot, why, now_ms)
            return -1
        if not slot.topic_uuid:
            slot.topic_uuid = view.topic_uuid
        return leader

    def _look(self, leader: int, slots: list[Slot]) -> Outgoing:
        slots = slots[:MAX_PARTITIONS_PER_REQUEST]
        rows = [
            ListOffsetsPartition(topic, slot.topic_uuid, number, target_ms)
            for slot in slots
            for topic, number in (slot.partition,)
            for target_ms in (LATEST, slot.target_ms)
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
        # Half of the room: a request that waits for idle partitions leaves some for busy ones.
        share = min(len(rows) * limits.partition_bytes, limits.max_bytes, self._room_bytes // 2)
        body = FetchRequest(limits.max_wait_ms, limits.min_bytes, max(1, share), rows)
        self.asked_bytes += body.max_bytes
        return _outgoing(leader, body, slots)

    # -- Answers -------------------------------------------------------------------------

    def on_answer(self, request: Outgoing, answer: Answer, now_ms: int) -> None:
        """Take in what became of a request, which then is no longer under way."""
        self.asked_bytes -= request.max_bytes
        body, error = answer.body, answer.error
        rows: list[FetchResult] | list[ListOffsetsResult] = []
        if isinstance(body, FetchResponse | ListOffsetsResponse):
            rows = body.results
        wanted = len(request.body.partitions)
        if error is None and len(rows) != wanted:
            error = CorruptRecord(f"{answer.address} answered {len(rows)} of {wanted} partitions")
        for place, slot in enumerate(request.slots):
            if slot.version != request.versions[place]:
                continue
            slot.fetching = False
            if error is not None:
                self._on_error(slot, error, now_ms)
            elif isinstance(body, ListOffsetsResponse):
                self._on_found(slot, body.results[2 * place : 2 * place + 2], now_ms)
            elif isinstance(body, FetchResponse):
                self._on_fetched(slot, body.results[place], answer, now_ms)

    def _on_fetched(self, slot: Slot, row: FetchResult, answer: Answer, now_ms: int) -> None:
        slot.high_watermark, slot.log_start = row.high_watermark, row.log_start
        if row.error is None:
            slot.get_on()
            self._on_data(slot, row, answer)
            return
        error = error_from(row.error)
        if isinstance(error, OffsetOutOfRange):
            self._on_out_of_range(slot, error, now_ms)
        else:
            self._on_error(slot, error, now_ms)

    def _on_data(self, slot: Slot, row: FetchResult, answer: Answer) -> None:
        if row.frame < 0:
            return
        if row.frame >= len(answer.frames):
            slot.halt(CorruptRecord(f"{answer.address} names a frame it did not send"))
            return
        data = memoryview(answer.frames[row.frame])
        try:
            next_offset = _end_of(data, slot.fetch_from)
        except CorruptBatch as problem:
            slot.halt(_corrupt(slot, str(problem)))
            return
        slot.chunks.append(Chunk(slot, slot.fetch_from, data))
        self.buffered_bytes += len(data)
        slot.fetch_from = next_offset
        slot.is_fresh = False

    def _on_found(self, slot: Slot, rows: list[ListOffsetsResult], now_ms: int) -> None:
        end, found = rows
        info = end.error or found.error
        if info is not None:
            self._on_error(slot, error_from(info), now_ms)
        else:
            slot.found_at(found.offset, end.offset)

    def _on_out_of_range(self, slot: Slot, error: OffsetOutOfRange, now_ms: int) -> None:
        if slot.is_fresh:
            slot.look_for(slot.target_ms)
            self._pause(slot, error, now_ms)
            return
        reset = RESETS[self._reset]
        if reset is None or min(slot.log_start, slot.high_watermark) < 0:
            slot.halt(error)
            return
        if slot.fetch_from > slot.high_watermark:
            # Not the start, whatever the reset: that would hand out everything once more.
            target = slot.high_watermark
            self.lost.append(BehindEnd(slot.partition, slot.fetch_from, target))
        else:
            target = slot.log_start if reset == EARLIEST else slot.high_watermark
            self.lost.append(Lost(slot.partition, slot.fetch_from, target))
        # Records fetched before stay: they lie below the gap, and the position follows them.
        slot.fetch_from = target
        if not slot.chunks:
            slot.position = target
        slot.get_on()

    def _on_error(self, slot: Slot, error: RinglogError, now_ms: int) -> None:
        if not isinstance(error, BrokerError) or error.refresh_metadata:
            # The broker may be gone, and lead nothing any more.
            self.stale_topics.add(slot.partition.topic)
        if isinstance(error, StaleTopic) and slot.state is SlotState.LOOKING:
            # No position of the old topic was given out: it is looked for in the new one.
            self._doubted.add(slot.partition.topic)
            slot.topic_uuid = b""
            self._pause(slot, error, now_ms)
        elif error.retriable and not isinstance(error, StaleTopic):
            self._pause(slot, error, now_ms)
        else:
            slot.halt(error)

    def _pause(self, slot: Slot, error: RinglogError, now_ms: int) -> None:
        slot.attempts += 1
        slot.back_off(error, now_ms + self._backoff.pause_ms(slot.attempts, self._rng))

    def _start_anew(self, slot: Slot) -> None:
        self._drop(slot)
        slot.topic_uuid = b""
        if isinstance(slot.trouble, StaleTopic | UnknownTopic | UnknownPartition):
            # Whoever tries it again wants what is known of the topic asked for again.
            self._doubted.add(slot.partition.topic)

    def _drop(self, slot: Slot) -> None:
        self.buffered_bytes -= sum(len(chunk.data) for chunk in slot.chunks)
        slot.chunks.clear()
        slot.version += 1
        slot.fetching = False


def _outgoing(leader: int, body: FetchRequest | ListOffsetsRequest, slots: list[Slot]) -> Outgoing:
    for slot in slots:
        slot.fetching = True
    return Outgoing(leader, body, slots, [slot.version for slot in slots])


def _end_of(data: memoryview, offset: int) -> int:
    """First offset behind the batches in `data`, which hold `offset` or what comes after a gap.

    Raises:
        CorruptBatch: they are not whole batches, or not in ascending order from `offset` on.
    """
    end_bytes, next_offset = 0, offset
    for position_bytes, header in iter_batches(data):
        overlaps = end_bytes > 0 and header.base_offset < next_offset
        if overlaps or header.next_offset <= next_offset:
            raise CorruptBatch(
                f"a batch of offsets {header.base_offset} to {header.next_offset} (exclusive) "
                f"where {next_offset} should follow"
            )
        next_offset = header.next_offset
        end_bytes = position_bytes + header.size_bytes
    if end_bytes != len(data) or not end_bytes:
        raise CorruptBatch(f"{len(data)} bytes are no whole batches")
    return next_offset


def _no_partition(partition: TopicPartition, count: int) -> UnknownPartition:
    return UnknownPartition(f"{partition} does not exist: the topic has {count} partitions")


def _no_leader(partition: TopicPartition) -> RinglogError:
    return NotLeader(f"no leader of {partition} is known", hint="it is looked up again")


def _corrupt(slot: Slot, what: str) -> CorruptRecord:
    return CorruptRecord(
        f"{slot.partition} at offset {slot.fetch_from}: {what}",
        hint="nothing of it was handed out; seek past it to go on",
    )
