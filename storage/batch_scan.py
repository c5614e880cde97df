"""Reading a range of a segment batch by batch, every batch checked.

Owns the walk that recovery, index building, time lookup and verification share. Must not know
segments, indexes or what a fault means: it says where the chain of good batches ends.

Invariants:
    W1  A batch is yielded only if its CRC holds, its base offset is the one expected, its
        leader epoch is what the Raft log says for that offset, and it ends within the range.
    W2  Memory is bounded by one read and one batch; a length is compared with the range before
        anything is allocated for it.

Source: ringlog's rule for the 16 bytes of a batch that lie outside its CRC.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ringlog.storage.errors import CorruptBatch
from ringlog.storage.files import File
from ringlog.storage.record_batch import (
    HEADER_SIZE,
    MAX_BATCH_BYTES,
    BatchHeader,
    check_batch,
    peek_size,
)
from ringlog.storage.types import Buffer, LeaderEpoch, Offset

SCAN_READ_BYTES: Final = 1 << 20

EpochAt = Callable[[Offset], LeaderEpoch]
"""Leader epoch that a batch beginning at the offset must carry."""


class BrokenChain(CorruptBatch):
    """The batch at `position` of a segment fails a check; `offset` was expected there."""

    def __init__(self, text: str, *, position: int, offset: Offset) -> None:
        super().__init__(text, position=position)
        self.offset = offset


class ScannedBatch(NamedTuple):
    """One good batch. `data` is valid until the next one is asked for."""

    header: BatchHeader
    position: int
    data: memoryview


def check_at(
    window: Buffer, at: int, *, position: int, offset: Offset, epoch_at: EpochAt
) -> BatchHeader:
    """Check the batch at byte `at` of `window`, which is byte `position` of its segment.

    Raises:
        BrokenChain: it is cut short, its CRC differs, or what lies outside the CRC is not the
            base offset and leader epoch that the log expects there.
    """
    try:
        header = check_batch(window, at, max_bytes=MAX_BATCH_BYTES)
    except CorruptBatch as error:
        raise BrokenChain(str(error), position=position, offset=offset) from error
    if header.base_offset != offset:
        raise BrokenChain(
            f"the batch has base offset {header.base_offset}, expected {offset}",
            position=position,
            offset=offset,
        )
    if header.leader_epoch != epoch_at(offset):
        raise BrokenChain(
            f"the batch has leader epoch {header.leader_epoch}, the Raft log says "
            f"{epoch_at(offset)}",
            position=position,
            offset=offset,
        )
    return header


def check_room(size_bytes: int, left: int, *, position: int, offset: Offset) -> None:
    """Raise BrokenChain when a batch states more bytes than are left for it."""
    if size_bytes > left:
        raise BrokenChain(
            f"the batch states {size_bytes} bytes, {left} are left",
            position=position,
            offset=offset,
        )


def scan_batches(
    file: File,
    *,
    begin: int,
    end: int,
    first_offset: Offset,
    epoch_at: EpochAt,
    read_bytes: int = SCAN_READ_BYTES,
) -> Iterator[ScannedBatch]:
    """Yield the batches between byte `begin` (a batch edge) and byte `end` (exclusive).

    Raises:
        BrokenChain: the chain ends before `end`; `position` is the byte where.
        ReadFailed: as `File.pread`.
    """
    offset, position = first_offset, begin
    window, window_begin = memoryview(b""), begin
    while position < end:
        at = position - window_begin
        size_bytes = peek_size(window, at)
        if size_bytes is None or at + size_bytes > len(window):
            if size_bytes is not None:
                check_room(size_bytes, end - position, position=position, offset=offset)
            wanted = min(end - position, max(read_bytes, HEADER_SIZE, size_bytes or 0))
            window, window_begin, at = memoryview(file.pread(wanted, position)), position, 0
            size_bytes = peek_size(window, 0) or 0
            check_room(size_bytes, end - position, position=position, offset=offset)
            if len(window) < size_bytes:
                window = memoryview(file.pread(size_bytes, position))
        header = check_at(window, at, position=position, offset=offset, epoch_at=epoch_at)
        yield ScannedBatch(header, position, window[at : at + header.size_bytes])
        position += header.size_bytes
        offset = header.next_offset
