"""How far the log of each partition is known to be flushed: one file for the data directory.

Owns the slots of `durable-marks`. Must not know logs or segments. Recovery tells damage from a
torn tail by these marks: what fails a check below its mark had been flushed and is damage.

The file is blocks of two pages of 4,096 bytes; a page has 32 slots of 128 bytes. Slot i of the
first page and slot i of the second are the pair of one partition, so that the loss of a page
or sector costs no pair. A slot, big-endian, the rest of it zero::

    | crc 4 | format 1 | flags 1 | partition 4 | topic UUID 16 | sequence 8 |
    | offset 8 | own 8 | segment base 8 | position in the segment 8 |

crc is CRC-32C of the rest, seeded with the slot's number, so that a slot written to a wrong
place is seen. Flag 1 = clean stop. A slot of zeros is free.

Invariants:
    DM1  At every moment at least one slot of a pair in use is durable and whole: the one that
         is written is never the only durable one. So after a crash `get` gives the mark
         flushed last or one put since, never another.
    DM2  The slot with the higher sequence counts.
    DM3  A mark moves down only by `lower`, which is durable in both slots when it returns; the
         first mark of a partition is written the same way. So a pair with one damaged and one
         free slot was never in use, and two damaged slots are damage.

Source: the alternating header slots known from databases; ringlog's raft-log rules (durable
mark, "Order on disk" 2 and 3).
"""

import struct
import threading
from typing import NamedTuple
from uuid import UUID

import msgspec
from crc32c import crc32c

from ringlog.storage.errors import DamagedState, WrongDirectory
from ringlog.storage.files import Directory, File
from ringlog.storage.types import Offset, Position

DURABLE_MARKS_NAME = "durable-marks"
MARK_FORMAT = 1

_PAGE_BYTES = 4096
_SLOT_BYTES = 128
_SLOTS_PER_PAGE = _PAGE_BYTES // _SLOT_BYTES
_SLOT = struct.Struct(">BBI16sQqqqq")
_CRC = struct.Struct(">I")
_PADDING = bytes(_SLOT_BYTES - _CRC.size - _SLOT.size)
_FREE_SLOT = bytes(_SLOT_BYTES)
_FLAG_CLEAN = 1


class MarkKey(NamedTuple):
    """One partition, by what never changes."""

    topic_uuid: UUID
    partition: int


class Mark(msgspec.Struct, frozen=True, gc=False):
    """How far one log is flushed."""

    position: Position
    """Both files are flushed up to here (exclusive)."""
    segment_base: Offset
    """Base offset of the segment in which the position lies."""
    position_bytes: int
    """Byte position in that segment (exclusive end of what is flushed)."""
    clean: bool
    """The log was closed in order and nothing was written since."""


class _Pair(msgspec.Struct, gc=False):
    """Where the marks of one partition lie, and its newest one."""

    number: int
    """Number of the pair in the file."""
    newest: int
    """Which slot of the pair holds `mark`: 0 or 1."""
    sequence: int
    mark: Mark
    generation: int
    """Value of the file's put counter when `newest` was written."""


class _Slot(NamedTuple):
    key: MarkKey
    sequence: int
    mark: Mark


