"""Compression of the records section of a batch, with bounds on what it opens to.

Owns the codec numbers, lz4 and gzip. Must not know records or headers.

Invariants:
    CO1 Opening counts its own output; no size claimed by the input is trusted or allocated.
    CO2 Output never passes `opened_limit_bytes`, and working memory stays within a few MiB of
        the output: input and output both go in slices.
    CO3 What `shrink` returns, `open_compressed` with default bounds opens.

The ratio bound only holds above `RATIO_FREE_BYTES`: a small batch of equal records is not a
bomb, however well it packs.

Source: Kafka's codec numbers; LZ4 frame format 1.6. Blocks are independent and there is no
content checksum, because Java's reader refuses linked blocks and the batch has its own CRC.
"""

import zlib

import lz4.frame

from ringlog.storage.errors import CodecMissing, CorruptBatch, TooLarge
from ringlog.storage.types import Buffer

CODEC_NONE = 0
CODEC_GZIP = 1
CODEC_SNAPPY = 2
CODEC_LZ4 = 3
CODEC_ZSTD = 4
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
DEFAULT_MAX_RATIO = 100
RATIO_FREE_BYTES = 4 * 1024 * 1024

_SLICE_BYTES = 256 * 1024
_MAX_OUTPUT_SLICE_BYTES = 1024 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FLAG_CONTENT_SIZE = 0x08
_LZ4_FLAG_DICTIONARY = 0x01
_GZIP_WBITS = 31


def opened_limit_bytes(compressed_bytes: int, max_bytes: int, max_ratio: int) -> int:
    """Largest size (inclusive) that `compressed_bytes` of input may open to."""
    return min(max_bytes, max(RATIO_FREE_BYTES, max_ratio * compressed_bytes))


def shrink(data: bytes) -> bytes | None:
    """Compress into one LZ4 frame, or None when the plain bytes are the better choice.

    None means that the frame is not smaller, or that a reader with default bounds would refuse
    it as a bomb.
    """
    frame: bytes = lz4.frame.compress(
        data, block_linked=False, content_checksum=False, store_size=False
    )
    if len(frame) >= len(data):
        return None
    limit = opened_limit_bytes(len(frame), DEFAULT_MAX_DECOMPRESSED_BYTES, DEFAULT_MAX_RATIO)
    return frame if len(data) <= limit else None


def open_compressed(codec: int, data: Buffer, *, max_bytes: int, max_ratio: int) -> bytes:
    """Decompress all of `data`, which must be exactly one frame of `codec`.

    Args:
        codec: a codec number other than `CODEC_NONE`.
        data: the compressed records section.
        max_bytes: largest output allowed (inclusive).
        max_ratio: largest output per byte of input, once beyond `RATIO_FREE_BYTES`.

    Raises:
        CodecMissing: snappy, zstd, or a number without a name.
        TooLarge: the output passes a bound; at most that much was produced.
        CorruptBatch: damaged, cut short, or more than one frame.
    """
    limit = opened_limit_bytes(len(data), max_bytes, max_ratio)
    if codec == CODEC_LZ4:
        return _open_lz4(bytes(data), limit)
    if codec == CODEC_GZIP:
        return _open_gzip(data, limit)
    name = CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"number {codec}"
    raise CodecMissing(
        f"the batch is compressed with {name}, which ringlog does not open",
        hint="produce with compression='lz4' (or none); what is stored stays readable for "
        f"clients that have {name}",
    )


def _open_lz4(data: bytes, limit: int) -> bytes:
    _check_lz4_header(data, limit)
    frame = lz4.frame.LZ4FrameDecompressor()
    chunks: list[bytes] = []
    total = 0
    position = 0
    while not frame.eof:
        piece = b""
        if frame.needs_input:
            piece = data[position : position + _SLICE_BYTES]
            position += len(piece)
            if not piece:
                raise CorruptBatch("the lz4 frame is cut short")
        room = min(limit - total + 1, _MAX_OUTPUT_SLICE_BYTES)
        try:
            chunk = frame.decompress(piece, max_length=room)
        except RuntimeError as error:
            raise CorruptBatch(f"the lz4 frame is damaged: {error}") from error
        if not chunk and not piece:
            raise CorruptBatch("the lz4 frame makes no progress")
        total += len(chunk)
        if total > limit:
            raise _bomb("lz4", len(data), limit)
        chunks.append(chunk)
    if frame.unused_data or position < len(data):
        raise CorruptBatch("bytes follow the lz4 frame; a batch holds exactly one")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_lz4_header(data: bytes, limit: int) -> None:
    """Refuse what the library would accept: skippable frames, dictionaries, absurd sizes."""
    if data[:4] != _LZ4_MAGIC:
        raise CorruptBatch("the records section does not start with an lz4 frame")
    flags = data[4] if len(data) > 4 else 0
    if flags & _LZ4_FLAG_DICTIONARY:
        raise CorruptBatch("the lz4 frame asks for a dictionary")
    if flags & _LZ4_FLAG_CONTENT_SIZE and int.from_bytes(data[6:14], "little") > limit:
        raise _bomb("lz4", len(data), limit)


def _open_gzip(data: Buffer, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WBITS)
    try:
        opened = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise CorruptBatch(f"the gzip member is damaged: {error}") from error
    if len(opened) > limit:
        raise _bomb("gzip", len(data), limit)
    if not stream.eof:
        raise CorruptBatch("the gzip member is cut short")
    if stream.unused_data:
        raise CorruptBatch("bytes follow the gzip member; a batch holds exactly one")
    return opened


def _bomb(name: str, compressed_bytes: int, limit: int) -> TooLarge:
    return TooLarge(
        f"{compressed_bytes} bytes of {name} open to more than the {limit} bytes allowed",
        hint="the producer must send smaller batches, or uncompressed ones; skip this batch by "
        "seeking behind it",
    )
