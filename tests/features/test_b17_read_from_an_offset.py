"""B17: `read(partition, offset, max_bytes=1048576)` returns records from the offset on.

Ours returns whole batches, at least one, so that a reader always goes on; a reader drops what
lies before its offset. Reading takes nothing away.
"""

from pathlib import Path

import pytest

from ringlog.storage.errors import DamagedLog, OffsetOutOfRange
from ringlog.storage.log_config import LogConfig
from tests.features.partition_on_disk import PartitionOnDisk

MAX_BYTES = 1_048_576
SMALL = LogConfig(retention_ms=-1, segment_size_bytes=8_000)


def test_b17_reads_begin_at_the_offset_also_inside_a_batch(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data")
    partition.append([b"%d" % n for n in range(10)])
    partition.append([b"%d" % n for n in range(10, 20)], compression="lz4")
    for offset in range(20):
        values = [record.value for record in partition.read(offset, MAX_BYTES)]
        assert values == [b"%d" % n for n in range(offset, 20)]
    partition.close()


def test_b17_max_bytes_bounds_a_read_but_a_larger_batch_still_comes(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data")
    for _ in range(30):
        partition.append([b"x" * 100_000])
    partition.append([b"y" * 3_000_000])
    first = partition.log.read(partition.log.log_start, MAX_BYTES, end=partition.log.end.offset)
    assert first is not None
    assert MAX_BYTES - 100_200 < len(first.data) <= MAX_BYTES
    assert first.next_offset == 10
    assert [len(record.value or b"") for record in partition.read(30, MAX_BYTES)] == [3_000_000]
    partition.close()


def test_b17_a_reader_that_goes_on_sees_every_record_once(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data", config=SMALL)
    for number in range(40):
        partition.append([b"%d" % number * 300] * (1 + number % 3))
    for max_bytes in (1, 1000, 5000, MAX_BYTES):
        offset, seen = 0, []
        while records := partition.read(offset, max_bytes):
            seen += [record.offset for record in records]
            offset = records[-1].offset + 1
        assert seen == list(range(partition.log.end.offset))
    assert len(partition.segments()) > 3
    partition.close()


def test_b17_at_the_end_there_is_nothing_and_beyond_it_is_an_error(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data")
    partition.append([b"only"])
    assert partition.read(1, MAX_BYTES) == []
    with pytest.raises(OffsetOutOfRange, match="offset 2 is outside"):
        partition.read(2, MAX_BYTES)
    with pytest.raises(OffsetOutOfRange):
        partition.read(-1, MAX_BYTES)
    partition.close()


def test_b17_a_flipped_byte_is_told_and_never_served(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data")
    partition.append([b"good"])
    partition.append([b"bad"])
    segment = partition.directory / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    assert [record.value for record in partition.read(0, 1)] == [b"good"]
    with pytest.raises(DamagedLog, match="offsets 1 to 2"):
        partition.read(1, MAX_BYTES)
