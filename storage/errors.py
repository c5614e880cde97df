"""What can go wrong below the broker, as types.

    StorageError
    ├── CorruptBatch          bytes that fail a check; never served, never appended
    │   ├── TooLarge          a length or a decompressed size over its bound
    │   └── BadTimestamp      a produced batch with a time no record may have
    ├── CodecMissing          a compression codec this reader does not have
    ├── OffsetOutOfRange      a read outside [log start, log end]
    ├── DamagedLog            bytes below the durable mark fail a check: one replica is lost
    ├── DamagedState          both copies of a state file fail their check
    ├── ReadFailed            the disk cannot give bytes back: one replica is lost
    ├── LogDirFailed          a write or flush failed: the broker must stop
    │   └── AccessRefused     a file cannot be opened, or is none; nothing was written to it
    ├── DiskFull              the reserve of disk space is reached; nothing was written
    ├── DirectoryInUse        another process holds the data directory
    ├── WrongDirectory        the directory belongs to another broker, cluster or format
    ├── SequenceError         an idempotent producer's batch is out of its sequence
    │   └── ProducerFenced    its producer epoch is older than one already seen
    └── FileMissing           a file that must exist does not

Owns names and texts. Every text names the cause; `hint` names the next step. Must not know
wire codes: `broker.dispatch` maps each leaf to one.
"""

from ringlog.storage.types import Offset


class StorageError(Exception):
    """Base of all storage errors. `hint` is the next step, a sentence or a command."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class CorruptBatch(StorageError):
    """Bytes that are not a valid record batch. `position` is the byte position, if known."""

    def __init__(self, text: str, *, position: int = -1, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.position = position


class TooLarge(CorruptBatch):
    """A size beyond its bound: batch, record, or what a compressed batch opens to."""


class BadTimestamp(CorruptBatch):
    """A produced batch with a negative timestamp, or one too far ahead of the broker's clock."""


class CodecMissing(StorageError):
    """A batch is compressed with a codec that this process cannot open."""


class OffsetOutOfRange(StorageError):
    """A read at an offset outside [`log_start`, `log_end`]."""

    def __init__(self, offset: Offset, log_start: Offset, log_end: Offset) -> None:
        super().__init__(
            f"offset {offset} is outside [{log_start}, {log_end}]",
            hint="seek to an offset in that range, or set auto_offset_reset",
        )
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class DamagedLog(StorageError):
    """Bytes that had been flushed fail a check.

    Attributes:
        path: the file, relative to the data directory.
        position: byte position in it where the check failed.
        first_offset: first offset that cannot be read (inclusive).
        end_offset: first offset behind the damage that may be readable (exclusive end of the
            damaged range), or the log end known from the durable mark.
    """

    def __init__(
        self, text: str, *, path: str, position: int, first_offset: Offset, end_offset: Offset
    ) -> None:
        super().__init__(
            f"{path} at byte {position}: {text}; offsets {first_offset} to {end_offset} "
            f"(exclusive) cannot be read",
            hint="ringlog log verify --repair --dry-run DATA_DIR shows what a repair would drop",
        )
        self.path = path
        self.position = position
        self.first_offset = first_offset
        self.end_offset = end_offset


class DamagedState(StorageError):
    """Both copies of a state file fail their check. `path` names it."""

    def __init__(self, text: str, *, path: str, hint: str = "") -> None:
        super().__init__(f"{path}: {text}", hint=hint)
        self.path = path


class ReadFailed(StorageError):
    """The disk cannot give bytes back. One replica is lost to it; the broker goes on."""


class LogDirFailed(StorageError):
    """A write or flush failed. What was not flushed is unknown; the broker stops and says so."""


class AccessRefused(LogDirFailed):
    """A file is no regular file, or may not be opened. Met at a start, it costs one partition."""


class DiskFull(StorageError):
    """Free space is below the reserve. Nothing was written; the append may be tried later."""


class DirectoryInUse(StorageError):
    """Another process holds the lock of the data directory."""


class WrongDirectory(StorageError):
    """The data directory is not the one asked for: other broker, cluster or format version."""


class SequenceError(StorageError):
    """A batch of an idempotent producer does not follow the last one. `expected` is next."""

    def __init__(self, text: str, *, expected: int, hint: str = "") -> None:
        super().__init__(text, hint=hint)
        self.expected = expected


class ProducerFenced(SequenceError):
    """A batch carries a producer epoch below the newest one seen for its producer id."""


class FileMissing(StorageError):
    """A file that must exist does not."""
