"""A stream cut into records at a delimiter, bytes kept, in bounded memory.

Owns the cutting. Must not know topics or clients.

Invariants:
    LN1 Joining the records with the delimiter gives the input back, plus one delimiter at the
        end where the input lacks it.
    LN2 No more is held than one chunk and one record of at most `max_record_bytes`.
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO

from ringlog.client.errors import RecordTooLarge

CHUNK_BYTES = 1 << 20


def records_of(
    stream: BinaryIO,
    delimiter: bytes,
    max_record_bytes: int,
    on_read: Callable[[int], object],
) -> Iterator[bytes]:
    """Cut `stream` at each `delimiter`; a last piece without one is a record too.

    `on_read` is told the bytes of each piece that was read.

    Raises:
        RecordTooLarge: no delimiter within `max_record_bytes`; the text gives the record's number.
    """
    rest = bytearray()
    number = 0
    while chunk := _read_some(stream):
        # Looked through once: a long record that comes in many pieces costs no more than it has.
        looked_through = max(0, len(rest) - len(delimiter) + 1)
        on_read(len(chunk))
        rest += chunk
        if rest.find(delimiter, looked_through) >= 0:
            pieces = bytes(rest).split(delimiter)
            rest = bytearray(pieces.pop())
            number += len(pieces)
            yield from pieces
        if len(rest) > max_record_bytes:
            raise RecordTooLarge(
                f"record {number + 1} of the input is longer than {max_record_bytes} bytes",
                hint="set --delimiter to what separates your records",
            )
    if rest:
        yield bytes(rest)


def _read_some(stream: BinaryIO) -> bytes:
    # `read1` hands over what a pipe holds now: a slow writer's lines are sent as they come.
    read1 = getattr(stream, "read1", None)
    data = stream.read(CHUNK_BYTES) if read1 is None else read1(CHUNK_BYTES)
    return bytes(data)
