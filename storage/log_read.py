"""Reading a log: which bytes of which segment answer a fetch, and every check they pass.

Owns `ReadPlan`, made on the reactor and run there (when the pages are hot) or on a worker.
Must not know jobs, retention or consumers.

Invariants:
    D1  What is returned are whole batches, each with a good CRC, the base offset expected and
        the leader epoch that the Raft log says; nothing else is ever returned.
    D2  A plan whose log was cut back, reset or trimmed meanwhile answers None, never an error:
        what it saw is no damage. The caller plans again.
    D3  An index is a cache: where it contradicts the batches it is built again, and only if
        that fails the log is damaged.
    D4  Of a segment that another process wrote nothing is returned before a worker has compared
        the whole file with its CRC (G4): a batch does not say of which partition it is.
"""

import contextlib
from collections.abc import Callable
from typing import Final

import msgspec

from ringlog.storage.batch_scan import BrokenChain, EpochAt, check_at, check_room, scan_batches
from ringlog.storage.errors import DamagedLog, FileMissing
from ringlog.storage.index import SparseIndex
from ringlog.storage.producer_replay import damaged_log
from ringlog.storage.record_batch import HEADER_SIZE, end_of_stored, peek_size
from ringlog.storage.segment import Place, Segment
from ringlog.storage.types import Offset

_SMALLEST_READ_BYTES: Final = 1 << 14
"""Less is not worth a system call: a header alone would always need a second one."""


class ReadResult(msgspec.Struct, frozen=True, gc=False):
    """Whole batches, one behind the other."""

    data: bytes
    """Empty when the batch at the offset does not end below the end asked for."""
    next_offset: Offset
    """First offset behind them."""


