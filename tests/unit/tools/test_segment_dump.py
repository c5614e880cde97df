"""Batches and records of files, shown; damage named by its byte."""

import json
from pathlib import Path

import msgspec
import pytest

from ringlog.storage.errors import CorruptBatch, FileMissing, StorageError
from ringlog.storage.record_batch import HEADER_SIZE, assign
from ringlog.storage.record_codec import MAX_TIMESTAMP, Record, encode_batch
from ringlog.storage.types import LeaderEpoch, Offset
from ringlog.tools.cli import segment_dump
from tests.unit.tools.data_dir_on_disk import flip, stopped

NAME = "00000000000000000000.log"


def write(path: Path, *batches: bytes, first: int = 0) -> Path:
    """Batches as a segment, offsets assigned."""
    offset, data = first, b""
    for batch in batches:
        data += assign(Offset(offset), LeaderEpoch(7), len(batch)) + batch[16:]
        offset += int.from_bytes(batch[23:27], "big") + 1
    path.write_bytes(data)
    return path


def test_every_batch_with_its_place(tmp_path: Path) -> None:
    first = encode_batch([b"a", b"b"], timestamps=5)
    second = encode_batch([b"c" * 1000], timestamps=6, compression="lz4")
    path = write(tmp_path / NAME, first, second)
    batches = list(segment_dump.batches_of(path))
    assert [batch.position for batch in batches] == [0, len(first)]
    row = json.loads(segment_dump.batch_json(path, batches[1]))
    expected = {"file": str(path), "position": len(first), "size_bytes": len(second)}
    expected |= {"base_offset": 2, "next_offset": 3, "leader_epoch": 7, "record_count": 1}
    expected |= {"codec": "lz4", "max_timestamp": 6, "producer_id": -1}
    assert row.items() >= expected.items()
    line = segment_dump.batch_line(batches[1]).split()
    size = str(len(second))
    assert line == [
        "2",
        "3",
        str(len(first)),
        size,
        "1",
        "7",
        "lz4",
        "1970-01-01T00:00:00.006Z",
        "-",
    ]


def test_records_one_per_line_with_control_codes_spelled_out(tmp_path: Path) -> None:
    batch = encode_batch(
        [b"a\tb\nc\x1b[2J", None, b""],
        timestamps=[0, -1, MAX_TIMESTAMP],
        keys=[b"k", None, b""],
        headers=[[("h\n", b"\xff")], [], []],
    )
    (found,) = segment_dump.batches_of(write(tmp_path / NAME, batch))
    lines = [segment_dump.record_line(record) for record in segment_dump.records_of_batch(found)]
    assert lines == [
        "0\t1970-01-01T00:00:00.000Z\tk\ta\\tb\\nc\\x1b[2J\th\\n=\\xff",
        "1\t-\t-\t-",
        f"2\t{MAX_TIMESTAMP} ms\t\t",
    ]


def test_a_record_as_json_has_its_file_and_offset(tmp_path: Path) -> None:
    record = Record(Offset(3), 9, b"k", b"\xff", ())
    row = json.loads(segment_dump.record_json(tmp_path, record))
    assert row == {"file": str(tmp_path), "offset": 3, "timestamp": 9, "key": "k",
                   "value_base64": "/w==", "headers": []}  # fmt: skip


def test_every_flip_and_every_cut_ends_the_chain_at_its_batch(tmp_path: Path) -> None:
    batch = encode_batch([b"a", b"b"], timestamps=5)
    path = write(tmp_path / NAME, batch, batch, batch)
    whole, size = path.read_bytes(), len(batch)
    outside_crc = range(12, 16)  # the leader epoch: the Raft log knows it, a lone file does not
    for position in range(size, 2 * size):
        if position - size in outside_crc:
            continue
        path.write_bytes(whole)
        flip(path, position)
        assert broken_at(path) == (1, size), position
    for length in range(3 * size):
        path.write_bytes(whole[:length])
        good = length // size
        expected = (good, good * size) if length % size else (good, None)
        assert broken_at(path) == expected, length


def broken_at(path: Path) -> tuple[int, int | None]:
    """Good batches, and the byte at which the chain breaks, if it does."""
    count = 0
    try:
        for _ in segment_dump.batches_of(path):
            count += 1
    except CorruptBatch as error:
        return count, error.position
    return count, None


def test_a_batch_that_states_more_than_the_file_has_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / NAME, encode_batch([b"a"], timestamps=5))
    data = bytearray(path.read_bytes())
    data[8:12] = (2**31 - 20).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(CorruptBatch, match=r"states \d+ bytes, \d+ are left"):
        list(segment_dump.batches_of(path))


def test_the_name_of_a_segment_says_its_first_offset_and_another_name_nothing(
    tmp_path: Path,
) -> None:
    batch = encode_batch([b"a"], timestamps=5)
    with pytest.raises(CorruptBatch, match="base offset 5, expected 0"):
        list(segment_dump.batches_of(write(tmp_path / NAME, batch, first=5)))
    copy = write(tmp_path / f"{NAME}.damaged-99", batch, first=5)
    assert len(list(segment_dump.batches_of(copy))) == 1


def test_records_that_cannot_be_opened_are_named_with_their_batch(tmp_path: Path) -> None:
    (batch,) = segment_dump.batches_of(write(tmp_path / NAME, encode_batch([b"a"], timestamps=5)))
    broken = batch._replace(data=batch.data[:HEADER_SIZE] + bytes(len(batch.data) - HEADER_SIZE))
    with pytest.raises(CorruptBatch) as caught:
        segment_dump.records_of_batch(broken._replace(position=123))
    assert caught.value.position == 123
    snappy = msgspec.structs.replace(batch.header, attributes=2)
    with pytest.raises(StorageError, match=r"the batch at byte 0: .*snappy"):
        segment_dump.records_of_batch(batch._replace(header=snappy))


def test_segments_of_a_file_a_partition_and_a_data_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    partition = stopped(data_dir, partitions=2)
    segments = segment_dump.segment_files(partition)
    assert segments == sorted(partition.glob("*.log"))
    assert len(segments) > 1
    assert segment_dump.segment_files(segments[0]) == segments[:1]
    both = segment_dump.segment_files(data_dir)
    assert both == segments + sorted((data_dir / "orders-1").glob("*.log"))


def test_no_such_path_and_no_segment_are_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        segment_dump.segment_files(tmp_path / "nowhere")
    with pytest.raises(FileMissing, match="holds no segment"):
        segment_dump.segment_files(tmp_path)
