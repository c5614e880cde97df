"""Records leave once, whoever takes them."""

import pytest

from ringlog.client.ahead import Ahead
from ringlog.client.record import Record
from ringlog.storage.types import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def record(partition: int, offset: int) -> Record:
    return Record("t", partition, offset, -1, None, b"", ())


def ahead_of(*places: tuple[int, int]) -> Ahead:
    ahead = Ahead()
    ahead.extend([record(partition, offset) for partition, offset in places])
    return ahead


def rest(ahead: Ahead) -> list[tuple[int, int]]:
    return [(one.partition, one.offset) for one in ahead.take(100)]


def test_records_come_out_in_order_one_by_one_or_several() -> None:
    ahead = ahead_of((0, 1), (0, 2), (0, 3), (0, 4))
    assert ahead
    assert ahead.pop().offset == 1
    assert [one.offset for one in ahead.take(2)] == [2, 3]
    assert rest(ahead) == [(0, 4)]
    assert not ahead
    with pytest.raises(IndexError):
        ahead.pop()


def test_the_first_of_a_partition_is_found_behind_others() -> None:
    ahead = ahead_of((0, 7), (1, 3), (1, 4))
    assert (ahead.first_of(ZERO), ahead.first_of(ONE)) == (7, 3)
    assert ahead.first_of(TopicPartition("u", 0)) is None
    assert rest(ahead) == [(0, 7), (1, 3), (1, 4)]


def test_dropping_names_the_first_offset_of_each_and_keeps_the_others() -> None:
    ahead = ahead_of((0, 7), (1, 3), (0, 8), (1, 4))
    assert ahead.drop([ZERO, TopicPartition("u", 0)]) == {ZERO: 7}
    assert rest(ahead) == [(1, 3), (1, 4)]
    assert ahead.drop([ZERO]) == {}
