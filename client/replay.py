"""A bounded read of one topic, beside whatever else reads it.

Owns the bounds. Must not know how records are fetched: it drives a consumer of its own.

Invariants:
    RP1 Every record with start <= place < end is yielded once, and no other; it ends by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ringlog.client.errors import InvalidArgument
from ringlog.client.record import Record
from ringlog.storage.types import TopicPartition

if TYPE_CHECKING:
    from ringlog.client.consumer import Consumer

Bound = Mapping[int, int] | int | None
POLL_S = 1.0


class Replay:
    """See `Consumer.replay`."""

    def __init__(
        self, make_reader: "Callable[[], Consumer]", topic: str, start: Bound, end: Bound
    ) -> None:
        """Raises InvalidArgument: a bound that is neither a mapping, a timestamp nor None."""
        for name, bound in (("start", start), ("end", end)):
            if isinstance(bound, bool) or not isinstance(bound, int | Mapping | None):
                raise InvalidArgument(
                    f"{name} is {bound!r}",
                    hint="give offsets by partition, one timestamp in ms, or None",
                )
        self._make_reader = make_reader
        self._topic = topic
        self._start = start
        self._end = end

    def __iter__(self) -> Iterator[Record]:
        with self._make_reader() as reader:
            reader.subscribe(self._topic)
            partitions = sorted(reader.assignment)
            tops = reader.end_offsets(partitions)
            ends = self._places(reader, self._end, partitions, tops)
            if self._start is not None:
                bottoms = reader.beginning_offsets(partitions)
                starts = self._places(reader, self._start, partitions, tops, bottoms)
                for partition, offset in starts.items():
                    reader.seek(*partition, offset)
            yield from _until(reader, {one: min(ends[one], tops[one]) for one in partitions})

    def _places(
        self,
        reader: "Consumer",
        bound: Bound,
        partitions: list[TopicPartition],
        missing: Mapping[TopicPartition, int],
        unnamed: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, int]:
        """`bound` as an offset per partition.

        `missing` is for partitions without a record that young, `unnamed` for those that a
        mapping leaves out.
        """
        if bound is None:
            return dict(missing)
        if isinstance(bound, int):
            found = reader.offsets_for_times(dict.fromkeys(partitions, bound))
            return {one: missing[one] if at is None else at for one, at in found.items()}
        rest = unnamed or missing
        return {one: bound.get(one.partition, rest[one]) for one in partitions}


def _until(reader: "Consumer", ends: dict[TopicPartition, int]) -> Iterator[Record]:
    """Records below `ends`; a partition that reaches its end is paused."""
    open_ends = dict(ends)
    while True:
        for partition in [one for one, end in open_ends.items() if reader.position(*one) >= end]:
            reader.pause(partition)
            del open_ends[partition]
        if not open_ends:
            return
        for record in reader.poll(POLL_S):
            if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                yield record