class DurableMarks:
    """The open file. Any thread may call; for one partition, one call at a time.

    A shell of the flusher and of recovery: the reactor thread calls none of this.
    """

    def __init__(self, directory: Directory, file: File) -> None:
        self._path = f"{directory.path}/{DURABLE_MARKS_NAME}"
        self._file = file
        # Guards all below; held over writes to the page cache, never over a flush.
        self._lock = threading.Lock()
        # Held while a pair is made, flushes included: the file grows by one slot at a time, so
        # what a power cut leaves behind its old end is never both slots of a pair (DM3).
        self._growth = threading.Lock()
        self._pairs: dict[MarkKey, _Pair] = {}
        self._free: list[int] = []
        self._end_number = 0
        self._lost_pairs: list[int] = []
        # Puts are numbered; what was put up to `_flushed` is durable.
        self._generation = 0
        self._flushed = 0

    @classmethod
    def open(cls, directory: Directory) -> "DurableMarks":
        """Read all marks, making the file if there is none.

        Raises:
            WrongDirectory: a whole slot is of a newer format.
            LogDirFailed: the file cannot be made durable.
            ReadFailed: the disk cannot give the bytes back.
        """
        created = not directory.exists(DURABLE_MARKS_NAME)
        file = directory.open(DURABLE_MARKS_NAME, create=created)
        # What a killed process wrote may be in the page cache only, even a first mark.
        file.sync()
        if created:
            directory.sync()
        marks = cls(directory, file)
        marks._read_all()
        return marks

    def get(self, key: MarkKey) -> Mark | None:
        """Return the newest mark, or None when the partition never got one.

        Raises:
            DamagedState: both slots of the partition are damaged, or those of a partition that
                can no longer be told, which may be this one.
        """
        with self._lock:
            pair = self._pairs.get(key)
            if pair is not None:
                return pair.mark
            if self._lost_pairs:
                positions = ", ".join(str(_position(number, 0)) for number in self._lost_pairs)
                raise DamagedState(
                    f"both copies of a mark are damaged (bytes {positions}); it may be the one "
                    f"of partition {key.partition} of topic {key.topic_uuid}",
                    path=self._path,
                    hint="a replicated partition is fetched again from its leader; for a single "
                    "replica run ringlog log verify --repair --dry-run DATA_DIR",
                )
            return None

    def keys(self) -> list[MarkKey]:
        """Return the partitions that have a mark."""
        with self._lock:
            return list(self._pairs)

    def put(self, key: MarkKey, mark: Mark) -> None:
        """Move the mark up: written, durable after the next `flush`.

        The first mark of a partition is made durable as by `lower`.

        Raises:
            LogDirFailed, DiskFull: the write failed.
        """
        with self._lock:
            pair = self._pairs.get(key)
            if pair is not None:
                assert mark.position >= pair.mark.position, "DM3: a mark is lowered by lower()"
                self._write(key, pair, self._slot_to_write(pair), mark)
                return
        self.lower(key, mark)

    def lower(self, key: MarkKey, mark: Mark) -> None:
        """Set the mark, in both slots, durably: it may go down, or lose `clean`.

        Raises:
            LogDirFailed, DiskFull: a write or flush failed.
        """
        with self._lock:
            pair = self._pairs.get(key)
        if pair is not None:
            self._write_both(key, pair, mark)
            return
        with self._growth:
            with self._lock:
                pair = _Pair(self._take_number(), 1, 0, mark, self._flushed)
            self._write_both(key, pair, mark)

    def flush(self) -> None:
        """Make all that was put before this call durable. Free when nothing was.

        Raises:
            LogDirFailed: the flush failed; it is not known what is durable.
        """
        with self._lock:
            generation = self._generation
            if generation == self._flushed:
                return
        self._file.sync()
        with self._lock:
            self._flushed = max(self._flushed, generation)

    def forget(self, key: MarkKey) -> None:
        """Free the slots of a partition that was removed. Durable when it returns.

        Raises:
            LogDirFailed: a write or flush failed.
        """
        with self._lock:
            pair = self._pairs.get(key)
            if pair is None:
                return
            first = self._slot_to_write(pair)
            self._write_bytes(_position(pair.number, first), _FREE_SLOT)
        self.flush()
        with self._lock:
            self._write_bytes(_position(pair.number, 1 - first), _FREE_SLOT)
        self.flush()
        with self._lock:
            del self._pairs[key]
            self._free.append(pair.number)

    def close(self) -> None:
        """Release the file; does not flush."""
        self._file.close()

    def _write_both(self, key: MarkKey, pair: _Pair, mark: Mark) -> None:
        with self._lock:
            self._write(key, pair, self._slot_to_write(pair), mark)
        # One after the other: a crash in the first write leaves the second slot as it was (DM1).
        self.flush()
        with self._lock:
            self._write(key, pair, 1 - pair.newest, mark)
            self._pairs[key] = pair
        self.flush()

    def _slot_to_write(self, pair: _Pair) -> int:
        """Return the slot that may be written: not the only durable one (DM1)."""
        return 1 - pair.newest if pair.generation <= self._flushed else pair.newest

    def _write(self, key: MarkKey, pair: _Pair, slot: int, mark: Mark) -> None:
        sequence = pair.sequence + 1
        self._write_bytes(
            _position(pair.number, slot), _encode(key, sequence, mark, 2 * pair.number + slot)
        )
        pair.newest, pair.sequence, pair.mark = slot, sequence, mark
        pair.generation = self._generation

    def _write_bytes(self, position: int, data: bytes) -> None:
        self._file.pwrite([data], position)
        self._generation += 1

    def _take_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._end_number += 1
        return self._end_number - 1

    def _read_all(self) -> None:
        data = self._file.pread(self._file.size_bytes(), 0)
        blocks = -(-len(data) // (2 * _PAGE_BYTES))
        data = data.ljust(blocks * 2 * _PAGE_BYTES, b"\0")
        self._end_number = blocks * _SLOTS_PER_PAGE
        for number in range(self._end_number):
            self._read_pair(data, number)
        # The lowest free number is taken first.
        self._free.reverse()

    def _read_pair(self, data: bytes, number: int) -> None:
        begins = (_position(number, 0), _position(number, 1))
        raw = [data[begin : begin + _SLOT_BYTES] for begin in begins]
        slots = [_decode(raw[slot], 2 * number + slot, self._path) for slot in (0, 1)]
        whole = [slot for slot in (0, 1) if slots[slot] is not None]
        if not whole:
            if _FREE_SLOT in raw:
                self._free.append(number)
            else:
                self._lost_pairs.append(number)
            return
        first, second = slots
        if first is not None and second is not None:
            same = first.key == second.key
            newest = 1 if second.sequence > first.sequence else 0
        else:
            same = True
            newest = whole[0]
        slot = slots[newest]
        assert slot is not None
        # One partition twice cannot be told from two: neither is believed.
        if not same or self._pairs.pop(slot.key, None) is not None:
            self._lost_pairs.append(number)
            return
        # All that was read is durable, so the other slot is written next. Only after a failed
        # flush may the disk hold the slot's earlier mark instead, until the next flush.
        self._pairs[slot.key] = _Pair(number, newest, slot.sequence, slot.mark, self._flushed)


def _position(number: int, slot: int) -> int:
    """Return the byte position of one slot of pair `number`."""
    block, index = divmod(number, _SLOTS_PER_PAGE)
    return (2 * block + slot) * _PAGE_BYTES + index * _SLOT_BYTES


def _encode(key: MarkKey, sequence: int, mark: Mark, slot_number: int) -> bytes:
    fields = _SLOT.pack(
        MARK_FORMAT,
        _FLAG_CLEAN if mark.clean else 0,
        key.partition,
        key.topic_uuid.bytes,
        sequence,
        mark.position.offset,
        mark.position.own,
        mark.segment_base,
        mark.position_bytes,
    )
    rest = fields + _PADDING
    return _CRC.pack(crc32c(rest, slot_number)) + rest


def _decode(raw: bytes, slot_number: int, path: str) -> _Slot | None:
    rest = raw[_CRC.size :]
    if raw == _FREE_SLOT or _CRC.unpack_from(raw)[0] != crc32c(rest, slot_number):
        return None
    mark_format, flags, partition, uuid, sequence, offset, own, base, position = _SLOT.unpack_from(
        rest
    )
    if mark_format != MARK_FORMAT:
        raise WrongDirectory(
            f"{path} holds a mark of format {mark_format}; this version reads {MARK_FORMAT}",
            hint="start the version of ringlog that wrote this data directory, or a newer one",
        )
    mark = Mark(Position(Offset(offset), own), Offset(base), position, bool(flags & _FLAG_CLEAN))
    return _Slot(MarkKey(UUID(bytes=uuid), partition), sequence, mark)
