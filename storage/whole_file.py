"""Whether the bytes of a segment are those that this partition wrote, compared once.

Owns the CRC-32C of a whole file and the memory of whether it was compared. Must not know
segments, or where the expected CRC was kept.

A batch says neither topic nor partition, so a segment of another log whose batches have the
same offsets and epochs passes every check of a batch. The CRC of a file is seeded with topic
UUID and partition: it tells.

Invariants:
    WF1 A file is compared at most once with success; whoever comes meanwhile waits for it.
    WF2 What is appended behind the expected bytes is not looked at.
"""

import threading
from typing import Final

from crc32c import crc32c

from ringlog.storage.files import File
from ringlog.storage.types import Offset

_READ_BYTES: Final = 1 << 20


def crc_of(file: File, size_bytes: int, seed: int) -> int:
    """CRC-32C of the first `size_bytes` of `file`, or of all it has if that is less."""
    crc, position = seed, 0
    while position < size_bytes:
        data = file.pread(min(_READ_BYTES, size_bytes - position), position)
        if not data:
            break
        crc = crc32c(data, crc)
        position += len(data)
    return crc


class ExpectedBytes:
    """What a file has to hold from its begin on. Any worker may ask."""

    __slots__ = ("_lock", "_passed", "crc", "next_offset", "size_bytes")

    def __init__(self, size_bytes: int, next_offset: Offset, crc: int) -> None:
        """Take what was noted when the file was whole.

        Args:
            size_bytes: how many bytes; what lies behind does not matter (WF2).
            next_offset: first offset behind them.
            crc: CRC-32C of them, seeded.
        """
        self.size_bytes = size_bytes
        self.next_offset = next_offset
        self.crc = crc
        self._passed = False
        self._lock = threading.Lock()

    def holds(self, file: File, seed: int) -> bool:
        """Whether `file` has the bytes; the first call reads them all. Raises ReadFailed."""
        with self._lock:
            self._passed = self._passed or crc_of(file, self.size_bytes, seed) == self.crc
            return self._passed
