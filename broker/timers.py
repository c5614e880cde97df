"""The one timer heap of a broker.

Owns which call is due when. Must not know the clock: times are handed in.

Invariants:
    TH1 A call happens once, not before its time, in order of time and then of registration.
    TH2 Cancelled timers never call and do not pile up: they leave the heap when their time
        comes, or when they outnumber the living.
"""

import heapq
from collections.abc import Callable

MIN_SWEEP = 64


class HeapTimer:
    """A pending call (`broker.shell.Timer`)."""

    __slots__ = ("_callback", "_heap")

    def __init__(self, heap: "TimerHeap", callback: Callable[[], None]) -> None:
        self._heap = heap
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never call back. Idempotent, also after the call."""
        if self._callback is not None:
            self._callback = None
            self._heap.note_cancelled()

    def take(self) -> Callable[[], None] | None:
        """Give the callback away; None when cancelled. For the heap."""
        callback, self._callback = self._callback, None
        return callback

    @property
    def pending(self) -> bool:
        """Whether it will still call."""
        return self._callback is not None


class TimerHeap:
    """Pending calls by deadline, in milliseconds of the monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, HeapTimer]] = []
        self._sequence = 0
        self._cancelled = 0

    def __len__(self) -> int:
        """Number of entries, cancelled ones included."""
        return len(self._heap)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> HeapTimer:
        """Call back from `run_due` once its `now_ms` has reached `deadline_ms`."""
        timer = HeapTimer(self, callback)
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, timer))
        return timer

    def next_deadline_ms(self) -> int | None:
        """When the next call is due; None when nothing is pending."""
        while self._heap and not self._heap[0][2].pending:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_ms: int) -> None:
        """Make every call that is due. Calls registered meanwhile wait for the next run."""
        last = self._sequence
        later: list[tuple[int, int, HeapTimer]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heapq.heappop(self._heap)
            if entry[1] > last and entry[2].pending:
                later.append(entry)
                continue
            callback = entry[2].take()
            if callback is None:
                self._cancelled -= 1
                continue
            callback()
        for entry in later:
            heapq.heappush(self._heap, entry)

    def note_cancelled(self) -> None:
        """One entry died in place (called by the timer)."""
        self._cancelled += 1
        if self._cancelled > MIN_SWEEP and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].pending]
            heapq.heapify(self._heap)
            self._cancelled = 0
