"""The walk over batches: every cut and flip ends it where it stands."""

from typing import cast

import pytest

from ringlog.storage.batch_scan import BrokenChain, scan_batches
from ringlog.storage.files import File
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.record_batch import assign
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.types import LeaderEpoch, Offset

BATCHES = [
    encode_batch([b"v" * (i * 40)] * 2, timestamps=1, base_offset=10 + 2 * i, leader_epoch=3)
    for i in range(6)
]
DATA = b"".join(BATCHES)
EDGES = [sum(map(len, BATCHES[:i])) for i in range(7)]


class CountingFile:
    """Counts how much is asked for."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.largest = 0

    def pread(self, size_bytes: int, position: int) -> bytes:
        self.largest = max(self.largest, size_bytes)
        return self._file.pread(size_bytes, position)


def make_file(data: bytes) -> File:
    directory = MemoryDirectory()
    directory.create()
    file = directory.open("log", create=True)
    file.pwrite([data], 0)
    return file


def scan(
    data: bytes, *, epoch: int = 3, read_bytes: int = 100, end: int | None = None
) -> list[int]:
    found = scan_batches(
        make_file(data),
        begin=0,
        end=len(data) if end is None else end,
        first_offset=Offset(10),
        epoch_at=lambda _offset: LeaderEpoch(epoch),
        read_bytes=read_bytes,
    )
    positions = []
    for header, position, batch in found:
        assert bytes(batch) == BATCHES[(header.base_offset - 10) // 2]
        positions.append(position)
    return positions


@pytest.mark.parametrize("read_bytes", [1, 12, 61, 62, 100, 255, 10_000])
def test_all_batches_come_whole_whatever_is_read_at_a_time(read_bytes: int) -> None:
    assert scan(DATA, read_bytes=read_bytes) == EDGES[:-1]


@pytest.mark.parametrize("read_bytes", [1, 100, 10_000])
def test_every_cut_ends_the_chain_at_the_last_whole_batch(read_bytes: int) -> None:
    for end in range(len(DATA)):
        whole = [edge for edge in EDGES if edge <= end]
        if end in EDGES:
            assert scan(DATA[:end], read_bytes=read_bytes) == whole[:-1]
            continue
        with pytest.raises(BrokenChain) as caught:
            scan(DATA[:end], read_bytes=read_bytes)
        assert caught.value.position == whole[-1]
        assert caught.value.offset == 10 + 2 * (len(whole) - 1)


def test_every_flip_ends_the_chain_at_its_batch() -> None:
    for i in range(len(DATA)):
        with pytest.raises(BrokenChain) as caught:
            scan(DATA[:i] + bytes([DATA[i] ^ 0x10]) + DATA[i + 1 :])
        assert caught.value.position == max(edge for edge in EDGES if edge <= i)


def test_another_offset_or_epoch_outside_the_crc_is_seen() -> None:
    with pytest.raises(BrokenChain, match="base offset 99, expected 10"):
        scan(assign(Offset(99), LeaderEpoch(3), len(BATCHES[0])) + DATA[16:])
    with pytest.raises(BrokenChain, match="leader epoch 3, the Raft log says 4"):
        scan(DATA, epoch=4)


def test_a_huge_length_allocates_nothing() -> None:
    huge = DATA[:8] + (2**31 - 1 - 12).to_bytes(4, "big") + DATA[12:]
    file = CountingFile(make_file(huge))
    with pytest.raises(BrokenChain, match="2147483647 bytes"):
        next(
            scan_batches(
                cast("File", file),
                begin=0,
                end=len(huge),
                first_offset=Offset(10),
                epoch_at=lambda _offset: LeaderEpoch(3),
            )
        )
    assert file.largest <= len(huge)


def test_a_file_that_is_shorter_than_the_range_ends_the_chain() -> None:
    with pytest.raises(BrokenChain):
        scan(DATA[:-1], end=len(DATA))
    with pytest.raises(BrokenChain):
        scan(DATA, end=len(DATA) + 100)
