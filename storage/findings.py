"""What reading a whole partition can find wrong, as values.

Owns the words of `storage.verify`; `storage.repair` and the command line read them. Must not
know how anything is found.

Invariants:
    FI1 Only DAMAGE means that something acknowledged is lost or changed.
"""

import enum
from typing import Final

import msgspec

from ringlog.storage.durable_marks import Mark
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.types import LOG_BEGIN, Offset, Position

COPY_INFIX: Final = ".damaged-"
"""In the names of files that a repair has put beside those it cut."""


class Severity(enum.Enum):
    """What a finding means."""

    DAMAGE = "damage"
    """Bytes that were flushed are lost or changed."""
    TORN_TAIL = "torn tail"
    """Bytes above the durable mark: the next start cuts them; nothing acknowledged is lost."""
    HARMLESS = "harmless"
    """A cache, a leftover or a second copy: the next start makes it again or removes it."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    severity: Severity
    path: str
    """File, relative to the partition's directory."""
    text: str
    position: int = 0
    """Byte in the file where it begins."""
    first_offset: Offset = Offset(0)
    """First offset that it costs (inclusive)."""
    end_offset: Offset = Offset(0)
    """End of the offsets that it costs (exclusive); equal to the first one when it costs none."""


class PartitionVerdict(msgspec.Struct):
    """What reading a whole partition gave."""

    path: str
    findings: list[Finding]
    identity: PartitionIdentity | None = None
    log_start: Offset = Offset(0)
    end: Position = LOG_BEGIN
    """Where the chain of good batches and own entries that begins at the base ends."""
    mark: Mark | None = None
    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0
    """Of all good batches."""

    @property
    def is_damaged(self) -> bool:
        """Whether flushed bytes are lost."""
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)

    def add(
        self,
        severity: Severity,
        path: str,
        text: str,
        *,
        position: int = 0,
        first_offset: Offset = LOG_BEGIN.offset,
        end_offset: Offset = LOG_BEGIN.offset,
    ) -> None:
        """Add a finding."""
        self.findings.append(Finding(severity, path, text, position, first_offset, end_offset))
