"""A heap of calls to make later, for sans-IO cores.

Owns order and cancellation. Must not know the clock: whoever drives a core passes `now_ms`.

Invariants:
    H1  A call is made at most once, not before its time, and never after `cancel`.
    H2  Cancelled calls do not pile up: they are at most half of the heap, or 64.
"""

import heapq
from collections.abc import Callable

Call = Callable[[int], None]
"""Gets now_ms."""


class TimedCall:
    """One pending call."""

    __slots__ = ("_timers", "call", "queued")

    def __init__(self, timers: "Timers", call: Call) -> None:
        self._timers = timers
        self.call: Call | None = call
        self.queued = True

    def cancel(self) -> None:
        """Never call. Idempotent, also after the call."""
        if self.call is not None:
            self.call = None
            if self.queued:
                self._timers.note_cancelled()


class Timers:
    """Calls by time; equal times in the order given."""

    __slots__ = ("_cancelled", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimedCall]] = []
        self._count = 0
        self._cancelled = 0

    def at(self, when_ms: int, call: Call) -> TimedCall:
        """Make `call` once the clock has reached `when_ms`."""
        timed = TimedCall(self, call)
        self._count += 1
        heapq.heappush(self._heap, (when_ms, self._count, timed))
        return timed

    def next_ms(self) -> int | None:
        """Time of the earliest call that is still wanted."""
        heap = self._heap
        while heap and heap[0][2].call is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def run(self, now_ms: int) -> None:
        """Make every call that is due. Calls added meanwhile wait for the next run."""
        due: list[TimedCall] = []
        while (when := self.next_ms()) is not None and when <= now_ms:
            timed = heapq.heappop(self._heap)[2]
            timed.queued = False
            due.append(timed)
        for timed in due:
            # An earlier call of this run may have cancelled it.
            call, timed.call = timed.call, None
            if call is not None:
                call(now_ms)

    def note_cancelled(self) -> None:
        """Count a cancelled call and sweep when there are too many."""
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
