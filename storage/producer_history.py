"""The producer table of a log that can be cut back: two snapshots and the batches since.

Owns how the table of an earlier offset is found again after a truncation. Must not know files;
where memory does not reach back far enough it says so, and the log replays from disk.

Invariants:
    H1  Restoring the older snapshot and noting all kept batches gives the present table.
    H2  At most two spans of `span` batches are kept.

Source: "Truncation: ... producer state is derived again", ringlog's raft-log rules.
"""

from typing import Final

from ringlog.storage.producer_state import ProducerTable, TableSnapshot
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.types import NO_PRODUCER_ID, Offset

SPAN_BATCHES: Final = 4096
"""Truncation this many batches back needs no disk: far more than may be uncommitted."""


class ProducerHistory:
    """Owned by `PartitionLog`; its thread alone may call."""

    __slots__ = ("_batches", "_newer", "_newer_begin", "_older", "_older_offset", "_span", "table")

    def __init__(self, table: ProducerTable, offset: Offset, *, span: int = SPAN_BATCHES) -> None:
        self.table = table
        self._span = span
        self.restart(offset)

    def restart(self, offset: Offset) -> None:
        """Forget what came before `offset`, the log end that the table belongs to."""
        self._older, self._older_offset = self.table.snapshot(), offset
        self._newer: tuple[TableSnapshot, Offset] | None = None
        self._newer_begin = 0
        self._batches: list[tuple[BatchHeader, Offset]] = []

    def note(self, header: BatchHeader, offset: Offset) -> None:
        """Note a batch that was appended at `offset`."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        batches = self._batches
        if len(batches) - self._newer_begin >= self._span:
            self._rotate(offset)
        self._batches.append((header, offset))
        self.table.note(header, offset)

    def _rotate(self, offset: Offset) -> None:
        if self._newer is not None:
            self._older, self._older_offset = self._newer
            del self._batches[: self._newer_begin]
        self._newer, self._newer_begin = (self.table.snapshot(), offset), len(self._batches)

    def truncate(self, offset: Offset) -> bool:
        """Become the table at `offset`, or return False, unchanged, when that is too far back."""
        if offset < self._older_offset:
            return False
        while self._batches and self._batches[-1][1] >= offset:
            self._batches.pop()
        if self._newer is not None and len(self._batches) < self._newer_begin:
            self._newer, self._newer_begin = None, 0
        self.table.restore(self._older)
        for header, base_offset in self._batches:
            self.table.note(header, base_offset)
        return True
