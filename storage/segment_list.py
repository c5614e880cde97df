"""The segments of one log in order of offset; the last one is the active one.

Owns the order, the look-up by offset, and which closed segments keep their index in memory.
Must not know files or what a segment holds.

Invariants:
    N1  Each segment begins where the one before it ends; all but the last are sealed.
    N2  A log that is not blank has at least one segment.
    N3  Of the closed segments that were used through here, the last `KEPT_INDEXES` keep their
        index; others load it again when they are read.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from ringlog.storage.segment import Segment
from ringlog.storage.types import Offset

KEPT_INDEXES: Final = 4
"""An index is 1 MiB for a segment full of the smallest batches, and 40 KiB for usual ones."""


class SegmentList:
    """Owned by `PartitionLog`; readers on workers get single segments or copies."""

    __slots__ = ("_bases", "_segments", "_used")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._used: dict[Offset, Segment] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        """The one that is appended to."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    def containing(self, offset: Offset) -> Segment:
        """Last segment with base offset <= `offset`, which must not be below the first."""
        i = bisect_right(self._bases, offset) - 1
        assert i >= 0, f"offset {offset} lies below the first segment"
        return self._segments[i]

    def note_used(self, segment: Segment) -> None:
        """Keep the index of a closed segment in memory; the one used longest ago is let go."""
        self._used.pop(segment.base_offset, None)
        self._used[segment.base_offset] = segment
        if len(self._used) > KEPT_INDEXES:
            oldest = self._used.pop(next(iter(self._used)))
            if oldest.is_sealed:
                oldest.replace_index(None)

    def append(self, segment: Segment) -> None:
        """Add a new active segment."""
        assert not self._segments or segment.base_offset == self.active.next_offset, "N1"
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def cut(self, offset: Offset) -> list[Segment]:
        """Take out the segments with base offset > `offset`, and return them."""
        keep = bisect_right(self._bases, offset)
        dropped = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        return dropped

    def replace_active(self, segment: Segment) -> None:
        """Put `segment` in the place of the last one, which has the same base."""
        assert segment.base_offset == self._bases[-1], "N1"
        self._segments[-1] = segment

    def drop_below(self, offset: Offset) -> list[Segment]:
        """Take out the segments that lie whole below the one with base <= `offset`."""
        count = max(0, bisect_right(self._bases, offset) - 1)
        dropped = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        return dropped

    def snapshot(self) -> tuple[Segment, ...]:
        """All segments, for a worker to walk."""
        return tuple(self._segments)
