"""The completion queue: order, waking, and what happens around its end."""

import select
import threading

import pytest

from ringlog.broker.completions import Completions


def readable(completions: Completions) -> bool:
    return bool(select.select([completions.fileno()], [], [], 0)[0])


def test_calls_run_in_order_and_the_descriptor_is_readable_until_then() -> None:
    completions, calls = Completions(), list[int]()
    assert not readable(completions)
    for number in range(3):
        completions.post(lambda number=number: calls.append(number))  # type: ignore[misc]  # a bound loop variable
    assert readable(completions)
    completions.drain()
    assert calls == [0, 1, 2]
    assert not readable(completions)
    completions.close()


def test_a_call_posted_by_a_call_wakes_the_next_drain() -> None:
    completions, calls = Completions(), list[str]()
    completions.post(lambda: completions.post(lambda: calls.append("later")))
    completions.drain()
    assert calls == []
    assert readable(completions)
    completions.drain()
    assert calls == ["later"]
    completions.close()


def test_a_call_that_raises_does_not_lose_the_rest() -> None:
    completions, calls = Completions(), list[str]()
    completions.post(lambda: calls.append(str(1 // 0)))
    completions.post(lambda: calls.append("first"))
    completions.post(lambda: calls.append("second"))
    with pytest.raises(ZeroDivisionError):
        completions.drain()
    assert readable(completions)
    completions.drain()
    assert calls == ["first", "second"]
    completions.close()


def test_every_post_of_many_threads_wakes_the_sleeping_reactor() -> None:
    completions, calls = Completions(), list[int]()

    def post_and_wait_for_each() -> None:
        for _ in range(100):
            ran = threading.Event()
            completions.post(ran.set)
            assert ran.wait(20)
            completions.post(lambda: calls.append(1))

    threads = [threading.Thread(target=post_and_wait_for_each) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(calls) < 400:
        assert select.select([completions.fileno()], [], [], 10)[0], "CQ2: a post was left behind"
        completions.drain()
    for thread in threads:
        thread.join()
    completions.close()


def test_a_signal_handler_may_post_while_the_same_thread_posts() -> None:
    completions, calls = Completions(), list[str]()
    with completions._lock:  # as if the handler had interrupted `post` or `drain`
        completions.post(lambda: calls.append("handler"))
    completions.drain()
    assert calls == ["handler"]
    completions.close()


def test_after_close_a_post_is_dropped() -> None:
    completions, calls = Completions(), list[int]()
    completions.close()
    completions.close()
    completions.post(lambda: calls.append(1))
    assert calls == []
