"""The CRC of a whole file, and that it is compared once."""

import threading

from crc32c import crc32c

from ringlog.storage.files import File
from ringlog.storage.memory_files import MemoryDirectory, MemoryFile
from ringlog.storage.types import Offset
from ringlog.storage.whole_file import ExpectedBytes, crc_of

DATA = bytes(range(251)) * 9_000
SEED = 77


def made(data: bytes = DATA) -> File:
    directory = MemoryDirectory()
    directory.create()
    file = directory.open("x", create=True)
    file.pwrite([data], 0)
    return file


class Counted(MemoryFile):
    """A file that counts its reads and lets them wait."""

    def __init__(self, data: bytes = DATA) -> None:
        file = made(data)
        assert isinstance(file, MemoryFile)
        super().__init__(file._tree, file._node)
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def pread(self, size_bytes: int, position: int) -> bytes:
        self.sizes.append(size_bytes)
        assert self.gate.wait(10)
        return super().pread(size_bytes, position)


def expected(size_bytes: int = len(DATA)) -> ExpectedBytes:
    return ExpectedBytes(size_bytes, Offset(5), crc32c(DATA[:size_bytes], SEED))


def test_the_crc_is_that_of_the_bytes_and_of_the_seed_in_bounded_reads() -> None:
    file = Counted()
    assert crc_of(file, len(DATA), SEED) == crc32c(DATA, SEED)
    assert len(file.sizes) == 3
    assert max(file.sizes) == 1 << 20
    assert crc_of(made(), 100, SEED) == crc32c(DATA[:100], SEED)
    assert crc_of(made(), len(DATA), SEED + 1) != crc32c(DATA, SEED)


def test_a_file_that_ends_early_is_another() -> None:
    file = made(DATA[:-1])
    assert crc_of(file, len(DATA), SEED) == crc32c(DATA[:-1], SEED)
    assert not expected().holds(file, SEED)


def test_what_lies_behind_does_not_matter_and_what_lies_below_does() -> None:
    assert expected(1000).holds(made(), SEED)
    flipped = DATA[:999] + b"\xff" + DATA[1000:]
    assert not expected(1000).holds(made(flipped), SEED)
    assert not expected(1000).holds(made(), SEED + 1)


def test_what_was_found_good_is_not_read_again_and_what_was_not_is() -> None:
    want = expected()
    bad = made(b"!" + DATA[1:])
    assert not want.holds(bad, SEED)
    file = Counted()
    assert want.holds(file, SEED)
    file.sizes.clear()
    assert want.holds(file, SEED)
    assert file.sizes == []


def test_two_workers_read_the_file_once() -> None:
    want, file = expected(), Counted()
    file.gate.clear()
    found: list[bool] = []
    workers = [
        threading.Thread(target=lambda: found.append(want.holds(file, SEED))) for _i in range(2)
    ]
    for worker in workers:
        worker.start()
    file.gate.set()
    for worker in workers:
        worker.join(10)
    assert found == [True, True]
    assert len(file.sizes) == 3
