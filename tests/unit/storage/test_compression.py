"""Bounded decompression: bombs, damaged frames, and what is left uncompressed."""

import contextlib
import gzip
import random
import struct
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pytest

from ringlog.storage.compression import (
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    RATIO_FREE_BYTES,
    open_compressed,
    opened_limit_bytes,
    shrink,
)
from ringlog.storage.errors import CodecMissing, CorruptBatch, TooLarge

MIB = 1024 * 1024
TEXT = b"the quick brown fox jumps over the lazy dog. " * 4000
END_MARK = b"\0\0\0\0"
EMPTY_STORED_BLOCK = struct.pack("<I", 0x80000000)
EMPTY_PACKED_BLOCK = struct.pack("<I", 1) + b"\0"


def frame(data: bytes, *, sized: bool = False, linked: bool = False, summed: bool = False) -> bytes:
    return lz4.frame.compress(data, store_size=sized, block_linked=linked, content_checksum=summed)


def opened(
    data: bytes, codec: int = CODEC_LZ4, max_bytes: int = MIB, max_ratio: int = 100
) -> bytes:
    return open_compressed(codec, data, max_bytes=max_bytes, max_ratio=max_ratio)


def test_what_is_compressed_opens_again() -> None:
    packed = shrink(TEXT)
    assert packed is not None
    assert len(packed) < len(TEXT) // 20
    assert opened(packed) == TEXT


def test_frames_have_independent_blocks_and_no_checksum_or_size() -> None:
    packed = shrink(TEXT)
    assert packed is not None
    info = lz4.frame.get_frame_info(packed)
    assert (info["block_linked"], info["content_checksum"], info["content_size"]) == (
        False,
        False,
        0,
    )


def test_noise_is_left_uncompressed() -> None:
    assert shrink(random.Random(1).randbytes(5000)) is None
    assert shrink(b"") is None


def test_what_a_reader_would_refuse_as_a_bomb_is_left_uncompressed() -> None:
    assert shrink(bytes(RATIO_FREE_BYTES)) is not None
    assert shrink(bytes(3 * RATIO_FREE_BYTES)) is None


@pytest.mark.parametrize("variant", [{}, {"sized": True}, {"linked": True}, {"summed": True}])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 180_000])
def test_foreign_variants_of_the_frame_open(size: int, variant: dict[str, bool]) -> None:
    assert opened(frame(TEXT[:size], **variant)) == TEXT[:size]


def test_noise_in_many_slices_opens() -> None:
    data = random.Random(2).randbytes(3 * MIB + 17)
    assert opened(frame(data), max_bytes=4 * MIB) == data


def test_bytes_behind_a_frame_that_ends_with_an_input_slice_are_refused() -> None:
    packed = frame(random.Random(3).randbytes(3 * 65_536 + 65_509))
    assert len(packed) == 256 * 1024
    assert len(opened(packed)) == 3 * 65_536 + 65_509
    with pytest.raises(CorruptBatch, match="bytes follow"):
        opened(packed + b"\0")


def test_gzip_opens() -> None:
    assert opened(gzip.compress(TEXT), CODEC_GZIP) == TEXT
    assert opened(gzip.compress(b""), CODEC_GZIP) == b""


@pytest.mark.parametrize(("codec", "name"), [(CODEC_SNAPPY, "snappy"), (CODEC_ZSTD, "zstd")])
def test_a_codec_that_is_not_there_is_named(codec: int, name: str) -> None:
    with pytest.raises(CodecMissing, match=name) as caught:
        opened(b"x", codec)
    assert "lz4" in caught.value.hint


def test_a_codec_without_a_name_is_refused() -> None:
    with pytest.raises(CodecMissing, match="number 6"):
        opened(b"x", 6)


