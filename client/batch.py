"""One batch from its first record to its outcome.

Owns the slots that callers fill without a lock, what has been decided about sending it, and how
it ended. Must not know partitions' queues, retries or sockets.

Filling. `slots` is an iterator over the indexes 0 to capacity - 1; taking one is a single step
of the interpreter, so two threads never get the same. Whoever has taken an index writes its
columns, the value last, and then looks at `closed`. The closer sets `closed`, exhausts the
iterator in one step, and reads the columns. A thread that was stopped between taking and writing
leaves its slot empty: after a grace the slot becomes a hole, and should the thread come back, it
finds its index among the holes and gives the record to another batch.

Invariants:
    F1  After `close`, `count` is final and no index from `count` on was ever handed out.
    F2  A record is in the batch exactly if its value was in its slot when `take_columns`
        succeeded; nobody holds a `Delivery` of a hole.
    F3  The outcome is set once, before anybody is told.

Source: CPython runs each bytecode, and each C function that calls no Python code, in one piece
under the GIL.
"""

import functools
from bisect import bisect_left
from collections.abc import Iterator
from typing import Protocol

from msgspec import structs

from ringlog.client.completion import Completion
from ringlog.client.errors import RinglogError
from ringlog.client.requests import Request
from ringlog.client.serializers import Headers
from ringlog.client.timers import TimedCall
from ringlog.storage.record_batch import HEADER_SIZE
from ringlog.storage.record_codec import EncodedRecords
from ringlog.storage.types import NO_TIMESTAMP

NO_OFFSET = -1


class _Empty:
    """Stands in a slot that nobody has written yet. Has no length, which is how it is found."""


EMPTY = _Empty()


@functools.lru_cache(maxsize=16)
def _indexes(capacity: int) -> tuple[int, ...]:
    """The indexes of a batch. Made once: handing them out, and counting the rest, makes none."""
    return tuple(range(capacity))


class Columns:
    """The records of a closed batch, as the codec takes them."""

    __slots__ = ("headers", "keys", "timestamps", "values")

    def __init__(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        headers: list[Headers] | None,
        timestamps: list[int] | int,
    ) -> None:
        self.values = values
        self.keys = keys
        self.headers = headers
        self.timestamps = timestamps


class Owner(Protocol):
    """Whoever sends batches: the producer."""

    def hurry(self, batch: "Batch") -> None:
        """Send `batch` without waiting for more records; somebody waits for it."""


