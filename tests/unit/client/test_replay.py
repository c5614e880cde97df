"""The bounds of a replay, over a reader that is a list."""

from collections.abc import Generator, Iterable, Mapping
from typing import cast

import pytest

from ringlog.client.consumer import Consumer
from ringlog.client.errors import DeadlineExceeded, InvalidArgument, OffsetOutOfRange
from ringlog.client.health import Health
from ringlog.client.record import Record
from ringlog.client.replay import Bound, Replay
from ringlog.storage.types import TopicPartition


class ListReader:
    """Two partitions: offsets 2 to 9 and 0 to 4; timestamps 1,000 x offset."""

    starts = (2, 0)
    tops = (10, 5)
    beyond = 2
    """Records behind the tops, which came after the replay began."""

    def __init__(self) -> None:
        self.positions = list(self.starts)
        self.paused: set[int] = set()
        self.polls = 0
        self.closed = False
        self.stuck_at: int | None = None

    def __enter__(self) -> "ListReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def subscribe(self, topic: str) -> None:
        assert topic == "t"

    @property
    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("t", 1), TopicPartition("t", 0)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.tops[one.partition] for one in partitions}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.starts[one.partition] for one in partitions}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for one, time_ms in times.items():
            offset = max(self.starts[one.partition], -(-time_ms // 1_000))
            found[one] = offset if offset < self.tops[one.partition] else None
        return found

    def seek(self, _topic: str, partition: int, offset: int) -> None:
        self.positions[partition] = offset

    def position(self, _topic: str, partition: int) -> int:
        return self.positions[partition]

    def pause(self, partition: TopicPartition) -> None:
        self.paused.add(partition.partition)

    def health(self) -> Health:
        return Health("waiting", 0, "t-0: nobody leads it", "")

    def poll(self, _timeout: float) -> list[Record]:
        self.polls += 1
        for number in {0, 1} - self.paused:
            if self.positions[number] < self.starts[number]:
                raise OffsetOutOfRange("gone")
            # Records come in threes, whatever the bound.
            first = self.positions[number]
            last = min(first + 3, self.tops[number] + self.beyond)
            if self.stuck_at is not None and first >= self.stuck_at:
                continue
            self.positions[number] = last
            return [
                Record("t", number, offset, 1_000 * offset, None, b"", ())
                for offset in range(first, last)
            ]
        return []


def replay(
    start: Bound = None, end: Bound = None, *, reader: ListReader | None = None
) -> Generator[Record, None, None]:
    made = reader or ListReader()
    records = iter(Replay(lambda: cast("Consumer", made), "t", start, end, patience_ms=3_000))
    return cast("Generator[Record, None, None]", records)


def places(start: Bound = None, end: Bound = None) -> list[tuple[int, int]]:
    return [(one.partition, one.offset) for one in replay(start, end)]


ALL = [*((0, offset) for offset in range(2, 10)), *((1, offset) for offset in range(5))]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, ALL),
        ({0: 4, 1: 3}, {0: 6, 1: 4}, [(0, 4), (0, 5), (1, 3)]),
        ({0: 8}, {1: 1}, [(0, 8), (0, 9), (1, 0)]),
        (None, {0: 3, 1: 0}, [(0, 2)]),
        (3_500, 4_500, [(0, 4), (1, 4)]),
        (0, 1_000, [(1, 0)]),
        (7_000, None, [(0, 7), (0, 8), (0, 9)]),
        (None, 99_000, ALL),
        (99_000, None, []),
        ({0: 5, 1: 5}, {0: 5, 1: 2}, []),
        ({0: 100, 1: 100}, {0: 200, 1: 200}, []),
        ({0: 9, 1: 5}, {0: 200}, [(0, 9)]),
        ({}, {}, ALL),
    ],
)
def test_every_record_between_the_bounds_and_no_other(
    start: Bound, end: Bound, expected: list[tuple[int, int]]
) -> None:
    assert places(start, end) == expected


def test_a_start_that_is_gone_is_an_error() -> None:
    with pytest.raises(OffsetOutOfRange):
        places({0: 1})


def test_nothing_is_read_before_the_first_record_is_asked_for() -> None:
    reader = ListReader()
    records = replay(reader=reader)
    assert reader.polls == 0
    assert next(records).offset == 2
    assert not reader.closed
    records.close()
    assert reader.closed


def test_the_reader_is_closed_at_the_end() -> None:
    reader = ListReader()
    assert len(list(replay(reader=reader))) == len(ALL)
    assert reader.closed


@pytest.mark.parametrize("bound", ["earliest", 1.5, True, [1]])
def test_what_is_no_bound_is_refused_at_once(bound: Bound) -> None:
    for arguments in ((bound, None), (None, bound)):
        name = "start" if arguments[0] is bound else "end"
        with pytest.raises(InvalidArgument, match=f"{name} is "):
            replay(*arguments)


@pytest.mark.parametrize("strange", [2, -1])
def test_a_partition_that_does_not_exist_is_refused(strange: int) -> None:
    for bounds in (({strange: 0}, None), (None, {0: 1, strange: 0})):
        with pytest.raises(InvalidArgument, match=rf"has 2 partitions, not \[{strange}\]"):
            places(*bounds)


def test_a_replay_that_does_not_get_on_ends_with_the_reason() -> None:
    reader = ListReader()
    reader.stuck_at = 5
    seen = []
    with pytest.raises(DeadlineExceeded, match="does not get on: t-0: nobody leads it"):
        seen += [one.offset for one in replay({0: 2, 1: 5}, reader=reader)]
    assert seen == []
    assert reader.polls == 1 + 4


def test_a_replay_ends_at_the_end_of_the_log() -> None:
    reader = ListReader()
    reader.beyond = 0
    assert len(list(replay(reader=reader))) == len(ALL)


def test_patience_begins_anew_with_each_record() -> None:
    reader = ListReader()
    records = replay({0: 2, 1: 5}, reader=reader)
    assert [next(records).offset for _ in range(3)] == [2, 3, 4]
    reader.stuck_at = 5
    with pytest.raises(DeadlineExceeded):
        next(records)
    assert reader.polls == 1 + 4
