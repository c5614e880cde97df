"""The batches and records of segment files, as lines for people or JSON.

Owns finding the files below a path and walking one of them. Must not know a broker: it reads
files that anybody may have copied anywhere, and writes nothing.

Invariants:
    SD1 A batch is shown only after its CRC and its place in the chain of offsets were checked.
    SD2 Memory is bounded by one batch; a length is compared with the file before it is read.
    SD3 What the bytes say reaches the output escaped or as JSON, one line each.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ringlog.storage.compression import CODEC_NAMES
from ringlog.storage.errors import CorruptBatch, FileMissing, StorageError
from ringlog.storage.record_batch import HEADER_SIZE, BatchHeader, check_batch, read_header
from ringlog.storage.record_codec import Record, decode_records
from ringlog.storage.segment import segment_base
from ringlog.storage.types import NO_PRODUCER_ID, NO_TIMESTAMP
from ringlog.tools.cli.json_records import json_record
from ringlog.tools.cli.output import json_line, visible_bytes

BATCH_TITLE = (
    f"{'offset':>12} {'next':>12} {'byte':>12} {'size':>10} {'records':>8} {'epoch':>6} codec "
    f"newest time              producer, epoch, sequence"
)


class Batch(NamedTuple):
    """One good batch of a file. `position` is the byte at which it begins."""

    position: int
    header: BatchHeader
    data: bytes


def segment_files(path: Path) -> list[Path]:
    """A file itself, or the segments below a partition's or a data directory, in order.

    Raises:
        FileNotFoundError: there is no such path.
        FileMissing: a directory without a segment.
    """
    if not path.is_dir():
        path.stat()
        return [path]
    found = _segments_in(path)
    for directory in sorted(path.iterdir()):
        if directory.is_dir():
            found += _segments_in(directory)
    if not found:
        raise FileMissing(
            f"{path} holds no segment (*.log)",
            hint="name a segment, a partition's directory or a data directory",
        )
    return found


def _segments_in(directory: Path) -> list[Path]:
    return sorted(file for file in directory.iterdir() if segment_base(file.name) is not None)


def batches_of(path: Path) -> Iterator[Batch]:
    """Yield the batches of one file from its begin on.

    Raises:
        CorruptBatch: the chain of good batches ends before the file; `position` is where.
    """
    expected = segment_base(path.name)
    with path.open("rb") as file:
        left, position = path.stat().st_size, 0
        while left > 0:
            try:
                header = read_header(head := file.read(HEADER_SIZE))
                if header.size_bytes > left:
                    text = f"the batch states {header.size_bytes} bytes, {left} are left"
                    raise CorruptBatch(text)
                data = head + file.read(header.size_bytes - HEADER_SIZE)
                check_batch(data, max_bytes=len(data))
            except CorruptBatch as error:
                raise CorruptBatch(str(error), position=position) from error
            if expected is not None and header.base_offset != expected:
                raise CorruptBatch(
                    f"the batch has base offset {header.base_offset}, expected {expected}",
                    position=position,
                )
            yield Batch(position, header, data)
            expected = header.next_offset
            position += header.size_bytes
            left -= header.size_bytes


def batch_line(batch: Batch) -> str:
    """A row below `BATCH_TITLE`."""
    header = batch.header
    producer = "-"
    if header.producer_id != NO_PRODUCER_ID:
        producer = f"{header.producer_id}, {header.producer_epoch}, {header.base_sequence}"
    return (
        f"{header.base_offset:>12} {header.next_offset:>12} {batch.position:>12} "
        f"{header.size_bytes:>10} {header.record_count:>8} {header.leader_epoch:>6} "
        f"{CODEC_NAMES[header.codec]:<5} {_time(header.max_timestamp):<24} {producer}"
    )


def batch_json(path: Path, batch: Batch) -> str:
    """Everything the header says, and where it stands."""
    header = batch.header
    return json.dumps(
        {
            "file": str(path),
            "position": batch.position,
            "size_bytes": header.size_bytes,
            "base_offset": header.base_offset,
            "next_offset": header.next_offset,
            "leader_epoch": header.leader_epoch,
            "record_count": header.record_count,
            "codec": CODEC_NAMES[header.codec],
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "crc": header.crc,
        }
    )


def records_of_batch(batch: Batch) -> list[Record]:
    """Open a batch. Raises StorageError with the byte at which the batch begins."""
    try:
        return decode_records(batch.data, 0, batch.header)
    except CorruptBatch as error:
        raise CorruptBatch(str(error), position=batch.position) from error
    except StorageError as error:
        raise StorageError(
            f"the batch at byte {batch.position}: {error}", hint=error.hint
        ) from error


def record_line(record: Record) -> str:
    """Offset, time, key, value and headers, parted by tabs; `-` for a key or value not there."""
    fields = [str(record.offset), _time(record.timestamp), _text(record.key), _text(record.value)]
    fields += [f"{_text(name.encode())}={_text(content)}" for name, content in record.headers]
    return "\t".join(fields)


def record_json(path: Path, record: Record) -> str:
    """The record and its place."""
    content = json_record(record.timestamp, record.key, record.value, record.headers)
    row = {"file": str(path), "offset": record.offset, **content}
    return json_line(row).rstrip()


def _text(data: bytes | None) -> str:
    return "-" if data is None else visible_bytes(data).decode().replace("\t", "\\t")


def _time(timestamp_ms: int) -> str:
    if timestamp_ms == NO_TIMESTAMP:
        return "-"
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
