"""B16: `append(partition, message)` returns the offset. Ours: of the batch's first record."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.features.partition_on_disk import PartitionOnDisk


def test_b16_offsets_count_records_from_zero_without_gaps(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "data")
    assert partition.append([b"a"]) == 0
    assert partition.append([b"b", b"c", b"d"]) == 1
    assert partition.append([b"e"] * 100, compression="lz4") == 4
    assert partition.append([b"f"]) == 104
    assert [record.offset for record in partition.read(0, 1 << 20)] == list(range(105))
    partition.close()


def test_b16_each_partition_counts_for_itself(tmp_path: Path) -> None:
    first = PartitionOnDisk(tmp_path / "data", partition=0)
    assert [first.append([b"a"]) for _ in range(3)] == [0, 1, 2]
    first.close()
    second = PartitionOnDisk(tmp_path / "data", partition=1)
    assert second.append([b"b"]) == 0
    second.close()


def test_b16_a_restart_makes_no_gap_and_uses_no_offset_twice(tmp_path: Path) -> None:
    expected = 0
    for in_order in (True, False, True, False):
        partition = PartitionOnDisk(tmp_path / "data")
        assert partition.append([b"x", b"y"]) == expected
        expected += 2
        if in_order:
            partition.close()


@settings(max_examples=8)
@given(st.lists(st.integers(1, 9), max_size=12))
def test_b16_the_record_at_the_offset_returned_is_the_one_appended(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    partition = PartitionOnDisk(tmp_path_factory.mktemp("b16") / "data")
    values = [[b"%d.%d" % (batch, n) for n in range(size)] for batch, size in enumerate(sizes)]
    offsets = [partition.append(batch) for batch in values]
    for offset, batch in zip(offsets, values, strict=True):
        assert partition.read(offset, 1)[0].value == batch[0]
    partition.close()
