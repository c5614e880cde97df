"""The producer table of a log that can be cut back: two snapshots and the batches since.

Owns how the table of an earlier offset is found again after a truncation. Must not know files:
where memory does not reach back far enough the table is unknown, until the job that cuts the
files has replayed it and brings it back.

Invariants:
    H1  Restoring the older snapshot and noting all kept batches gives the present table.
    H2  At most two spans of `span` batches are kept, while the table is known.

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

    __slots__ = ("_batches", "_newer", "_newer_begin", "_older", "_older_offset", "_span",
                 "_table", "is_known")  # fmt: skip

    def __init__(self, table: ProducerTable, offset: Offset, *, span: int = SPAN_BATCHES) -> None:
        """Begin with `table`, which belongs to the log end `offset`."""
        self._span = span
        self._table = table
        self._batches: list[tuple[BatchHeader, Offset]] = []
        self._newer: tuple[TableSnapshot, Offset] | None = None
        self._older, self._older_offset = table.snapshot(), offset
        self._begin_at(self._older, offset)

    @property
    def table(self) -> ProducerTable:
        """The table at the log end, which must be known."""
        assert self.is_known, "the table is being replayed: whoever leads has waited for the disk"
        return self._table

    def snapshot(self) -> TableSnapshot | None:
        """Return the whole table, or None while it is unknown."""
        return self._table.snapshot() if self.is_known else None

    def note(self, header: BatchHeader, offset: Offset) -> None:
        """Note a batch that was appended at `offset`."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        if self.is_known:
            if len(self._batches) - self._newer_begin >= self._span:
                self._rotate(offset)
            self._table.note(header, offset)
        self._batches.append((header, offset))

    def restart(self, snapshot: TableSnapshot, offset: Offset) -> None:
        """Forget everything; the log now ends at `offset`, where `snapshot` is the table."""
        self._table.restore(snapshot)
        self._begin_at(snapshot, offset)

    def truncate(self, offset: Offset) -> bool:
        """Become the table at `offset`, or return False: it is unknown until `bring_back`."""
        while self._batches and self._batches[-1][1] >= offset:
            self._batches.pop()
        if offset < self._older_offset:
            # What is known from here on are the batches that will be appended.
            self.is_known, self._older_offset = False, offset
            self._newer, self._newer_begin = None, 0
            assert not self._batches
            return False
        if self._newer is not None and len(self._batches) < self._newer_begin:
            self._newer, self._newer_begin = None, 0
        if self.is_known:
            self._replay()
        return self.is_known

    def bring_back(self, snapshot: TableSnapshot, offset: Offset) -> None:
        """Take the table at `offset` that a truncation to it asked for; perhaps no longer."""
        if not self.is_known and offset == self._older_offset:
            self._older, self.is_known = snapshot, True
            self._replay()

    def _begin_at(self, snapshot: TableSnapshot, offset: Offset) -> None:
        self.is_known = True
        self._older, self._older_offset = snapshot, offset
        self._newer, self._newer_begin = None, 0
        self._batches = []

    def _rotate(self, offset: Offset) -> None:
        if self._newer is not None:
            self._older, self._older_offset = self._newer
            del self._batches[: self._newer_begin]
        self._newer, self._newer_begin = (self._table.snapshot(), offset), len(self._batches)

    def _replay(self) -> None:
        self._table.restore(self._older)
        for header, offset in self._batches:
            self._table.note(header, offset)
