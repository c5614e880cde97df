"""Administration one after another: each operation is a chain of steps on workers and reactor.

Owns the order. Must not know what an operation does.

Invariants:
    A1  At most one operation is under way; the next begins when the one before has ended, so
        that steps of two never mix.
    A2  An operation ends by calling the `done` it was given, once.
"""

from collections import deque
from collections.abc import Callable

Operation = Callable[[Callable[[], None]], None]
"""Called with `done`."""


class AdminQueue:
    """One per broker, on the reactor thread."""

    __slots__ = ("_idle", "_running", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Operation] = deque()
        self._running = False
        self._idle: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._waiting) + self._running

    def add(self, operation: Operation) -> None:
        """Run `operation` behind those that wait."""
        self._waiting.append(operation)
        self._next()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once nothing waits or runs, perhaps at once."""
        self._idle = callback
        self._next()

    def _next(self) -> None:
        if self._running:
            return
        if not self._waiting:
            callback, self._idle = self._idle, None
            if callback is not None:
                callback()
            return
        self._running = True
        self._waiting.popleft()(self._ended)

    def _ended(self) -> None:
        assert self._running, "A2: an operation ends once"
        self._running = False
        self._next()
