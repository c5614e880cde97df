"""B14: a write-ahead log in a data directory, in segment files named by partition and offset.

Theirs: `WriteAheadLog(data_dir)`, `partition-{partition}-{offset}.log`. Ours:
`<topic>-<partition>/<20-digit offset>.log` below the data directory.
"""

from pathlib import Path

from ringlog.storage.log_config import LogConfig
from tests.features.partition_on_disk import PartitionOnDisk

SMALL = LogConfig(retention_ms=-1, segment_size_bytes=2_000)


def test_b14_segment_files_are_named_by_partition_and_first_offset(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data", partition=7, config=SMALL)
    offsets = [partition.append([b"x" * 900]) for _ in range(5)]
    partition.close()
    assert offsets == [0, 1, 2, 3, 4]
    assert partition.directory == tmp_path / "data/orders-7"
    assert partition.segments() == [f"{offset:020}.log" for offset in (0, 2, 4)]


def test_b14_the_name_of_a_segment_finds_an_offset_without_any_index(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data", config=SMALL)
    for number in range(9):
        partition.append([b"%d" % number * 800])
    partition.close()
    for index in (*partition.directory.glob("*.index"), *partition.directory.glob("*.timeindex")):
        index.unlink()
    again = PartitionOnDisk(tmp_path / "data", config=SMALL)
    assert [again.read(offset, 1)[0].value for offset in range(9)] == [
        b"%d" % number * 800 for number in range(9)
    ]
    again.close()


def test_b14_what_was_appended_is_there_after_a_stop_and_after_a_kill(tmp_path: Path) -> None:
    first = PartitionOnDisk(tmp_path / "data", config=SMALL)
    first.append([b"before the stop"])
    first.close()
    second = PartitionOnDisk(tmp_path / "data", config=SMALL)
    second.append([b"before the kill"])
    # killed: nobody closes anything
    third = PartitionOnDisk(tmp_path / "data", config=SMALL)
    third.append([b"after it"])
    values = [record.value for record in third.read(0, 1 << 20)]
    assert values == [b"before the stop", b"before the kill", b"after it"]
    third.close()
