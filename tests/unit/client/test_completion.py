"""Waiting and callbacks, by threads and by signals."""

import logging
import signal
import threading
import time

import pytest

from ringlog.client.completion import Completion


def test_a_wait_ends_with_the_end() -> None:
    completion = Completion()
    woken: list[bool] = []
    waiters = [threading.Thread(target=lambda: woken.append(completion.wait(60))) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    while len(completion.waiters) < 4:
        pass
    completion.complete()
    for waiter in waiters:
        waiter.join(5)
    assert woken == [True] * 4, "woken, not timed out"
    assert completion.wait(0)


def test_a_wait_gives_up_at_its_timeout_and_leaves_nothing_behind() -> None:
    completion = Completion()
    assert not completion.wait(0)
    assert not completion.wait(-1)
    assert completion.waiters == []


def test_whoever_is_about_to_block_is_announced() -> None:
    class Announced(Completion):
        __slots__ = ("asked",)

        def on_wait(self) -> None:
            self.asked = True
            self.complete()

    completion = Announced()
    assert completion.wait(10)
    assert completion.asked


def test_callbacks_run_once_each_in_order_also_when_added_after_the_end() -> None:
    completion, ran = Completion(), []
    completion.add_callback(lambda: ran.append(1))
    completion.add_callback(lambda: ran.append(2))
    assert ran == []
    completion.complete()
    completion.add_callback(lambda: ran.append(3))
    assert ran == [1, 2, 3]


def test_a_callback_that_raises_is_logged_and_the_next_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    completion, ran = Completion(), []

    def bad() -> None:
        raise ValueError("planted")

    completion.add_callback(bad)
    completion.add_callback(lambda: ran.append(1))
    with caplog.at_level(logging.ERROR, "ringlog.client"):
        completion.complete()
    assert ran == [1]
    assert "planted" in caplog.text


def test_it_ends_once() -> None:
    completion = Completion()
    completion.complete()
    with pytest.raises(AssertionError):
        completion.complete()


def test_a_signal_interrupts_a_wait_within_100_ms() -> None:
    class Interrupted(Exception):
        pass

    def handler(_number: int, _frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    waits = []
    try:
        # The best of a few: a busy machine may stop us at any time.
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            began = time.monotonic()
            with pytest.raises(Interrupted):
                Completion().wait(30)
            waits.append(time.monotonic() - began - 0.02)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert min(waits) < 0.1