@pytest.mark.parametrize(("codec", "pack"), [(CODEC_LZ4, frame), (CODEC_GZIP, gzip.compress)])
def test_the_size_bound_is_inclusive(codec: int, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(TEXT)
    assert opened(packed, codec, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(TooLarge, match=f"more than the {len(TEXT) - 1} bytes"):
        opened(packed, codec, max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize(("codec", "pack"), [(CODEC_LZ4, frame), (CODEC_GZIP, gzip.compress)])
def test_the_ratio_bound_holds_above_the_free_size(
    codec: int, pack: Callable[[bytes], bytes]
) -> None:
    free = pack(bytes(RATIO_FREE_BYTES))
    assert len(opened(free, codec, max_bytes=64 * MIB, max_ratio=2)) == RATIO_FREE_BYTES
    bomb = pack(bytes(RATIO_FREE_BYTES + 1))
    with pytest.raises(TooLarge):
        opened(bomb, codec, max_bytes=64 * MIB, max_ratio=2)
    assert len(opened(bomb, codec, max_bytes=64 * MIB, max_ratio=2000)) == RATIO_FREE_BYTES + 1


def test_the_limit_is_the_smaller_of_both_bounds() -> None:
    assert opened_limit_bytes(10 * MIB, 64 * MIB, 100) == 64 * MIB
    assert opened_limit_bytes(MIB, 512 * MIB, 100) == 100 * MIB
    assert opened_limit_bytes(1, 64 * MIB, 100) == RATIO_FREE_BYTES
    assert opened_limit_bytes(1, MIB, 100) == MIB


@pytest.mark.parametrize(("codec", "pack"), [(CODEC_LZ4, frame), (CODEC_GZIP, gzip.compress)])
def test_a_bomb_costs_no_more_memory_than_its_bound(
    codec: int, pack: Callable[[bytes], bytes]
) -> None:
    bomb = pack(bytes(200 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            opened(bomb, codec, max_bytes=2 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * MIB


def test_a_frame_cut_anywhere_is_refused() -> None:
    packed = frame(TEXT[:1000])
    for length in range(len(packed)):
        with pytest.raises(CorruptBatch):
            opened(packed[:length])
    member = gzip.compress(TEXT[:1000])
    for length in range(len(member)):
        with pytest.raises(CorruptBatch):
            opened(member[:length], CODEC_GZIP)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (frame(b"a") + frame(b"b"), "bytes follow"),
        (frame(b"a") + b"\0", "bytes follow"),
        (frame(TEXT) + bytes(1_000_000), "bytes follow"),
        (b"\x50\x2a\x4d\x18\x01\0\0\0x" + frame(b"a"), "does not start with an lz4 frame"),
        (b"\x02\x21\x4c\x18" + bytes(20), "does not start with an lz4 frame"),
        (TEXT, "does not start with an lz4 frame"),
        (b"", "does not start with an lz4 frame"),
        (frame(TEXT)[:4], "cut short"),
        (frame(TEXT)[:4] + b"\x61" + bytes(20), "dictionary"),
        (frame(TEXT)[:7] + EMPTY_STORED_BLOCK * 3, "cut short"),
    ],
)
def test_anything_but_one_whole_frame_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(CorruptBatch, match=text):
        opened(data)


@pytest.mark.parametrize("block", [EMPTY_STORED_BLOCK, EMPTY_PACKED_BLOCK])
def test_a_million_empty_blocks_end(block: bytes) -> None:
    data = frame(b"")[:7] + block * 1_000_000
    assert opened(data + END_MARK) == b""
    with pytest.raises(CorruptBatch, match="cut short"):
        opened(data)


def stating(content_size: int) -> bytes:
    """A frame of 1,000 bytes that states another size, its header checksum made to fit."""
    packed = bytearray(frame(TEXT[:1000], sized=True))
    packed[6:14] = struct.pack("<Q", content_size)
    for packed[14] in range(256):
        with contextlib.suppress(RuntimeError):
            lz4.frame.get_frame_info(bytes(packed))
            return bytes(packed)
    raise AssertionError("no header checksum fits")


@pytest.mark.parametrize("stated", [1, 999, 1001, MIB])
def test_a_wrong_content_size_is_refused(stated: int) -> None:
    with pytest.raises(CorruptBatch, match="frameSize_wrong"):
        opened(stating(stated))


def test_a_right_content_size_is_taken_and_zero_states_none() -> None:
    assert opened(stating(1000)) == opened(stating(0)) == TEXT[:1000]


def test_a_content_size_over_the_bound_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(TooLarge):
        opened(stating(2**63))


def test_a_frame_that_makes_no_progress_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        eof = False
        needs_input = False
        unused_data = None

        def decompress(self, data: bytes, max_length: int) -> bytes:
            return b""

    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", Stuck)
    with pytest.raises(CorruptBatch, match="no progress"):
        opened(frame(TEXT))


@pytest.mark.parametrize("tail", [b"\0", gzip.compress(b"more")])
def test_bytes_behind_a_gzip_member_are_refused(tail: bytes) -> None:
    with pytest.raises(CorruptBatch, match="bytes follow"):
        opened(gzip.compress(TEXT) + tail, CODEC_GZIP)
