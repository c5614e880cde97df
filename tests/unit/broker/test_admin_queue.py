"""Operations run one after another, in order, and idleness is told."""

from collections.abc import Callable

import pytest

from ringlog.broker.admin_queue import AdminQueue


class Operations:
    def __init__(self) -> None:
        self.started: list[str] = []
        self.ends: list[Callable[[], None]] = []

    def named(self, name: str) -> Callable[[Callable[[], None]], None]:
        def operation(done: Callable[[], None]) -> None:
            self.started.append(name)
            self.ends.append(done)

        return operation


def test_the_next_begins_when_the_one_before_has_ended() -> None:
    queue, operations = AdminQueue(), Operations()
    for name in "abc":
        queue.add(operations.named(name))
    assert operations.started == ["a"]
    assert len(queue) == 3
    operations.ends[0]()
    assert operations.started == ["a", "b"]
    operations.ends[1]()
    operations.ends[2]()
    assert operations.started == ["a", "b", "c"]
    assert len(queue) == 0


def test_idleness_is_told_once_everything_has_ended() -> None:
    queue, operations = AdminQueue(), Operations()
    told: list[bool] = []
    queue.add(operations.named("a"))
    queue.when_idle(lambda: told.append(True))
    assert told == []
    operations.ends[0]()
    assert told == [True]
    queue.when_idle(lambda: told.append(True))
    assert told == [True, True]


def test_ending_twice_is_our_bug() -> None:
    queue, operations = AdminQueue(), Operations()
    queue.add(operations.named("a"))
    operations.ends[0]()
    with pytest.raises(AssertionError, match="A2"):
        operations.ends[0]()
