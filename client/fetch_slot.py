"""One assigned partition as the fetcher sees it.

Owns the state of a partition between two calls; `client.fetcher` owns the rules.

    state       left when
    LOOKING     the offset asked for (earliest, latest, a timestamp) is known
    READY       position known: fetched from, unless paused, full or backing off
    HALTED      an error that no waiting mends; left by a seek, or by assigning it again

Invariants:
    SL1 `position` <= `fetch_from`: what lies between is buffered or being handed out.
    SL2 `version` grows whenever the position changes by command; an answer to an older version
        changes nothing.
"""

import enum
from collections import deque

from ringlog.client.errors import RinglogError
from ringlog.client.messages import LATEST
from ringlog.client.metadata import SecondLook
from ringlog.client.record import Record
from ringlog.storage.types import TopicPartition

NO_OFFSET = -1


class SlotState(enum.Enum):
    """See the module's table."""

    LOOKING = enum.auto()
    READY = enum.auto()
    HALTED = enum.auto()


class Chunk:
    """Batches of one answer, and how far they were handed out."""

    __slots__ = ("batch", "data", "index", "offset", "position_bytes", "slot")

    def __init__(self, slot: "Slot", offset: int, data: memoryview) -> None:
        self.slot = slot
        self.offset = offset
        """Where reading begins: records below it in the first batch are left out."""
        self.data = data
        self.position_bytes = 0
        """Byte position of the next batch to decode."""
        self.batch: list[Record] = []
        """Records of the batch decoded last; those before `index` were handed out."""
        self.index = 0

    @property
    def is_live(self) -> bool:
        """Whether it is what its partition hands out next: no seek has dropped it."""
        return bool(self.slot.chunks) and self.slot.chunks[0] is self

    @property
    def is_done(self) -> bool:
        """Whether every record was handed out."""
        return self.index >= len(self.batch) and self.position_bytes >= len(self.data)


class Slot:
    """See the module. Guarded by the lock of the fetcher's owner."""

    __slots__ = (
        "attempts",
        "chunks",
        "error",
        "fetch_from",
        "fetching",
        "found",
        "high_watermark",
        "is_fresh",
        "log_start",
        "look",
        "not_before_ms",
        "partition",
        "paused",
        "position",
        "state",
        "target_ms",
        "topic_uuid",
        "trouble",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.state = SlotState.HALTED
        self.position = NO_OFFSET
        self.fetch_from = NO_OFFSET
        self.target_ms = 0
        """What LOOKING looks for: EARLIEST, LATEST or a timestamp in ms."""
        self.found = NO_OFFSET
        """What the last look found: NO_OFFSET when no record is as young as its timestamp."""
        self.is_fresh = False
        """Whether nothing came yet since a look for a place that may move: if it is gone by
        the time it is fetched, it is looked for again."""
        self.topic_uuid = b""
        self.look = SecondLook()
        self.version = 0
        self.paused = False
        self.fetching = False
        self.chunks: deque[Chunk] = deque()
        self.error: RinglogError | None = None
        """To be raised once."""
        self.trouble: RinglogError | None = None
        """Why it does not get on just now; None when it does."""
        self.attempts = 0
        self.not_before_ms = 0
        self.high_watermark = NO_OFFSET
        self.log_start = NO_OFFSET

    def look_for(self, target_ms: int) -> None:
        """Start over at the first record with that timestamp, or EARLIEST, or LATEST."""
        self._restart(SlotState.LOOKING)
        self.target_ms = target_ms
        self.position = self.fetch_from = NO_OFFSET

    def start_at(self, offset: int) -> None:
        """Start over at `offset`."""
        self._restart(SlotState.READY)
        self.position = self.fetch_from = offset

    def found_at(self, offset: int, end: int) -> None:
        """The look ended: at `offset`, or with NO_OFFSET at `end`, which was asked for first."""
        self.start_at(end if offset == NO_OFFSET else offset)
        self.found = offset
        # What LATEST stands for does not move: records behind it that go are lost.
        self.is_fresh = offset != NO_OFFSET and self.target_ms != LATEST

    def halt(self, error: RinglogError) -> None:
        """Stop for good; the error is raised once."""
        self.state = SlotState.HALTED
        self.error = self.trouble = error

    def back_off(self, error: RinglogError, not_before_ms: int) -> None:
        """Try again later."""
        self.trouble = error
        self.not_before_ms = not_before_ms

    def get_on(self) -> None:
        """An answer came: forget the trouble."""
        self.trouble = None
        self.attempts = 0
        self.not_before_ms = 0
        self.look.forget()

    def _restart(self, state: SlotState) -> None:
        self.state = state
        self.version += 1
        self.fetching = False
        self.is_fresh = False
        self.chunks.clear()
        self.error = None
        self.get_on()
