"""`tools/read_segment` against our codec: the documented format is the one we write."""

import ast
import random
import subprocess
import sys
from pathlib import Path

import crc32c
import pytest

from ringlog.storage.record_codec import Record, decode_records, encode_batch
from ringlog.storage.types import NO_TIMESTAMP

SCRIPT = Path(__file__).parents[3] / "tools/read_segment"


def read_segment(*files: Path) -> subprocess.CompletedProcess[str]:
    # isolated and without site-packages: the standard library must do
    command = [sys.executable, "-I", "-S", str(SCRIPT), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def line(record: Record) -> str:
    headers = [(name.encode(), value) for name, value in record.headers]
    return f"{record.offset} {record.timestamp} {record.key!r} {record.value!r} {headers}"


def batches() -> list[bytes]:
    rng = random.Random(7)
    noise = rng.randbytes(600_000)
    return [
        encode_batch([b"one", None, b""], keys=[b"k", None, b""], timestamps=[5, 3, 9]),
        encode_batch(
            [b"x" * 300],
            headers=[[("trace", b"\x00\xff"), ("empty", None), ("trace", b"")]],
            timestamps=1_700_000_000_000,
            base_offset=3,
            leader_epoch=8,
            producer_id=2**62,
            producer_epoch=1,
            base_sequence=2**31 - 1,
        ),
        encode_batch(
            [b"a" * n for n in (1, 14, 15, 16, 270, 271, 5000)], compression="lz4", base_offset=4
        ),
        # blocks that shrink and blocks that are stored as they are
        encode_batch([bytes(200_000), noise, b"abc" * 90_000], compression="lz4", base_offset=11),
        encode_batch(
            [b"%d" % rng.randrange(10 ** rng.randrange(1, 9)) for _ in range(3000)],
            timestamps=[rng.randrange(10**12) for _ in range(3000)],
            compression="lz4",
            base_offset=14,
        ),
        encode_batch([b"late"], timestamps=NO_TIMESTAMP, base_offset=3014),
    ]


def test_it_prints_what_our_codec_reads(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(b"".join(batches()))
    expected = [line(record) for batch in batches() for record in decode_records(batch)]
    done = read_segment(file)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.splitlines() == expected
    assert len(expected) == 3015


@pytest.mark.parametrize("place", [8, 16, 17, 21, 60, 70, 90])
def test_a_flipped_byte_is_named_with_its_place(tmp_path: Path, place: int) -> None:
    good, bad = batches()[0], bytearray(batches()[1])
    bad[place] ^= 4
    file = tmp_path / "flipped.log"
    file.write_bytes(good + bad)
    done = read_segment(file)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3
    assert f"{file}: damaged" in done.stderr
    assert f"before byte {len(good + bad)}" in done.stderr


def test_a_torn_tail_is_damage_and_not_an_end(tmp_path: Path) -> None:
    file = tmp_path / "torn.log"
    for size in (1, 11, 12, 60, 61, 62, len(batches()[0]) - 1):
        file.write_bytes(batches()[0][:size])
        done = read_segment(file)
        assert (done.returncode, done.stdout) == (1, "")
        assert "damaged" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("codec", [2, 4, 7])
def test_a_codec_it_does_not_read_is_no_damage(tmp_path: Path, codec: int) -> None:
    batch = bytearray(batches()[0])
    batch[22] = codec
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    file = tmp_path / "codec.log"
    file.write_bytes(batch)
    done = read_segment(file)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"codec {codec} is not read here" in done.stderr
    assert "damaged" not in done.stderr


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.log", tmp_path):
        done = read_segment(path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert str(path) in done.stderr


def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path) -> None:
    file = tmp_path / "many.log"
    file.write_bytes(b"".join(batches()))
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(SCRIPT), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == b""


def test_without_a_file_it_says_what_it_is() -> None:
    done = read_segment()
    assert done.returncode == 1
    assert "Usage: read_segment FILE" in done.stderr


def test_it_stays_short_and_needs_only_the_standard_library() -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 60
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    assert names <= sys.stdlib_module_names
