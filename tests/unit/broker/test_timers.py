"""The timer heap: order, cancelling, and that cancelled timers do not pile up."""

from ringlog.broker.timers import MIN_SWEEP, TimerHeap


def test_calls_come_in_order_of_time_then_of_registration() -> None:
    heap, calls = TimerHeap(), []
    for deadline_ms, name in ((20, "b"), (10, "a"), (20, "c"), (30, "d")):
        heap.call_at(deadline_ms, lambda name=name: calls.append(name))  # type: ignore[misc]  # a bound loop variable
    heap.run_due(20)
    assert calls == ["a", "b", "c"]
    assert heap.next_deadline_ms() == 30


def test_nothing_is_called_before_its_time() -> None:
    heap, calls = TimerHeap(), list[int]()
    heap.call_at(10, lambda: calls.append(1))
    heap.run_due(9)
    assert calls == []
    heap.run_due(10)
    heap.run_due(11)
    assert calls == [1]


def test_a_cancelled_timer_never_calls_and_is_no_deadline() -> None:
    heap, calls = TimerHeap(), list[int]()
    timer = heap.call_at(10, lambda: calls.append(1))
    heap.call_at(20, lambda: calls.append(2))
    timer.cancel()
    timer.cancel()
    assert heap.next_deadline_ms() == 20
    heap.run_due(100)
    timer.cancel()
    assert calls == [2]
    assert heap.next_deadline_ms() is None


def test_a_call_registered_by_a_call_waits_for_the_next_run() -> None:
    heap, calls = TimerHeap(), list[str]()

    def again() -> None:
        calls.append("again")
        heap.call_at(0, again)

    heap.call_at(0, again)
    heap.run_due(5)
    assert calls == ["again"]
    assert heap.next_deadline_ms() == 0
    heap.run_due(5)
    assert calls == ["again", "again"]


def test_a_timer_can_cancel_another_that_is_due_in_the_same_run() -> None:
    heap, calls = TimerHeap(), list[str]()
    victim = heap.call_at(2, lambda: calls.append("victim"))
    heap.call_at(1, victim.cancel)
    heap.run_due(5)
    assert calls == []
    assert len(heap) == 0


def test_cancelled_timers_do_not_pile_up() -> None:
    heap, calls = TimerHeap(), list[int]()
    heap.call_at(1, lambda: calls.append(1))
    for _ in range(10_000):
        heap.call_at(1_000_000, lambda: calls.append(2)).cancel()
    assert len(heap) <= 2 * MIN_SWEEP + 2
    heap.run_due(2_000_000)
    assert calls == [1]
