"""Taking out, waiting and reporting; one thread unless the test is about two."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from ringlog.client.connection import monotonic_ms
from ringlog.client.errors import ClientClosed, DeserializationFailed, PartitionDamaged
from ringlog.client.fetcher import BehindEnd, Lost
from ringlog.client.hand_out import Sink
from ringlog.client.poller import Poller
from ringlog.storage.types import TopicPartition
from tests.unit.client.agent_world import AgentWorld

FAR_S = 20


class PollerWorld(AgentWorld):
    """One partition with ten records, fetched."""

    def __init__(
        self,
        *,
        value: Callable[[bytes | None], object] | None = None,
        on_lost: Callable[[Lost], object] | None = None,
    ) -> None:
        super().__init__()
        self.poller = Poller(
            self.agent, key=None, value=value, on_lost=on_lost, check_open=self.check_open
        )
        self.leader.append(0, 10)
        self.assign(0)
        self.run()

    def poll(self, most: int = 500, wait_ms: int = 0) -> list[int]:
        return [one.offset for one in self.poller.poll(most, monotonic_ms() + wait_ms)]


def test_what_is_there_comes_at_once_and_nothing_when_time_is_up() -> None:
    world = PollerWorld()
    assert world.poll(4) == [0, 1, 2, 3]
    assert world.poll() == [4, 5, 6, 7, 8, 9]
    assert world.poll() == []


def test_what_is_taken_out_makes_room_for_more_at_once() -> None:
    world = PollerWorld()
    world.leader.append(0, 5)
    assert len(world.poll()) == 10
    # Taking out woke the IO thread.
    assert world.fetcher.has_records


def test_a_record_that_comes_later_ends_the_wait() -> None:
    world = PollerWorld()
    world.poll()
    world.leader.append(0, 1)
    later = threading.Timer(0.01, world.run)
    later.start()
    assert world.poll(wait_ms=FAR_S * 1000) == [10]
    later.join()


def test_the_time_of_the_last_record_moves_with_records_only() -> None:
    world = PollerWorld()
    world.poller.last_record_ms = 0
    world.poll()
    moved = world.poller.last_record_ms
    assert moved > 0
    world.poller.last_record_ms = 0
    world.poll()
    assert world.poller.last_record_ms == 0


def test_an_error_comes_when_nothing_stands_before_it() -> None:
    world = PollerWorld()
    world.slot().halt(PartitionDamaged("bad"))
    assert len(world.poll()) == 10
    with pytest.raises(PartitionDamaged):
        world.poll()
    assert world.poll() == []


def test_a_closed_consumer_raises_before_anything_else() -> None:
    world = PollerWorld()
    world.closed = True
    with pytest.raises(ClientClosed):
        world.poll()


def test_closing_ends_a_wait() -> None:
    world = PollerWorld()
    world.poll()

    def close() -> None:
        world.closed = True
        world.agent.on_client_ended(ClientClosed("closed"))

    later = threading.Timer(0.01, close)
    later.start()
    with pytest.raises(ClientClosed):
        world.poll(wait_ms=FAR_S * 1000)
    later.join()


def test_closing_by_a_callback_is_not_slept_over() -> None:
    def close(_event: Lost) -> None:
        world.closed = True

    world = PollerWorld(on_lost=close)
    world.poll()
    world.fetcher.lost.append(Lost(world.place(), 0, 5))
    with pytest.raises(ClientClosed):
        world.poll(wait_ms=FAR_S * 1000)


def test_what_came_while_there_was_nothing_to_take_is_not_slept_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PollerWorld()
    take = world.poller._hand_out.take
    late = [0]

    def too_early(most: int, sink: Sink) -> int:
        return late.pop() if late else take(most, sink)

    monkeypatch.setattr(world.poller._hand_out, "take", too_early)
    assert len(world.poll()) == 10


# -- iteration ----------------------------------------------------------------------------


def test_filling_takes_records_out_once() -> None:
    world = PollerWorld()
    world.poller.fill(monotonic_ms())
    world.poller.fill(monotonic_ms())
    assert world.poller.ahead.first_of(world.place()) == 0
    assert world.slot().position == 10
    assert world.poller.ahead.pop().offset == 0
    assert world.poll(3) == [1, 2, 3]
    assert world.poll() == [4, 5, 6, 7, 8, 9]


def test_filling_takes_nothing_while_there_is_something() -> None:
    world = PollerWorld()
    world.leader.append(0, 1_000)
    world.run()
    world.poller.fill(monotonic_ms())
    assert world.slot().position == 500
    world.poller.fill(monotonic_ms())
    assert world.slot().position == 500


def test_filling_ends_when_time_is_up() -> None:
    world = PollerWorld()
    world.poll()
    world.poller.fill(monotonic_ms())
    assert not world.poller.ahead


# -- events -------------------------------------------------------------------------------


def test_each_lost_range_is_told_before_any_record_and_a_raise_loses_nothing() -> None:
    told: list[Lost] = []

    def on_lost(event: Lost) -> None:
        told.append(event)
        raise RuntimeError("no")

    world = PollerWorld(on_lost=on_lost)
    events = [Lost(world.place(), 0, 5), Lost(world.place(), 7, 9)]
    world.fetcher.lost += events
    for count in (1, 2):
        with pytest.raises(RuntimeError, match="no"):
            world.poll()
        assert told == events[:count]
    assert len(world.poll()) == 10


def test_gained_partitions_are_told_once_or_forgotten() -> None:
    world = PollerWorld()
    world.agent.gained = [world.place(7)]
    world.poll()
    told: list[list[TopicPartition]] = []
    world.poller.on_assign = told.append
    world.poll()
    world.agent.gained = [world.place(8), world.place(9)]
    world.poll()
    assert told == [[world.place(8), world.place(9)]]


def test_a_callback_may_poll() -> None:
    inner: list[int] = []
    world = PollerWorld(on_lost=lambda _event: inner.extend(world.poll(4)))
    world.fetcher.lost.append(Lost(world.place(), 0, 5))
    assert world.poll() == [4, 5, 6, 7, 8, 9]
    assert inner == [0, 1, 2, 3]


def test_an_event_alone_does_not_end_the_wait() -> None:
    told: list[Lost] = []
    world = PollerWorld(on_lost=told.append)
    world.poll()
    world.fetcher.lost.append(Lost(world.place(), 0, 5))
    world.leader.append(0, 1)
    later = threading.Timer(0.01, world.run)
    later.start()
    assert world.poll(wait_ms=FAR_S * 1000) == [10]
    later.join()
    assert len(told) == 1


def test_without_a_callback_a_lost_range_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = PollerWorld()
    world.fetcher.lost += [Lost(world.place(), 3, 7), BehindEnd(world.place(), 90, 10)]
    with caplog.at_level(logging.WARNING):
        world.poll()
    assert [one.getMessage() for one in caplog.records] == [
        "t-0: offsets 3 to 7 (exclusive) were deleted before they were read",
        "t-0: offset 90 lies behind the end, reading goes on at 10",
    ]


# -- two threads --------------------------------------------------------------------------


def test_a_slow_deserializer_holds_no_other_thread_beyond_its_time() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(value: bytes | None) -> bytes | None:
        inside.set()
        assert go_on.wait(FAR_S)
        return value

    world = PollerWorld(value=slow)
    taken: list[int] = []
    other = threading.Thread(target=lambda: taken.extend(world.poll()))
    other.start()
    assert inside.wait(FAR_S)
    assert world.poll(wait_ms=5) == []
    # Nor the IO thread, which needs the fetcher.
    assert world.agent.changed.acquire(timeout=FAR_S)
    world.agent.changed.release()
    go_on.set()
    other.join()
    assert taken == list(range(10))


def test_threads_may_take_their_turns() -> None:
    world = PollerWorld()
    assert world.poll(3) == [0, 1, 2]
    taken: list[int] = []
    other = threading.Thread(target=lambda: taken.extend(world.poll(4, wait_ms=5)))
    other.start()
    other.join()
    assert taken == [3, 4, 5, 6]


def test_polling_inside_a_deserializer_is_refused() -> None:
    world = PollerWorld(value=lambda _value: world.poll())
    with pytest.raises(DeserializationFailed, match="a deserializer asked for records"):
        world.poll()


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads switch as often as they can, so that a missing lock shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_poll_and_iterate_get_each_record_once() -> None:
    world = PollerWorld()
    for _ in range(30):
        world.leader.append(0, 100)
    seen: list[int] = []

    def poll() -> None:
        while len(seen) < 3_010:
            seen.extend(world.poll(3, wait_ms=1))

    def iterate() -> None:
        while len(seen) < 3_010:
            try:
                seen.append(world.poller.ahead.pop().offset)
            except IndexError:
                world.poller.fill(monotonic_ms() + 1)

    threads = [threading.Thread(target=work) for work in (poll, iterate, poll, iterate)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(3_010))


def test_a_child_of_a_fork_gets_a_lock_that_is_free() -> None:
    world = PollerWorld()
    taken = threading.Event()
    done = threading.Event()

    def hold() -> None:
        world.poller._taking.acquire()
        taken.set()
        done.wait(FAR_S)

    other = threading.Thread(target=hold)
    other.start()
    assert taken.wait(FAR_S)
    world.poller.on_forked()
    assert len(world.poll()) == 10
    done.set()
    other.join()
