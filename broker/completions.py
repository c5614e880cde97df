"""Calls that other threads hand to the reactor, and the descriptor that wakes it.

Owns the queue and its eventfd. Must not know what the calls do.

Invariants:
    CQ1 Calls run on the thread that drains, in the order posted.
    CQ2 After `post` returns, the descriptor is readable until a drain has begun: no call is
        left behind while the reactor sleeps.
    CQ3 Posting never waits. After `close` a post is dropped: nobody is left to run it.
"""

import collections
import os
import threading
from collections.abc import Callable


class Completions:
    """Thread-safe on `post` and `close`; the rest belongs to the draining thread."""

    def __init__(self) -> None:
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._signalled = False
        # Reentrant: a signal handler may post while the main thread is in here.
        self._lock = threading.RLock()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Descriptor to poll for reading."""
        return self._fd

    def post(self, call: Callable[[], None]) -> None:
        """Queue a call and wake the reactor. Any thread."""
        # The lock keeps `close` from giving the descriptor's number away under our write.
        with self._lock:
            if self._fd < 0:
                return
            self._calls.append(call)
            self._signal()

    def drain(self) -> None:
        """Run what was posted before this call; what a call posts runs next time."""
        with self._lock:
            if self._signalled:
                os.eventfd_read(self._fd)
                self._signalled = False
            calls, self._calls = self._calls, collections.deque()
        while calls:
            call = calls.popleft()
            try:
                call()
            except BaseException:
                # The rest must not be lost when the caller decides to go on.
                with self._lock:
                    self._calls.extendleft(reversed(calls))
                    if self._calls:
                        self._signal()
                raise

    def _signal(self) -> None:
        if not self._signalled:
            self._signalled = True
            os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """Release the descriptor. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
