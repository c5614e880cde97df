"""A bounded read of one topic, beside whatever else reads it.

Owns the bounds. Must not know how records are fetched: it drives a consumer of its own.

Invariants:
    RP1 Every record with start <= place < end is yielded once, and no other.
    RP2 It ends by itself: at the end, or with an error when nothing comes for a whole request
        timeout, since all that it waits for was there when it began.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ringlog.client.errors import DeadlineExceeded, InvalidArgument
from ringlog.client.record import Record
from ringlog.storage.types import TopicPartition

if TYPE_CHECKING:
    from ringlog.client.consumer import Consumer

Bound = Mapping[int, int] | int | None
POLL_S = 1.0


class Replay:
    """See `Consumer.replay`."""

    def __init__(
        self,
        make_reader: "Callable[[], Consumer]",
        topic: str,
        start: Bound,
        end: Bound,
        *,
        patience_ms: int,
    ) -> None:
        """Keep the bounds; nothing is read before the first record is asked for.

        Args:
            make_reader: a consumer of this replay's own, with nothing assigned.
            topic: its name.
            start: see `Consumer.replay`.
            end: see `Consumer.replay`.
            patience_ms: how long nothing may come before it fails.

        Raises:
            InvalidArgument: a bound that is neither a mapping, a timestamp nor None.
        """
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
        self._patience_polls = max(1, round(patience_ms / 1000 / POLL_S))

    def __iter__(self) -> Iterator[Record]:
        with self._make_reader() as reader:
            reader.subscribe(self._topic)
            partitions = sorted(reader.assignment)
            self._check_named(len(partitions))
            tops = reader.end_offsets(partitions)
            ends = self._places(reader, self._end, partitions, tops)
            if self._start is not None:
                bottoms = reader.beginning_offsets(partitions)
                starts = self._places(reader, self._start, partitions, tops, bottoms)
                for partition, offset in starts.items():
                    reader.seek(*partition, offset)
            bounds = {one: min(ends[one], tops[one]) for one in partitions}
            yield from _until(reader, bounds, self._patience_polls)

    def _check_named(self, count: int) -> None:
        for bound in (self._start, self._end):
            strange = set(bound).difference(range(count)) if isinstance(bound, Mapping) else ()
            if strange:
                raise InvalidArgument(
                    f"topic {self._topic!r} has {count} partitions, not {sorted(strange)}",
                    hint="give offsets by partition number",
                )

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


def _until(
    reader: "Consumer", ends: dict[TopicPartition, int], patience_polls: int
) -> Iterator[Record]:
    """Records below `ends`; a partition that reaches its end is paused."""
    open_ends = dict(ends)
    empty_polls = 0
    while True:
        for partition in [one for one, end in open_ends.items() if reader.position(*one) >= end]:
            reader.pause(partition)
            del open_ends[partition]
        if not open_ends:
            return
        records = reader.poll(POLL_S)
        empty_polls = 0 if records else empty_polls + 1
        if empty_polls > patience_polls:
            why = reader.health().why or "no record came"
            raise DeadlineExceeded(f"the replay does not get on: {why}", hint="try it again")
        for record in records:
            if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                yield record
