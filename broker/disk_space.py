"""Whether there is room for users' batches: the reserve of free space.

Owns the estimate between two measurements. Must not know files: measurements come in.

Invariants:
    V1  The estimate errs low: bytes appended since a measurement *began*, and those that were
        not written when it began, are taken off it.
"""

from ringlog.client.errors import DiskFull


class DiskSpace:
    """One per data directory. Sizes in bytes."""

    __slots__ = ("_appended_bytes", "_free_bytes", "reserve_bytes")

    def __init__(self, reserve_bytes: int) -> None:
        self.reserve_bytes = reserve_bytes
        self._free_bytes: int | None = None
        self._appended_bytes = 0

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