class ReadPlan:
    """One read of one segment. `run` may be called on any thread."""

    __slots__ = ("_end", "_epoch_at", "_is_stale", "_limit_bytes", "_max_bytes", "_offset",
                 "_place", "_segment")  # fmt: skip

    def __init__(
        self,
        segment: Segment,
        place: Place,
        *,
        offset: Offset,
        end: Offset,
        max_bytes: int,
        limit_bytes: int,
        epoch_at: EpochAt,
        is_stale: Callable[[], bool],
    ) -> None:
        """Plan to read batches from the one that contains `offset`, all below `end`.

        Args:
            segment: the one that holds `offset`.
            place: of the partition.
            offset: inside the segment and below `end`.
            end: no batch beyond it is returned (exclusive).
            max_bytes: bound of the result; the first batch is returned even when larger.
            limit_bytes: size of what is written of the segment (exclusive end).
            epoch_at: of the Raft log.
            is_stale: whether the log was changed under the plan (D2).
        """
        self._segment = segment
        self._place = place
        self._offset = offset
        self._end = end
        self._max_bytes = max_bytes
        self._limit_bytes = limit_bytes
        self._epoch_at = epoch_at
        self._is_stale = is_stale

    def run(self, *, cached_only: bool) -> ReadResult | None:
        """Read and check.

        Args:
            cached_only: on the reactor: never wait for a disk.

        Returns:
            The batches, or None: it would wait for a disk, or the log has changed (D2).

        Raises:
            DamagedLog: the batch at `offset` or the whole file fails a check.
            ReadFailed: the disk cannot give it back.
        """
        try:
            found = self._read(cached_only=cached_only)
            return None if self._is_stale() else found
        except BrokenChain as error:
            if self._is_stale():
                return None
            if not self._segment.is_sealed:
                raise damaged_log(self._place, self._segment, error) from error
            # The index may be wrong, which only a worker may find out.
            return None if cached_only else self._read_without_index()
        except (DamagedLog, FileMissing, AssertionError, LookupError):
            if self._is_stale():
                return None
            raise

    def _read(self, *, cached_only: bool) -> ReadResult | None:
        segment, place = self._segment, self._place
        if segment.unchecked is not None:
            if cached_only:
                return None
            segment.check(place, self._epoch_at)
        file, index = segment.file_if_open(), segment.index_if_loaded()
        if file is None or index is None:
            if cached_only:
                return None
            file, index = segment.file(place), segment.index(place, self._epoch_at)
        read = file.pread_cached if cached_only else file.pread
        offset, position = index.at_offset(self._offset)
        stop = self._stop(index, position)
        while True:
            data = read(stop - position, position)
            if data is None:
                return None
            begin, end, offset = self._walk(data, position, offset)
            if begin >= 0:
                if begin == end:
                    return ReadResult(b"", self._offset)
                whole = begin == 0 and end == len(data)
                return ReadResult(data if whole else data[begin:end], offset)
            # The window ends before the wanted batch does: read from there, all of it.
            was_short = len(data) < stop - position
            position += end
            if was_short:
                raise BrokenChain("the file ends here", position=position, offset=offset)
            stop = self._stop_behind(data, end, position, offset)

    def _stop(self, index: SparseIndex, begin: int) -> int:
        """Where to stop reading: at an entry of the index nothing read has to be cut off."""
        limit = self._limit_bytes
        behind_end = index.position_behind(self._end)
        if behind_end is not None:
            limit = min(limit, behind_end)
        if limit - begin <= self._max_bytes:
            return limit
        edge = index.edge_within(begin, begin + self._max_bytes)
        if edge is not None:
            return min(limit, edge)
        return min(limit, begin + max(self._max_bytes, _SMALLEST_READ_BYTES))

    def _stop_behind(self, data: bytes, at: int, position: int, offset: Offset) -> int:
        """Where to stop reading the batch at `position`, byte `at` of the last window."""
        left = self._limit_bytes - position
        size_bytes = peek_size(data, at)
        if left <= 0 or (size_bytes is not None and size_bytes < HEADER_SIZE):
            raise BrokenChain("the segment ends here", position=position, offset=offset)
        if size_bytes is None:
            return position + min(left, _SMALLEST_READ_BYTES)
        check_room(size_bytes, left, position=position, offset=offset)
        return position + max(size_bytes, min(left, self._max_bytes))

    def _walk(self, data: bytes, position: int, offset: Offset) -> tuple[int, int, Offset]:
        """Check the batches in `data`, which is byte `position` of the segment and on.

        Returns:
            Begin in `data` of what is taken, or -1 when the wanted batch is not whole there; end
            of the last batch checked; the offset behind it.
        """
        view, epoch_at, end, max_bytes = (
            memoryview(data),
            self._epoch_at,
            self._end,
            self._max_bytes,
        )
        at, begin = 0, -1
        while at < len(data):
            found = end_of_stored(view, at, offset, epoch_at(offset))
            if found is None:
                size_bytes = peek_size(data, at)
                if size_bytes is None or size_bytes > len(data) - at:
                    break
                try:
                    header = check_at(
                        data, at, position=position + at, offset=offset, epoch_at=epoch_at
                    )
                except BrokenChain:
                    if begin < 0:
                        raise
                    # Good batches stand before it: whoever reads on is told.
                    break
                found = header.size_bytes, header.next_offset
            size_bytes, next_offset = found
            if begin >= 0 and at + size_bytes - begin > max_bytes:
                break
            if next_offset > end:
                return (at if begin < 0 else begin), at, offset
            if begin < 0 and next_offset > self._offset:
                begin = at
            at += size_bytes
            offset = next_offset
        return begin, at, offset

    def _read_without_index(self) -> ReadResult:
        """Find the batch by reading the segment from its begin, and build its index anew."""
        segment = self._segment
        try:
            found = self._scan_to_offset()
        except BrokenChain as error:
            raise damaged_log(self._place, self._segment, error) from error
        with contextlib.suppress(BrokenChain):
            # Damage behind the batch is the business of whoever reads there.
            segment.replace_index(segment.build_index(self._place, self._epoch_at))
        return found

    def _scan_to_offset(self) -> ReadResult:
        batches = scan_batches(
            self._segment.file(self._place),
            begin=0,
            end=self._limit_bytes,
            first_offset=self._segment.base_offset,
            epoch_at=self._epoch_at,
        )
        for header, _position, data in batches:
            if header.next_offset > self._offset:
                return ReadResult(bytes(data), header.next_offset)
        raise BrokenChain("the segment ends here", position=self._limit_bytes, offset=self._offset)
