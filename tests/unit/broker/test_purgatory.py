"""Waits: released in order, once, and taken out of every place they stand in."""

import pytest

from ringlog.broker.purgatory import ByteWaits, CommitWaits
from ringlog.storage.types import Offset, Position


def at(offset: int, own: int = 0) -> Position:
    return Position(Offset(offset), own)


def test_a_wait_is_released_at_its_position_and_not_before() -> None:
    waits: CommitWaits[str] = CommitWaits()
    waits.add(at(5), "five")
    assert waits.release(at(4, 99)) == []
    assert waits.release(at(5)) == ["five"]
    assert waits.release(at(6)) == []


def test_own_entries_are_waited_for_too() -> None:
    waits: CommitWaits[str] = CommitWaits()
    waits.add(at(5, 2), "own")
    assert waits.release(at(5, 1)) == []
    assert waits.release(at(5, 2)) == ["own"]


def test_order_is_by_position_then_by_arrival() -> None:
    waits: CommitWaits[str] = CommitWaits()
    for position, name in ((2, "c"), (1, "a"), (2, "d"), (1, "b"), (9, "late")):
        waits.add(at(position), name)
    assert waits.release(at(2)) == ["a", "b", "c", "d"]
    assert waits.drain() == ["late"]
    assert len(waits) == 0


def test_waits_need_not_be_comparable() -> None:
    waits: CommitWaits[object] = CommitWaits()
    first, second = object(), object()
    waits.add(at(1), first)
    waits.add(at(1), second)
    assert waits.drain() == [first, second]


def test_bytes_add_up_over_keys() -> None:
    waits: ByteWaits[str, str] = ByteWaits()
    waits.add(["a", "b"], 10, "both")
    assert waits.arrived("a", 4) == []
    assert waits.arrived("c", 100) == []
    assert waits.arrived("b", 5) == []
    assert waits.arrived("b", 1) == ["both"]
    assert waits.arrived("a", 100) == []
    assert len(waits) == 0


def test_a_key_that_goes_ends_its_waits_everywhere() -> None:
    waits: ByteWaits[str, str] = ByteWaits()
    waits.add(["a", "b"], 10, "both")
    waits.add(["b"], 10, "one")
    assert waits.gone("a") == ["both"]
    assert len(waits) == 1
    assert waits.arrived("b", 10) == ["one"]


def test_a_removed_wait_is_not_released_and_may_be_removed_again() -> None:
    waits: ByteWaits[str, str] = ByteWaits()
    entry = waits.add(["a", "b", "a"], 1, "gone")
    waits.remove(entry)
    waits.remove(entry)
    assert waits.arrived("a", 1) == []
    assert len(waits) == 0


def test_a_commit_touches_only_the_waits_of_its_partition() -> None:
    waits: ByteWaits[int, int] = ByteWaits()
    for key in range(100):
        waits.add([key], 10, key)
    assert waits.arrived(7, 10) == [7]
    assert len(waits) == 99


@pytest.mark.parametrize(("keys", "missing"), [([], 1), (["a"], 0)])
def test_a_wait_for_nothing_is_our_bug(keys: list[str], missing: int) -> None:
    waits: ByteWaits[str, str] = ByteWaits()
    with pytest.raises(AssertionError):
        waits.add(keys, missing, "x")
