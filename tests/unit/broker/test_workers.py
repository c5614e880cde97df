"""The pool: each call is answered once, with its result or its error."""

import queue
import threading
from collections.abc import Callable

from ringlog.broker.workers import Workers, WorkersClosed

Answer = tuple[object, Exception | None]


class Inbox:
    """Where the reactor would be: posted calls, run by the test."""

    def __init__(self) -> None:
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.answers: list[Answer] = []

    def on_done(self, result: object, error: Exception | None) -> None:
        self.answers.append((result, error))

    def run_one(self) -> Answer:
        self.calls.get(timeout=20)()
        return self.answers[-1]


def test_a_result_and_an_error_come_back_through_post() -> None:
    inbox = Inbox()
    workers = Workers(inbox.calls.put, threads=1)
    workers.run(lambda: 42, inbox.on_done)
    assert inbox.run_one() == (42, None)
    workers.run(lambda: 1 // 0, inbox.on_done)
    result, error = inbox.run_one()
    assert result is None
    assert isinstance(error, ZeroDivisionError)
    workers.close()


def test_a_call_runs_on_another_thread() -> None:
    inbox = Inbox()
    workers = Workers(inbox.calls.put, threads=1)
    workers.run(threading.get_ident, inbox.on_done)
    assert inbox.run_one()[0] != threading.get_ident()
    workers.close()


def test_close_waits_for_what_runs_and_answers_what_waits() -> None:
    inbox = Inbox()
    workers = Workers(inbox.calls.put, threads=1)
    running, may_end = threading.Event(), threading.Event()

    def slow() -> str:
        running.set()
        assert may_end.wait(20)
        return "finished"

    workers.run(slow, inbox.on_done)
    workers.run(lambda: "never", inbox.on_done)
    assert running.wait(20)
    closer = threading.Thread(target=workers.close)
    closer.start()
    while not workers._closing:
        pass
    may_end.set()
    closer.join(20)
    assert inbox.run_one() == ("finished", None)
    assert isinstance(inbox.run_one()[1], WorkersClosed)
    workers.run(lambda: "late", inbox.on_done)
    assert isinstance(inbox.run_one()[1], WorkersClosed)
    workers.close()
