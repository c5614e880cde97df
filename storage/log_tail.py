"""Where a batch begins that has to become the end of the log.

Owns the places of batches that no worker has written yet, and the look-up of the others in
their segment. Must not know why the log is cut back.

Invariants:
    U1  Every batch at or above `written` is here; those below may be read from the file.
"""

from bisect import bisect_left

import msgspec

from ringlog.storage.batch_scan import BrokenChain, EpochAt, scan_batches
from ringlog.storage.producer_replay import damaged_log
from ringlog.storage.segment import Place, Segment
from ringlog.storage.types import Offset


class BatchPlace(msgspec.Struct, frozen=True, gc=False):
    """The begin of one batch in its segment."""

    size_bytes: int
    """Bytes before it."""
    max_before: int
    """Largest record time before it in the segment, or `NO_TIMESTAMP`."""


class UnwrittenBatches:
    """Places of the batches appended and not yet known to be written."""

    __slots__ = ("_offsets", "_places")

    def __init__(self) -> None:
        self._offsets: list[Offset] = []
        self._places: list[BatchPlace] = []

    def add(self, offset: Offset, position: int, max_before: int) -> None:
        """Take note of a batch that was appended."""
        self._offsets.append(offset)
        self._places.append(BatchPlace(position, max_before))

    def find(self, offset: Offset) -> BatchPlace | None:
        """Return the place of the batch that begins at `offset`, if it is here."""
        i = bisect_left(self._offsets, offset)
        found = i < len(self._offsets) and self._offsets[i] == offset
        return self._places[i] if found else None

    def forget_below(self, offset: Offset) -> None:
        """Everything below `offset` is written."""
        count = bisect_left(self._offsets, offset)
        del self._offsets[:count], self._places[:count]

    def cut(self, offset: Offset) -> None:
        """Everything from `offset` on is gone."""
        count = bisect_left(self._offsets, offset)
        del self._offsets[count:], self._places[count:]


def place_of(place: Place, segment: Segment, offset: Offset, epoch_at: EpochAt) -> BatchPlace:
    """Find the batch of `segment` that begins at `offset`, a batch edge, by reading it.

    Raises:
        DamagedLog: a batch before it is damaged.
    """
    index = segment.index(place, epoch_at)
    first_offset, position, max_before = index.before_offset(offset)
    batches = scan_batches(
        segment.file(place),
        begin=position,
        end=segment.size_bytes,
        first_offset=first_offset,
        epoch_at=epoch_at,
    )
    try:
        for header, at, _data in batches:
            if header.base_offset >= offset:
                return BatchPlace(at, max_before)
            max_before = max(max_before, header.max_timestamp)
            position = at + header.size_bytes
    except BrokenChain as error:
        raise damaged_log(place, segment, error) from error
    return BatchPlace(position, max_before)
