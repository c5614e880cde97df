"""Records to open batches: one per partition, filled by any thread.

Owns which batch a record joins, room by bytes, and the partition of records without a key. Must
not know what becomes of a batch once it is open: the producer core closes and sends it.

A record without key, headers, partition and timestamp that is small takes the fast path in
`producer.send`: it needs only `sticky`. Everything else comes through `add`.

Invariants:
    U1  At most one batch per partition takes records at a time; records that one thread gives
        to a partition are in its batches in that order.
    U2  Room for a whole batch is reserved before it opens, so the bytes held never pass
        `buffer_memory` but by records that are larger than a batch and by one batch when all
        else is empty.
    U3  Every batch that opened is in `live` until it has ended.
    U4  A closed accumulator has no sticky batch, so the fast path ends in `add`, which says why.
"""

import random
import threading
from collections.abc import Callable, Sequence

from ringlog.client.batch import Batch, Columns, Owner
from ringlog.client.delivery import Delivery
from ringlog.client.errors import BufferFull, RinglogError
from ringlog.client.producer_config import ProducerConfig
from ringlog.client.serializers import Headers
from ringlog.storage.types import NO_TIMESTAMP

ANY_PARTITION = -1

Clock = Callable[[], int]
"""Monotonic milliseconds."""


class Topic:
    """One topic as the sending side sees it."""

    __slots__ = ("available", "name", "open", "partitions")

    def __init__(self, name: str, partitions: int, available: Sequence[int]) -> None:
        self.name = name
        self.partitions = partitions
        self.available = available
        """Partitions that have a leader; the others take keyless records only when all lack one."""
        self.open: dict[int, Batch] = {}

    def update(self, partitions: int, available: Sequence[int]) -> None:
        """Take over newer metadata."""
        self.partitions = partitions
        self.available = available


class Record:
    """One record on its way into a batch."""

    __slots__ = ("headers", "key", "size_bytes", "timestamp_ms", "value")

    def __init__(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size_bytes: int,
    ) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.size_bytes = size_bytes


