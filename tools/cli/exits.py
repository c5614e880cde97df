"""Exit codes of `ringlog`, and the one mapping from errors to them.

Owns the numbers programs may rely on. Must not know commands.

Invariants:
    X1  An error leaves as one line on standard error, with cause and hint, and one of these
        codes; a traceback is a bug, shown only with RINGLOG_DEBUG.
"""

import enum

from ringlog.client.errors import (
    BrokerError,
    ClientError,
    CorruptRecord,
    DeliveryUnknown,
    ErrorCode,
    InvalidArgument,
    NoBrokerReachable,
    OutcomeUnknown,
    RinglogError,
)
from ringlog.storage.errors import (
    CorruptBatch,
    DamagedLog,
    DamagedState,
    DiskFull,
    LogDirFailed,
    ReadFailed,
    StorageError,
)
from ringlog.tools.cli.output import visible


class Exit(enum.IntEnum):
    """Exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    """Not found, or refused."""
    UNREACHABLE = 4
    UNKNOWN = 5
    """The outcome is unknown: it may have happened."""
    DAMAGED = 6
    INTERRUPTED = 130


_BY_TYPE: tuple[tuple[type[BaseException], Exit], ...] = (
    (InvalidArgument, Exit.USAGE),
    (NoBrokerReachable, Exit.UNREACHABLE),
    (DeliveryUnknown, Exit.UNKNOWN),
    (OutcomeUnknown, Exit.UNKNOWN),
    (CorruptRecord, Exit.DAMAGED),
    (ClientError, Exit.FAILED),
    (DamagedLog, Exit.DAMAGED),
    (DamagedState, Exit.DAMAGED),
    (CorruptBatch, Exit.DAMAGED),
    (ReadFailed, Exit.FAILED),
    (LogDirFailed, Exit.FAILED),
    (DiskFull, Exit.FAILED),
    (RinglogError, Exit.REFUSED),
    (StorageError, Exit.REFUSED),
    (FileNotFoundError, Exit.REFUSED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
)
"""First match counts; what is not here is Exit.FAILED."""

_BY_CODE = {
    ErrorCode.PARTITION_DAMAGED: Exit.DAMAGED,
    ErrorCode.REQUEST_TIMED_OUT: Exit.UNKNOWN,
    ErrorCode.STORAGE_FAILED: Exit.UNKNOWN,
    ErrorCode.INTERNAL: Exit.FAILED,
}
"""What a broker answered, where it is more than "refused" or "not now"."""


def exit_of(error: BaseException) -> Exit:
    """The exit code for an error that ended a command."""
    if isinstance(error, BrokerError):
        usual = Exit.FAILED if error.retriable else Exit.REFUSED
        return _BY_CODE.get(error.error_code, usual)
    for kind, code in _BY_TYPE:
        if isinstance(error, kind):
            return code
    return Exit.FAILED


def one_line(error: BaseException) -> str:
    """Cause and hint of an error in one line that is safe for a terminal."""
    match error:
        case RinglogError():
            cause, hint = error.cause, error.hint
        case StorageError():
            cause, hint = str(error), error.hint
        case OSError():
            cause, hint = f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), ""
        case _:
            cause, hint = f"{type(error).__name__}: {error}", "RINGLOG_DEBUG=1 shows where"
    text = f"{cause}; {hint}" if hint else cause
    return visible(" ".join(text.split()))