class Batch(Completion):
    """See the module."""

    __slots__ = (
        "base_offset",
        "base_sequence",
        "body",
        "capacity",
        "carrier",
        "closed",
        "count",
        "deadline_ms",
        "empty_since_ms",
        "error",
        "headers",
        "holes",
        "hurried",
        "keys",
        "large_bytes",
        "large_count",
        "opened_ms",
        "outstanding",
        "owner",
        "parent",
        "partition",
        "parts",
        "payload",
        "reserved_bytes",
        "slots",
        "timer",
        "timestamp",
        "timestamps",
        "topic",
        "unknown",
        "values",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        capacity: int,
        opened_ms: int,
        owner: "Owner | None" = None,
    ) -> None:
        """Open an empty batch.

        Args:
            topic: where its records go.
            partition: where in the topic.
            capacity: most records, at least 1.
            opened_ms: monotonic clock; linger and the delivery deadline count from it.
            owner: asked to hurry when somebody waits.
        """
        self.topic = topic
        self.partition = partition
        # Filling.
        self.capacity = capacity
        self.slots: Iterator[int] = iter(_indexes(capacity))
        self.values: list[bytes | _Empty | None] = [EMPTY] * capacity
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int] | None = None
        self.closed = False
        self.count = -1
        self.holes: tuple[int, ...] = ()
        self.large_bytes = 0
        self.large_count = 0
        self.reserved_bytes = 0
        # Sending; the producer core alone touches these.
        self.opened_ms = opened_ms
        self.deadline_ms = 0
        self.empty_since_ms: int | None = None
        self.hurried = False
        self.body: EncodedRecords | None = None
        self.payload: bytes = b""
        self.base_sequence = -1
        self.outstanding = False
        self.carrier: Request | None = None
        """The request that carries it, while `outstanding`."""
        self.unknown = False
        """Whether an attempt left and got no answer: it may be stored, now or later."""
        self.timer: TimedCall | None = None
        """Ends it at its deadline."""
        # Outcome.
        self.parts: tuple[tuple[int, Batch], ...] = ()
        """Batches it was split into, each with its first place, when it was too large."""
        self.parent: Batch | None = None
        """The batch it is a part of."""
        super().__init__()
        self.owner = owner
        self.base_offset = NO_OFFSET
        self.timestamp = NO_TIMESTAMP
        self.error: RinglogError | None = None

    # -- filling ----------------------------------------------------------------------------

    def taken(self) -> int:
        """How many indexes were handed out so far."""
        if self.count >= 0:
            return self.count
        left: int = self.slots.__length_hint__()  # type: ignore[attr-defined]  # tuple iterator
        return self.capacity - left

    def column(self, name: str) -> None:
        """Make the column `keys`, `headers` or `timestamps`; under the producer's lock."""
        if name == "keys" and self.keys is None:
            self.keys = [None] * self.capacity
        elif name == "headers" and self.headers is None:
            self.headers = [()] * self.capacity
        elif name == "timestamps" and self.timestamps is None:
            self.timestamps = [NO_TIMESTAMP] * self.capacity

    def close(self) -> None:
        """Take no more records. Idempotent."""
        self.closed = True
        if self.count < 0:
            # One C call: no index is handed out between this count and the end.
            self.count = self.capacity - len(list(self.slots))

    def take_columns(self, now_ms: int) -> Columns | None:
        """The records, or None while a thread has taken a slot and not written it yet.

        Args:
            now_ms: wall clock: the timestamp of records that were given none.
        """
        self.close()
        values = self.values[: self.count]
        try:
            sum(map(len, values))  # type: ignore[arg-type]  # what has no length raises
        except TypeError:
            if any(value is EMPTY for value in values):
                return None
        self.timestamp = now_ms
        return self._columns(range(self.count), values, now_ms)

    def give_up_empty(self, now_ms: int) -> Columns:
        """The records without the slots still empty, which become holes; under the lock."""
        filled = [index for index in range(self.count) if self.values[index] is not EMPTY]
        self.holes = tuple(sorted(set(range(self.count)) - set(filled)))
        self.timestamp = now_ms
        return self._columns(filled, [self.values[index] for index in filled], now_ms)

    def _columns(
        self, indexes: "range | list[int]", values: list[bytes | _Empty | None], now_ms: int
    ) -> Columns:
        keys, headers, timestamps = self.keys, self.headers, self.timestamps
        times: list[int] | int = now_ms
        if timestamps is not None:
            times = [
                now_ms if timestamps[index] == NO_TIMESTAMP else timestamps[index]
                for index in indexes
            ]
            # Kept for the metadata of deliveries.
            for index, moment in zip(indexes, times, strict=True):
                timestamps[index] = moment
        return Columns(
            values,  # type: ignore[arg-type]  # none of them is EMPTY
            None if keys is None else [keys[index] for index in indexes],
            None if headers is None else [headers[index] for index in indexes],
            times,
        )

    def encoded(self) -> EncodedRecords:
        """The encoded records, also after `seal`."""
        body = self.body
        assert body is not None, "a batch is encoded before it is sent"
        return structs.replace(body, data=self.payload[HEADER_SIZE:]) if self.payload else body

    def seal(self, payload: bytes) -> None:
        """Take over the bytes to send; the records stay in memory once, in them."""
        assert self.body is not None, "a batch is encoded before it is sealed"
        self.payload = payload
        self.body = structs.replace(self.body, data=b"")

    def free_records(self) -> None:
        """Forget the records; the encoded body has them."""
        self.values = []
        self.keys = None
        self.headers = None

    def on_wait(self) -> None:
        """Somebody waits: do not wait for more records."""
        if self.owner is not None:
            self.owner.hurry(self)

    # -- outcome ----------------------------------------------------------------------------

    def offset_of(self, index: int) -> int:
        """Offset of the record in slot `index`, or NO_OFFSET when none was assigned."""
        place = index - bisect_left(self.holes, index)
        for first, part in reversed(self.parts):
            if place >= first:
                return part.offset_of(place - first)
        return NO_OFFSET if self.base_offset < 0 else self.base_offset + place

    def error_of(self, index: int) -> RinglogError | None:
        """What the record in slot `index` ended with, None for well."""
        if self.parts:
            place = index - bisect_left(self.holes, index)
            for first, part in reversed(self.parts):
                if place >= first:
                    return part.error_of(place - first)
        return self.error

    def timestamp_of(self, index: int) -> int:
        """Milliseconds since 1970 of the record in slot `index`."""
        return self.timestamp if self.timestamps is None else self.timestamps[index]

    def finish(self, base_offset: int, error: RinglogError | None) -> None:
        """Set the outcome, wake whoever waits, run the callbacks."""
        self.base_offset = base_offset
        self.error = error
        self.payload = b""
        self.body = None
        self.free_records()
        self.complete()
        parent = self.parent
        if parent is not None and all(part.done for _, part in parent.parts):
            parent.finish(NO_OFFSET, None)
