"""Requests that wait: for a position to commit, or for bytes to read.

Owns two pure structures; handlers put waits in and partitions release them. Must not know
requests, sockets, deadlines or logs: a wait is any object, and its deadline is a timer of the
shell.

Invariants:
    Y1  A wait leaves exactly once: released, drained or removed.
    Y2  `CommitWaits` releases a wait at the first commit position at or above its own, in the
        order of positions, then of arrival.
    Y3  Work is bounded by what ends, not by what waits: a commit touches the waits of one
        partition that it releases; a fetch wait is touched by the partitions it names.

Source: Kafka's purgatory (delayed produce and fetch), without its timing wheel.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from itertools import count
from typing import Generic, TypeVar

from ringlog.storage.types import Position

W = TypeVar("W")
K = TypeVar("K", bound=Hashable)


class CommitWaits(Generic[W]):
    """The waits of one partition for its commit position."""

    __slots__ = ("_arrival", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[Position, int, W]] = []
        self._arrival = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, position: Position, wait: W) -> None:
        """Wait until the commit position is at or above `position`."""
        heapq.heappush(self._heap, (position, next(self._arrival), wait))

    def release(self, committed: Position) -> list[W]:
        """Take out what has waited for `committed` or less, in order (Y2)."""
        released = []
        heap = self._heap
        while heap and heap[0][0] <= committed:
            released.append(heapq.heappop(heap)[2])
        return released

    def drain(self) -> list[W]:
        """Take out everything, in order."""
        drained = [entry[2] for entry in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap.clear()
        return drained


class ByteWait(Generic[K, W]):
    """One wait for bytes over many partitions. Made by `ByteWaits.add`."""

    __slots__ = ("keys", "missing_bytes", "wait")

    def __init__(self, wait: W, keys: tuple[K, ...], missing_bytes: int) -> None:
        self.wait = wait
        self.keys = keys
        self.missing_bytes = missing_bytes


class ByteWaits(Generic[K, W]):
    """Long polls: each waits until enough bytes have come over all the partitions it names."""

    __slots__ = ("_by_key", "_count")

    def __init__(self) -> None:
        # Dicts as ordered sets: waits of a partition end in the order they came.
        self._by_key: dict[K, dict[ByteWait[K, W], None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, keys: Iterable[K], missing_bytes: int, wait: W) -> ByteWait[K, W]:
        """Wait until `missing_bytes` (> 0) more came to `keys`, counted from now on.

        `keys` has at least one.
        """
        assert missing_bytes > 0, "nothing is missing"
        entry = ByteWait(wait, tuple(dict.fromkeys(keys)), missing_bytes)
        assert entry.keys, "a wait names what it waits for"
        for key in entry.keys:
            self._by_key.setdefault(key, {})[entry] = None
        self._count += 1
        return entry

    def arrived(self, key: K, size_bytes: int) -> list[W]:
        """`size_bytes` more can be read at `key`; take out the waits that now have enough."""
        return self._take(key, lambda entry: self._subtract(entry, size_bytes))

    def gone(self, key: K) -> list[W]:
        """Take out every wait that names `key`, enough or not."""
        return self._take(key, lambda _: True)

    def remove(self, entry: ByteWait[K, W]) -> None:
        """Take one wait out; no error when it is out already."""
        if entry not in self._by_key.get(entry.keys[0], ()):
            return
        for key in entry.keys:
            waits = self._by_key[key]
            del waits[entry]
            if not waits:
                del self._by_key[key]
        self._count -= 1

    @staticmethod
    def _subtract(entry: ByteWait[K, W], size_bytes: int) -> bool:
        entry.missing_bytes -= size_bytes
        return entry.missing_bytes <= 0

    def _take(self, key: K, ends: Callable[[ByteWait[K, W]], bool]) -> list[W]:
        ended = [entry for entry in self._by_key.get(key, ()) if ends(entry)]
        for entry in ended:
            self.remove(entry)
        return [entry.wait for entry in ended]