class Accumulator:
    """See the module. `sticky` may be read by any thread; all else is called as documented."""

    def __init__(
        self,
        *,
        owner: Owner,
        on_opened: Callable[[Batch], None],
        on_short: Callable[[], None],
        clock: Clock,
        rng: random.Random,
        config: ProducerConfig,
    ) -> None:
        self.sticky: dict[str, Batch] = {}
        """Topic -> the batch that takes records without a key."""
        self.live: dict[Batch, None] = {}
        """Batches that have not ended, oldest first."""
        self.lock = threading.Lock()
        self.small_bytes = config.batch_bytes // config.batch_size
        """`batch_size` records of this size make a full batch: such ones need no counting."""
        self._room = threading.Condition(self.lock)
        self._owner = owner
        self._on_opened = on_opened
        self._on_short = on_short
        self._clock = clock
        self._rng = rng
        self._config = config
        self._used_bytes = 0
        self._refusal: RinglogError | None = None

    # -- any thread -------------------------------------------------------------------------

    def add(self, topic: Topic, partition: int, record: Record) -> Delivery:
        """Put a record into a batch of `partition`, or of one of our choice (ANY_PARTITION).

        Raises:
            BufferFull: no room within `max_block_ms`; the record was not taken.
        """
        until_ms = self._clock() + self._config.max_block_ms
        while True:
            with self.lock:
                batch = self._batch_for(topic, partition, record, until_ms)
                index = self._take(batch, record)
                if batch not in self.live:
                    # Filled before anybody may send it: a batch never leaves empty.
                    assert index is not None, "a new batch has room"
                    self._fill(batch, index, record)
                    self.live[batch] = None
                    self._on_opened(batch)
                    return Delivery(batch, index)
            if index is not None:
                delivery = self.write(batch, index, record)
                if delivery is not None:
                    return delivery

    def write(self, batch: Batch, index: int, record: Record) -> Delivery | None:
        """Fill a slot that was taken. None: it came too late, the record is in no batch."""
        if not self._fill(batch, index, record):
            return None
        return self.confirm(batch, index) if batch.closed else Delivery(batch, index)

    @staticmethod
    def _fill(batch: Batch, index: int, record: Record) -> bool:
        keys, headers, timestamps = batch.keys, batch.headers, batch.timestamps
        try:
            if keys is not None:
                keys[index] = record.key
            if headers is not None:
                headers[index] = record.headers
            if timestamps is not None:
                timestamps[index] = record.timestamp_ms
            # The value comes last: with it the slot counts as written.
            batch.values[index] = record.value
        except IndexError:
            # The thread was stopped for so long that the batch has left without it.
            return False
        return True

    def confirm(self, batch: Batch, index: int) -> Delivery | None:
        """Whether a slot of a batch that closed meanwhile still counts."""
        with self.lock:
            return None if index in batch.holes else Delivery(batch, index)

    def refuse(self, error: RinglogError) -> None:
        """Take no more records: every `add` from now on raises `error`."""
        with self.lock:
            self._refusal = error
            self.sticky.clear()
            self._room.notify_all()

    def give_up_empty(self, batch: Batch, wall_ms: int) -> Columns:
        """`Batch.give_up_empty`, with no writer between its decision and `confirm`."""
        with self.lock:
            return batch.give_up_empty(wall_ms)

    def forked(self, error: RinglogError) -> None:
        """In the child of a fork: refuse everything; the lock may be held by nobody that lives."""
        self.lock = threading.Lock()
        self._room = threading.Condition(self.lock)
        self.live.clear()
        self.refuse(error)

    # -- the IO thread ----------------------------------------------------------------------

    def measured(self, batch: Batch, size_bytes: int) -> None:
        """A batch was closed and holds this much: give back the rest of its reservation."""
        with self.lock:
            self._used_bytes += size_bytes - batch.reserved_bytes
            batch.reserved_bytes = size_bytes
            self._room.notify_all()

    def ended(self, batch: Batch) -> None:
        """A batch has ended: give back its room."""
        with self.lock:
            self.live.pop(batch, None)
            self._used_bytes -= batch.reserved_bytes
            batch.reserved_bytes = 0
            self._room.notify_all()

    # -- under the lock ---------------------------------------------------------------------

    def _batch_for(self, topic: Topic, partition: int, record: Record, until_ms: int) -> Batch:
        while True:
            if self._refusal is not None:
                raise self._refusal
            wanted = partition
            if wanted == ANY_PARTITION:
                sticky = self.sticky.get(topic.name)
                if sticky is not None and self._fits(sticky, record):
                    return sticky
                wanted = self._next_partition(topic)
            batch = topic.open.get(wanted)
            if batch is None or not self._fits(batch, record):
                need_bytes = max(self._config.batch_bytes, record.size_bytes)
                if not self._has_room(need_bytes, until_ms):
                    # Waited: another thread may have opened one meanwhile.
                    continue
                batch = self._open(topic, wanted, need_bytes)
            if partition == ANY_PARTITION:
                self.sticky[topic.name] = batch
            return batch

    def _fits(self, batch: Batch, record: Record) -> bool:
        taken = batch.taken()
        if batch.closed or taken >= batch.capacity:
            return False
        if record.size_bytes <= self.small_bytes or taken == 0:
            return True
        small_bytes = (taken - batch.large_count) * self.small_bytes
        return batch.large_bytes + small_bytes + record.size_bytes <= self._config.batch_bytes

    def _take(self, batch: Batch, record: Record) -> int | None:
        if record.key is not None:
            batch.column("keys")
        if record.headers:
            batch.column("headers")
        if record.timestamp_ms != NO_TIMESTAMP:
            batch.column("timestamps")
        for index in batch.slots:
            if record.size_bytes > self.small_bytes:
                batch.large_bytes += record.size_bytes
                batch.large_count += 1
            return index
        return None

    def _open(self, topic: Topic, partition: int, need_bytes: int) -> Batch:
        before = topic.open.get(partition)
        if before is not None:
            before.close()
        batch = Batch(topic.name, partition, self._config.batch_size, self._clock(), self._owner)
        batch.deadline_ms = batch.opened_ms + self._config.delivery_timeout_ms
        batch.reserved_bytes = need_bytes
        self._used_bytes += need_bytes
        topic.open[partition] = batch
        return batch

    def _next_partition(self, topic: Topic) -> int:
        choices = topic.available or range(topic.partitions)
        return self._rng.choice(choices) if len(choices) > 1 else choices[0]

    def _has_room(self, need_bytes: int, until_ms: int) -> bool:
        """Whether there was room at once; else wait for a change and return False."""
        if self._used_bytes + need_bytes <= self._config.buffer_memory or self._used_bytes == 0:
            return True
        left_ms = until_ms - self._clock()
        if left_ms <= 0:
            raise BufferFull(
                f"no room within max_block_ms = {self._config.max_block_ms}: {self._used_bytes} of "
                f"buffer_memory = {self._config.buffer_memory} bytes wait to be acknowledged",
                hint="send slower, raise buffer_memory, or look why the broker does not answer",
            )
        self._on_short()
        self._room.wait(left_ms / 1000)
        return False
