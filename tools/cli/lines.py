"""A stream cut into records at a delimiter, bytes kept, in bounded memory.

Owns the cutting. Must not know topics or clients.

Invariants:
    LN1 Joining the records with the delimiter gives the input back, plus one delimiter at the
        end where the input lacks it.
    LN2 No more is held than one chunk and one record of at most `max_record_bytes`.
"""

from collections.abc import Iterator
from typing import BinaryIO

from ringlog.client.errors import RecordTooLarge

CHUNK_BYTES = 1 << 20


def records_of(stream: BinaryIO, delimiter: bytes, max_record_bytes: int) -> Iterator[bytes]:
    """Cut `stream` at each `delimiter`; a last piece without one is a record too.

    Raises:
        RecordTooLarge: no delimiter within `max_record_bytes`; the text gives the record's number.
    """
    rest = b""
    number = 0
    while chunk := _read_some(stream):
        pieces = (rest + chunk).split(delimiter)
        rest = pieces.pop()
        number += len(pieces)
        yield from pieces
        if len(rest) > max_record_bytes:
            raise RecordTooLarge(
                f"record {number + 1} of the input is longer than {max_record_bytes} bytes",
                hint="set --delimiter to what separates your records",
            )
    if rest:
        yield rest


def _read_some(stream: BinaryIO) -> bytes:
    # `read1` hands over what a pipe holds now: a slow writer's lines are sent as they come.
    read1 = getattr(stream, "read1", None)
    data = stream.read(CHUNK_BYTES) if read1 is None else read1(CHUNK_BYTES)
    return bytes(data)
