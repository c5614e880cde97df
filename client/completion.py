"""Waiting for an end: by blocking, or by callback.

Owns the hand-over between the one thread that completes and any number that wait. Must not know
what it is that ends.

Invariants:
    J1  It ends once. Whoever waits before or after is woken; nobody is missed in between.
    J2  Callbacks run exactly once each, in the order added, and under no lock; what one raises
        is logged and does not stop the next.
    J3  A wait can be interrupted: a signal handler's exception ends it at once.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("ringlog.client")


class Completion:
    """See the module."""

    __slots__ = ("callbacks", "done", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.waiters: list[threading.Lock] = []
        self.callbacks: deque[Callable[[], object]] = deque()

    def on_wait(self) -> None:
        """Called by a thread that is about to block."""

    def complete(self) -> None:
        """End: wake whoever waits, run the callbacks."""
        assert not self.done, "it ends once"
        self.done = True
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.release()
        self.run_callbacks()

    def wait(self, timeout: float | None) -> bool:
        """Wait until it has ended; interruptible. Returns whether it has.

        Args:
            timeout: seconds; None waits as long as it takes (the delivery deadline bounds it).
        """
        if self.done:
            return True
        waiter = threading.Lock()
        waiter.acquire()
        self.waiters.append(waiter)
        if self.has_ended():
            # It ended before the list could hold us, or has just released us: either is fine.
            return True
        self.on_wait()
        if waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            return True
        if waiter in self.waiters:
            self.waiters.remove(waiter)
        return self.has_ended()

    def has_ended(self) -> bool:
        """`done`, read anew: another thread sets it."""
        return self.done

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call back once it has ended; at once when it has."""
        self.callbacks.append(callback)
        if self.done:
            self.run_callbacks()

    def run_callbacks(self) -> None:
        """Run what was added. Taking one is atomic, so none runs twice."""
        while self.callbacks:
            try:
                callback = self.callbacks.popleft()
            except IndexError:
                return
            try:
                callback()
            except Exception:
                log.exception("a delivery callback raised")
