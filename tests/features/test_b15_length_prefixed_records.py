"""B15: a record in the file is its length, 4 bytes big-endian, and a body.

Ours: a record batch, whose bytes 8 to 11 are the length of what follows; in the batch each
record has its length as well. So any reader can step from one to the next, and a batch cut
short is seen.
"""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.features.partition_on_disk import PartitionOnDisk

READ_SEGMENT = Path(__file__).parents[2] / "tools/read_segment"


def filled(data_dir: Path) -> bytes:
    partition = PartitionOnDisk(data_dir)
    partition.append([b"one", b"two"])
    partition.append([b"3" * 5000] * 3, compression="lz4")
    partition.append([None])
    partition.close()
    return (partition.directory / f"{0:020}.log").read_bytes()


def test_b15_big_endian_lengths_lead_from_batch_to_batch(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    position, offsets = 0, []
    while position < len(data):
        offset, length = struct.unpack_from(">qi", data, position)
        offsets.append(offset)
        position += 12 + length
    assert offsets == [0, 2, 5]
    assert position == len(data)


def test_b15_a_program_of_sixty_lines_reads_the_file(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    done = subprocess.run(
        [sys.executable, "-I", "-S", READ_SEGMENT, tmp_path / f"data/orders-0/{0:020}.log"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [row.split() for row in done.stdout.splitlines()]
    assert [int(row[0]) for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row[3] for row in rows] == ["b'one'", "b'two'", *[f"b'{'3' * 5000}'"] * 3, "None"]


@pytest.mark.parametrize("lost_bytes", [1, 20, 60])
def test_b15_a_body_shorter_than_its_length_is_never_a_record(
    tmp_path: Path, lost_bytes: int
) -> None:
    partition = PartitionOnDisk(tmp_path / "data")
    partition.append([b"whole"])
    segment = partition.directory / f"{0:020}.log"
    whole = segment.read_bytes()
    # a batch that a crash cut off while it was written, behind all that was flushed
    with segment.open("ab") as file:
        file.write(whole[:-lost_bytes])
    again = PartitionOnDisk(tmp_path / "data")
    assert [record.value for record in again.read(0, 1 << 20)] == [b"whole"]
    assert segment.read_bytes() == whole
    assert again.append([b"next"]) == 1
    again.close()
