"""The part of python-lz4 that storage/compression.py uses."""

BLOCKSIZE_MAX4MB: int

def compress(
    data: bytes,
    compression_level: int = ...,
    block_size: int = ...,
    content_checksum: bool = ...,
    block_checksum: bool = ...,
    block_linked: bool = ...,
    store_size: bool = ...,
) -> bytes: ...
def get_frame_info(frame: bytes) -> dict[str, int | bool]: ...

class LZ4FrameDecompressor:
    eof: bool
    needs_input: bool
    unused_data: bytes | None
    def __init__(self) -> None: ...
    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...
