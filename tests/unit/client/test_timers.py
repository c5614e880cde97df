"""Calls to make later."""

from ringlog.client.timers import Timers


def test_calls_run_in_order_of_time_and_not_before() -> None:
    timers, ran = Timers(), []
    timers.at(30, lambda now: ran.append(("c", now)))
    timers.at(10, lambda now: ran.append(("a", now)))
    timers.at(10, lambda now: ran.append(("b", now)))
    assert timers.next_ms() == 10
    timers.run(9)
    assert ran == []
    timers.run(20)
    assert ran == [("a", 20), ("b", 20)]
    assert timers.next_ms() == 30
    timers.run(30)
    timers.run(99)
    assert ran[2:] == [("c", 30)]
    assert timers.next_ms() is None


def test_a_cancelled_call_never_runs_also_when_cancelled_by_one_of_the_same_run() -> None:
    timers, ran = Timers(), []
    timers.at(5, lambda _: second.cancel())
    second = timers.at(5, lambda _: ran.append("second"))
    third = timers.at(7, lambda _: ran.append("third"))
    third.cancel()
    third.cancel()
    assert timers.next_ms() == 5
    timers.run(10)
    second.cancel()
    assert ran == []
    assert timers.next_ms() is None


def test_a_call_added_while_running_waits_for_the_next_run() -> None:
    timers, ran = Timers(), []

    def outer(now_ms: int) -> None:
        timers.at(now_ms, lambda _: ran.append("inner"))

    timers.at(1, outer)
    timers.run(5)
    assert ran == []
    timers.run(5)
    assert ran == ["inner"]


def test_cancelled_calls_do_not_pile_up() -> None:
    timers = Timers()
    timers.at(10**9, lambda _: None)
    for _ in range(10_000):
        timers.at(10**6, lambda _: None).cancel()
        assert len(timers._heap) < 200
    assert timers.next_ms() == 10**9
