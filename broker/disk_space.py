"""Whether there is room for users' batches: the reserve of free space.

Owns the estimate between two measurements. Must not know files: measurements come in.

Invariants:
    V1  The estimate errs low: bytes appended since a measurement *began*, and those that were
        not written when it began, are taken off it.
"""

from ringlog.client.errors import DiskFull

WARN_EVERY_MS = 30_000
"""How often a full disk is logged, however many requests it costs."""

NEW_PARTITION_BYTES = 64 * 1024
"""Space that the files of one new partition take, with room for its first job."""


class DiskSpace:
    """One per data directory. Sizes in bytes."""

    __slots__ = ("_appended_bytes", "_free_bytes", "_warn_from_ms", "reserve_bytes")

    def __init__(self, reserve_bytes: int) -> None:
        self.reserve_bytes = reserve_bytes
        self._free_bytes: int | None = None
        self._appended_bytes = 0
        self._warn_from_ms = 0

    def is_warning_due(self, now_ms: int) -> bool:
        """Whether a full disk should be logged now; True at most every `WARN_EVERY_MS`.

        `now_ms` is monotonic.
        """
        if now_ms < self._warn_from_ms:
            return False
        self._warn_from_ms = now_ms + WARN_EVERY_MS
        return True

    @property
    def free_bytes(self) -> int:
        """Free space by estimate; 0 before the first measurement."""
        return max(0, (self._free_bytes or 0) - self._appended_bytes)

    def begin_measurement(self, unstored_bytes: int) -> int:
        """Note that a measurement begins; returns the token that `measured` takes.

        `unstored_bytes` have been appended and may not have been written yet.
        """
        return self._appended_bytes - unstored_bytes

    def measured(self, free_bytes: int, token: int) -> None:
        """A measurement that began with `token` found `free_bytes`."""
        self._free_bytes = free_bytes
        self._appended_bytes -= token

    def check(self, size_bytes: int) -> None:
        """Let a batch of `size_bytes` pass. Raises DiskFull; unknown space passes."""
        if self._free_bytes is None:
            return
        left = self._free_bytes - self._appended_bytes - size_bytes
        if left < self.reserve_bytes:
            raise DiskFull(
                f"about {self.free_bytes} bytes are free in the broker's data directory, and "
                f"disk_reserve_bytes keeps {self.reserve_bytes} of them",
                hint="free some space, lower retention.ms or retention.bytes, or lower "
                "disk_reserve_bytes",
            )

    def appended(self, size_bytes: int) -> None:
        """A batch of `size_bytes` was appended."""
        self._appended_bytes += size_bytes
