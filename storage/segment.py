"""One segment of a log: what is known of it in memory, and the names of its files.

Owns base offset, size, ends, times and index of one `.log` file, and how its caches are saved
and loaded. Must not know the other segments or the Raft log.

A segment is *active* (the last one, appended to) or *sealed* (closed, immutable). Truncation
never changes a segment that a reader may hold: it makes a shorter one in its place.

Invariants:
    G1  `size_bytes` and `next_offset` count all appended batches, also those that a worker has
        still to write.
    G2  `file` and `written_crc` belong to the jobs of the partition, which run one at a time.
    G3  An index that disagrees with the batches costs time, never a wrong answer.
    G4  What another process wrote is `unchecked` until a worker has compared it with the CRC
        in its seal, or, for the active segment, with the one that a clean stop left beside
        the index. After a crash the active segment has none: its batches are checked alone.
        A file that is both exchanged and damaged is served up to its damage.
"""

import threading
from typing import Final

import msgspec
from crc32c import crc32c

from ringlog.storage.batch_scan import BrokenChain, EpochAt, scan_batches
from ringlog.storage.errors import DamagedLog, FileMissing
from ringlog.storage.files import Directory, File
from ringlog.storage.index import Coverage, SparseIndex, decode_index
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.seal import Seal, decode_seal, encode_seal
from ringlog.storage.types import NO_TIMESTAMP, Buffer, Offset
from ringlog.storage.whole_file import ExpectedBytes, crc_of

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SEAL_SUFFIX: Final = ".seal"
CACHE_SUFFIXES: Final = (SEAL_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *CACHE_SUFFIXES)
_NAME_DIGITS: Final = 20


def segment_name(base_offset: Offset, suffix: str = LOG_SUFFIX) -> str:
    """File name of a segment, or of one of its caches."""
    return f"{base_offset:0{_NAME_DIGITS}d}{suffix}"


def segment_base(name: str, suffix: str = LOG_SUFFIX) -> Offset | None:
    """Base offset that a file name states, or None when it is no such file."""
    digits = name[: -len(suffix)]
    if not name.endswith(suffix) or len(digits) != _NAME_DIGITS or not digits.isdecimal():
        return None
    return Offset(int(digits))


class Place(msgspec.Struct, frozen=True):
    """Where a partition's files are and what binds them to it."""

    directory: Directory
    seed: int
    """CRC-32C of topic UUID and partition."""
    index_interval_bytes: int
    open_lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    """Held by workers while they open a file or load an index, so that it happens once."""


