"""Bodies of the own entries that replication writes: their bytes and their checks.

Owns what a LOG_START body says. A term opening has an empty body; those of a configuration are
in `storage.voters`, because `start-state` repeats them. Must not know where entries are kept.

    LOG_START, big-endian:  | format 1 | log start offset 8 |

Invariants:
    N1  A body that does not decode is a newer format (its CRC was right), never another offset.
"""

import struct

from ringlog.storage.errors import WrongDirectory
from ringlog.storage.types import Offset

_LOG_START = struct.Struct(">Bq")
_FORMAT = 1


def encode_log_start(offset: Offset) -> bytes:
    """Return the body of a move of the log start to `offset` (first readable, inclusive)."""
    return _LOG_START.pack(_FORMAT, offset)


def decode_log_start(body: bytes) -> Offset:
    """Return the offset that a LOG_START entry moves to. Raises WrongDirectory, see N1."""
    if len(body) != _LOG_START.size or body[0] != _FORMAT:
        raise WrongDirectory(
            f"a log start entry has {len(body)} bytes of format {body[0] if body else 'none'}; "
            f"this version reads {_LOG_START.size} bytes of format {_FORMAT}",
            hint="start the version of ringlog that wrote this data directory, or a newer one",
        )
    return Offset(_LOG_START.unpack(body)[1])
