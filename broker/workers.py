"""A few threads for what may wait: cold reads, opening, removing, registry changes.

Owns the pool. Must not know what runs on it.

Invariants:
    WK1 `on_done` is posted exactly once for each `run`, with a result or an error.
    WK2 After `close` began, nothing new starts; what waits is answered with `WorkersClosed`.
"""

import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

Post = Callable[[Callable[[], None]], None]
"""Runs a call on the reactor thread."""


class WorkersClosed(Exception):
    """The broker is ending; the call was not made."""


class Workers:
    """The pool of one broker. `run` from the reactor thread."""

    def __init__(self, post: Post, *, threads: int) -> None:
        self._post = post
        self._closing = False
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "ringlog-worker")

    def run(
        self, fn: Callable[[], T], on_done: Callable[[T | None, Exception | None], None]
    ) -> None:
        """Call `fn` on a worker, then post `on_done(result, None)` or `on_done(None, error)`."""

        def work() -> None:
            if self._closing:
                self._post(lambda: on_done(None, WorkersClosed("the broker is ending")))
                return
            try:
                result = fn()
            # Whatever it is, it belongs to whoever asked; a worker outlives it.
            except Exception as error:  # noqa: BLE001
                failure = error
                self._post(lambda: on_done(None, failure))
            else:
                self._post(lambda: on_done(result, None))

        try:
            self._pool.submit(work)
        except RuntimeError:  # the pool is shut down
            self._post(lambda: on_done(None, WorkersClosed("the broker is ending")))

    def close(self) -> None:
        """Start nothing new and wait for the calls under way. Idempotent."""
        self._closing = True
        self._pool.shutdown(wait=True)