class Segment:
    """One segment. The reactor changes it, workers read it and write its file."""

    __slots__ = ("_file", "_index", "base_offset", "created_ms", "max_timestamp", "next_offset",
                 "rolled_ms", "size_bytes", "unchecked", "written_crc",
                 "written_crc_size")  # fmt: skip

    def __init__(
        self,
        base_offset: Offset,
        *,
        created_ms: int,
        index: SparseIndex | None,
        size_bytes: int = 0,
        next_offset: Offset | None = None,
        max_timestamp: int = NO_TIMESTAMP,
        rolled_ms: int | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size_bytes = size_bytes
        self.next_offset = base_offset if next_offset is None else next_offset
        self.max_timestamp = max_timestamp
        self.rolled_ms = rolled_ms
        self._index = index
        self._file: File | None = None
        self.written_crc: int | None = None
        self.written_crc_size = 0
        self.unchecked: ExpectedBytes | None = None
        """What `check` has to find before a byte is served; None: nothing is in doubt."""

    @classmethod
    def from_seal(cls, seal: Seal) -> "Segment":
        """Return the closed segment that `seal` describes; its index is loaded when needed."""
        segment = cls(
            seal.base_offset,
            created_ms=seal.rolled_ms,
            index=None,
            size_bytes=seal.size_bytes,
            next_offset=seal.next_offset,
            max_timestamp=seal.max_timestamp,
            rolled_ms=seal.rolled_ms,
        )
        segment.unchecked = ExpectedBytes(seal.size_bytes, seal.next_offset, seal.segment_crc)
        return segment

    @classmethod
    def from_coverage(cls, covered: Coverage, index: SparseIndex) -> "Segment":
        """Return the active segment that a clean stop left with `index`."""
        segment = cls(
            covered.base_offset,
            created_ms=covered.created_ms,
            index=index,
            size_bytes=covered.size_bytes,
            next_offset=covered.next_offset,
            max_timestamp=covered.max_timestamp,
        )
        segment.unchecked = ExpectedBytes(
            covered.size_bytes, covered.next_offset, covered.segment_crc
        )
        segment.written_crc, segment.written_crc_size = covered.segment_crc, covered.size_bytes
        return segment

    @property
    def is_sealed(self) -> bool:
        """Whether it is closed."""
        return self.rolled_ms is not None

    @property
    def last_time_ms(self) -> int:
        """Time that retention counts from: the later of record time and close."""
        return max(self.max_timestamp, self.rolled_ms or 0)

    def note(self, header: BatchHeader, offset: Offset) -> int:
        """Count a batch that is appended at `offset`; return its byte position."""
        position = self.size_bytes
        assert self._index is not None
        self._index.note(offset, position, self.max_timestamp)
        self.size_bytes = position + header.size_bytes
        self.next_offset = Offset(offset + header.last_offset_delta + 1)
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        return position

    def shortened(
        self, size_bytes: int, next_offset: Offset, max_timestamp: int, index: SparseIndex
    ) -> "Segment":
        """Return an active segment with only the batches below `next_offset`."""
        short = Segment(
            self.base_offset,
            created_ms=self.created_ms,
            index=index,
            size_bytes=size_bytes,
            next_offset=next_offset,
            max_timestamp=max_timestamp,
        )
        short._file = self._file
        # Bytes that stay are served from now on, bytes that go are needed to check them.
        short.unchecked = self.unchecked
        return short

    def check(self, place: Place, epoch_at: EpochAt | None) -> None:
        """Compare the file with what it has to hold, unless that was done. On a worker.

        Args:
            place: of the partition.
            epoch_at: of the Raft log, to tell a damaged batch from another file; None: any
                difference is refused.

        Raises:
            DamagedLog: it holds something else, batch by batch as good as ours.
            ReadFailed: the disk cannot give it back.
        """
        expected = self.unchecked
        if expected is None:
            return
        if not expected.holds(self.file(place), place.seed) and (
            epoch_at is None or self._has_good_batches(place, expected, epoch_at)
        ):
            raise other_bytes(place, self.base_offset, expected.next_offset)
        # A batch that fails its own check explains the difference: readers meet it where it is.
        self.unchecked = None

    def _has_good_batches(self, place: Place, expected: ExpectedBytes, epoch_at: EpochAt) -> bool:
        batches = scan_batches(
            self.file(place),
            begin=0,
            end=expected.size_bytes,
            first_offset=self.base_offset,
            epoch_at=epoch_at,
        )
        try:
            for _ in batches:
                pass
        except BrokenChain:
            return False
        return True

    def file(self, place: Place) -> File:
        """Its open file. On a worker: the first call opens it."""
        file = self._file
        if file is None:
            with place.open_lock:
                file = self._file or place.directory.open(segment_name(self.base_offset))
                self._file = file
        return file

    def file_if_open(self) -> File | None:
        """Its file if a worker has opened it."""
        return self._file

    def create_file(self, place: Place) -> File:
        """Make its file, empty, whatever a crash may have left under the name. Not flushed."""
        self._file = place.directory.open(segment_name(self.base_offset), create=True)
        if self._file.size_bytes():
            self._file.truncate(0)
        self.begin_crc(place)
        return self._file

    def begin_crc(self, place: Place) -> None:
        """Its file is empty, or is read from its begin on: `note_written` tells the bytes."""
        self.written_crc, self.written_crc_size = place.seed, 0

    def close(self) -> None:
        """Let go of its file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def index_if_loaded(self) -> SparseIndex | None:
        """Its index if it is in memory."""
        return self._index

    def index(self, place: Place, epoch_at: EpochAt) -> SparseIndex:
        """Its index. On a worker: the first call loads it, or builds it from the batches.

        Raises:
            CorruptBatch: it has to be built, and a batch is damaged.
        """
        index = self._index
        if index is None:
            with place.open_lock:
                index = load_index(place, self)
            if index is None:
                index = self.build_index(place, epoch_at)
            self._index = index
        return index

    def build_index(self, place: Place, epoch_at: EpochAt) -> SparseIndex:
        """Read all batches and return an index of them. Raises CorruptBatch."""
        index = SparseIndex(self.base_offset, place.index_interval_bytes)
        max_timestamp = NO_TIMESTAMP
        batches = scan_batches(
            self.file(place),
            begin=0,
            end=self.size_bytes,
            first_offset=self.base_offset,
            epoch_at=epoch_at,
        )
        for header, position, _data in batches:
            index.note(header.base_offset, position, max_timestamp)
            max_timestamp = max(max_timestamp, header.max_timestamp)
        return index

    def replace_index(self, index: SparseIndex | None) -> None:
        """Use `index` from now on; None lets the next look-up load it again."""
        self._index = index

    def note_written(self, buffers: list[Buffer], position: int) -> None:
        """Continue the CRC of the file over what stands at `position`: just written, or read."""
        if self.written_crc is None or self.written_crc_size != position:
            self.written_crc = None
            return
        crc = self.written_crc
        for buffer in buffers:
            crc = crc32c(buffer, crc)
            self.written_crc_size += len(buffer)
        self.written_crc = crc

    def coverage(self, segment_crc: int) -> Coverage:
        """What the index describes at present; `segment_crc` is that of the file."""
        return Coverage(
            self.base_offset, self.size_bytes, self.next_offset, self.max_timestamp,
            self.created_ms, segment_crc,
        )  # fmt: skip


def whole_crc(place: Place, segment: Segment) -> int:
    """CRC-32C of the file of `segment`, from what was written or else by reading it."""
    if segment.written_crc is None or segment.written_crc_size != segment.size_bytes:
        segment.written_crc = crc_of(segment.file(place), segment.size_bytes, place.seed)
        segment.written_crc_size = segment.size_bytes
    return segment.written_crc


def other_bytes(place: Place, base_offset: Offset, next_offset: Offset) -> DamagedLog:
    """Say that the file is not the one that this partition wrote."""
    return DamagedLog(
        "the file is not the one that this partition wrote: of another log or of an older copy, "
        "or damaged",
        path=f"{place.directory.path}/{segment_name(base_offset)}",
        position=0,
        first_offset=base_offset,
        end_offset=next_offset,
    )


def write_whole(directory: Directory, name: str, data: bytes) -> None:
    """Write a cache file; not flushed, because its CRC tells whether it arrived."""
    file = directory.open(name, create=True)
    try:
        file.pwrite([data], 0)
        if file.size_bytes() != len(data):
            file.truncate(len(data))
    finally:
        file.close()


def read_whole(directory: Directory, name: str) -> bytes | None:
    """Bytes of a file, or None when it does not exist."""
    try:
        file = directory.open(name)
    except FileMissing:
        return None
    try:
        return file.pread(file.size_bytes(), 0)
    finally:
        file.close()


def save_index(place: Place, segment: Segment) -> None:
    """Write both index caches of `segment`, whose file is written, if its index is in memory."""
    index = segment.index_if_loaded()
    if index is None:
        return
    covered = segment.coverage(whole_crc(place, segment))
    offsets, times = index.encode(covered, seed=place.seed)
    write_whole(place.directory, segment_name(segment.base_offset, INDEX_SUFFIX), offsets)
    write_whole(place.directory, segment_name(segment.base_offset, TIME_INDEX_SUFFIX), times)


def read_index(place: Place, base_offset: Offset) -> tuple[SparseIndex, Coverage] | None:
    """Read the index caches of a segment, or None on any doubt."""
    offsets = read_whole(place.directory, segment_name(base_offset, INDEX_SUFFIX))
    times = read_whole(place.directory, segment_name(base_offset, TIME_INDEX_SUFFIX))
    if offsets is None or times is None:
        return None
    return decode_index(offsets, times, interval_bytes=place.index_interval_bytes, seed=place.seed)


def load_index(place: Place, segment: Segment) -> SparseIndex | None:
    """Index of a sealed segment from its caches, or None when they do not fit it."""
    loaded = read_index(place, segment.base_offset)
    if loaded is None:
        return None
    index, covered = loaded
    expected = (segment.base_offset, segment.size_bytes, segment.next_offset)
    return (
        index
        if (covered.base_offset, covered.size_bytes, covered.next_offset) == expected
        else None
    )


def save_seal(place: Place, segment: Segment) -> None:
    """Write the seal of a closed, flushed segment."""
    assert segment.rolled_ms is not None
    seal = Seal(
        segment.base_offset, segment.size_bytes, segment.next_offset, segment.max_timestamp,
        segment.rolled_ms, whole_crc(place, segment),
    )  # fmt: skip
    name = segment_name(segment.base_offset, SEAL_SUFFIX)
    write_whole(place.directory, name, encode_seal(seal, seed=place.seed))


def load_seal(place: Place, base_offset: Offset) -> Seal | None:
    """Read the seal of a segment, or None when there is no good one."""
    data = read_whole(place.directory, segment_name(base_offset, SEAL_SUFFIX))
    seal = None if data is None else decode_seal(data, seed=place.seed)
    return seal if seal is not None and seal.base_offset == base_offset else None
