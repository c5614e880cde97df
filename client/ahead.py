"""Records that an iteration took out of the fetcher and has not yielded yet.

Owns the one list of them. Must not know positions, threads or where records come from.

Invariants:
    AH1 A record leaves once: by `pop`, which needs no lock because a deque's `popleft` is one
        step, or by one of the others, which are called with the consumer's lock held.
    AH2 `extend` is called only when nothing is left, so that order holds per partition.
"""

from collections import deque
from collections.abc import Collection

from ringlog.client.record import Record
from ringlog.storage.types import TopicPartition


class Ahead:
    """See the module."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: deque[Record] = deque()

    def __bool__(self) -> bool:
        return bool(self._records)

    def pop(self) -> Record:
        """Take the next record out. Raises IndexError: there is none."""
        return self._records.popleft()

    def extend(self, records: list[Record]) -> None:
        """Put records behind the others."""
        self._records.extend(records)

    def take(self, most: int) -> list[Record]:
        """Take up to `most` records out."""
        taken: list[Record] = []
        while len(taken) < most:
            try:
                taken.append(self._records.popleft())
            except IndexError:
                break
        return taken

    def first_of(self, partition: TopicPartition) -> int | None:
        """Offset of the next record of a partition; None: there is none."""
        for record in self._records.copy():
            if (record.topic, record.partition) == partition:
                return record.offset
        return None

    def drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Forget the records of `partitions`; returns the first offset of each that had some."""
        gone: dict[TopicPartition, int] = {}
        kept: deque[Record] = deque()
        for record in self.take(len(self._records)):
            where = TopicPartition(record.topic, record.partition)
            if where in partitions:
                gone.setdefault(where, record.offset)
            else:
                kept.append(record)
        self._records = kept
        return gone
