"""A decoder of the records section that is too simple to be wrong: one field after another.

It knows no fast path and no position arithmetic, only "take this many bytes". The property
tests hold the real decoder against it, on good sections and on damaged ones.
"""

from ringlog.storage.errors import CorruptBatch
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.record_codec import Record
from ringlog.storage.types import Offset


class Reader:
    """Takes bytes off the front of `data`."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data):
            raise CorruptBatch("too short")
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def integer(self, bits: int) -> int:
        groups: list[int] = []
        while not groups or groups[-1] & 0x80:
            groups.append(self.take(1)[0])
            if len(groups) > (bits + 6) // 7:
                raise CorruptBatch("too long")
        raw = sum((group & 0x7F) << 7 * place for place, group in enumerate(groups))
        if raw >= 1 << bits:
            raise CorruptBatch("too wide")
        return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2

    def field(self) -> bytes | None:
        length = self.integer(32)
        return None if length == -1 else self.take(length)


def read_record(reader: Reader, header: BatchHeader) -> Record:
    record = Reader(reader.take(reader.integer(32)))
    if record.take(1) != b"\0":
        raise CorruptBatch("attributes")
    timestamp = header.base_timestamp + record.integer(64)
    if not -(2**63) <= timestamp < 2**63:
        raise CorruptBatch("timestamp")
    delta = record.integer(32)
    key = record.field()
    value = record.field()
    headers = []
    for _ in range(_count(record.integer(32))):
        name, content = record.field(), record.field()
        if name is None:
            raise CorruptBatch("no name")
        try:
            headers.append((name.decode(), content))
        except UnicodeDecodeError as error:
            raise CorruptBatch("not UTF-8") from error
    if record.data:
        raise CorruptBatch("rest in record")
    return Record(Offset(header.base_offset + delta), timestamp, key, value, tuple(headers))


def _count(count: int) -> int:
    if count < 0:
        raise CorruptBatch("negative count")
    return count


def decode_plainly(section: bytes, header: BatchHeader) -> list[Record]:
    """The records of an uncompressed section, or CorruptBatch."""
    reader = Reader(section)
    records = [read_record(reader, header) for _ in range(header.record_count)]
    offsets = [record.offset for record in records]
    if reader.data or sorted(set(offsets)) != offsets:
        raise CorruptBatch("rest, or offsets")
    if offsets[0] < header.base_offset or offsets[-1] >= header.next_offset:
        raise CorruptBatch("offset outside")
    return records
