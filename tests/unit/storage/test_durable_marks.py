"""Durable marks: pairs of slots in one file, read back, damaged, freed and used again."""

import struct
import threading
from uuid import UUID

import pytest
from crc32c import crc32c

from ringlog.storage.durable_marks import DURABLE_MARKS_NAME, DurableMarks, Mark, MarkKey
from ringlog.storage.errors import DamagedState, LogDirFailed, WrongDirectory
from ringlog.storage.simulated_files import Call, SimulatedDisk
from ringlog.storage.types import Offset, Position

KEY = MarkKey(UUID(int=5), 3)


def mark(offset: int, *, own: int = 0, clean: bool = False) -> Mark:
    return Mark(Position(Offset(offset), own), Offset(offset // 100 * 100), offset * 7, clean)


def key(number: int) -> MarkKey:
    return MarkKey(UUID(int=1000 + number), number % 7)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.directory().create()
    return disk


def opened(disk: SimulatedDisk) -> DurableMarks:
    return DurableMarks.open(disk.directory())


def durable(disk: SimulatedDisk) -> bytes:
    data = disk.durable_bytes(DURABLE_MARKS_NAME)
    assert data is not None
    return data


def test_a_new_file_has_no_marks_and_its_name_is_durable(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    assert marks.get(KEY) is None
    assert marks.keys() == []
    assert durable(disk) == b""


def test_a_slot_is_laid_out_as_documented(disk: SimulatedDisk) -> None:
    opened(disk).put(KEY, Mark(Position(Offset(70), 6), Offset(50), 4321, clean=True))
    for slot, sequence in ((0, 1), (1, 2)):
        raw = durable(disk)[4096 * slot :][:128]
        crc, version, flags, partition, uuid, *rest = struct.unpack_from(">IBBI16sQqqqq", raw)
        assert (version, flags, partition, UUID(bytes=uuid)) == (1, 1, 3, UUID(int=5))
        assert rest == [sequence, 70, 6, 50, 4321]
        assert crc == crc32c(raw[4:], slot)
        assert raw[66:] == bytes(62)


def test_marks_are_read_back(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    for number in range(70):
        marks.put(key(number), mark(number, own=number))
    marks.put(key(5), mark(900, own=8, clean=True))
    again = opened(disk)
    assert again.get(key(5)) == mark(900, own=8, clean=True)
    assert all(again.get(key(n)) == mark(n, own=n) for n in range(70) if n != 5)
    assert set(again.keys()) == {key(n) for n in range(70)}
    again.close()


def test_a_first_mark_is_durable_in_both_slots_at_once(disk: SimulatedDisk) -> None:
    opened(disk).put(KEY, mark(1))
    assert struct.unpack_from(">q", durable(disk), 34) == (1,)
    assert struct.unpack_from(">q", durable(disk), 4096 + 34) == (1,)


def test_a_later_mark_is_durable_after_the_flush_only(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    before = durable(disk)
    marks.put(KEY, mark(2))
    assert durable(disk) == before
    marks.flush()
    assert durable(disk) != before


def test_a_flush_with_nothing_put_costs_nothing(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    calls = disk.call_count
    marks.flush()
    assert disk.call_count == calls


def test_puts_without_a_flush_never_touch_the_durable_slot(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    before = durable(disk)
    for offset in range(2, 6):
        marks.put(KEY, mark(offset))
    marks.flush()
    after = durable(disk)
    changed = [slot for slot in (0, 1) if after[4096 * slot :][:128] != before[4096 * slot :][:128]]
    assert len(changed) == 1


def test_flushed_puts_alternate(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    slots = []
    for offset in range(4):
        before = durable(disk)
        marks.put(KEY, mark(offset))
        marks.flush()
        slots.append(
            [s for s in (0, 1) if durable(disk)[4096 * s :][:128] != before[4096 * s :][:128]]
        )
    assert slots[1:] == [[0], [1], [0]]


def test_lowering_is_durable_in_both_slots(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(50))
    marks.put(KEY, mark(60))
    marks.lower(KEY, mark(20))
    assert marks.get(KEY) == mark(20)
    for slot in (0, 1):
        assert struct.unpack_from(">q", durable(disk), 4096 * slot + 34) == (20,)


def test_only_lower_moves_a_mark_down(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(50, own=2))
    for lower in (mark(49, own=9), mark(50, own=1)):
        with pytest.raises(AssertionError, match="DM3"):
            marks.put(KEY, lower)


def test_a_damaged_slot_leaves_the_other(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    marks.put(KEY, mark(2))
    marks.flush()
    # mark 2 took slot 0, slot 1 still holds mark 1
    disk.damage(DURABLE_MARKS_NAME, 40, b"\xff")
    again = opened(disk)
    assert again.get(KEY) == mark(1)
    # the only whole slot is not written next
    again.put(KEY, mark(3))
    disk.damage(DURABLE_MARKS_NAME, 40, b"\xee")
    assert opened(disk).get(KEY) == mark(1)


def test_two_damaged_slots_are_damage_of_whoever_is_not_found(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    marks.put(key(1), mark(2))
    disk.damage(DURABLE_MARKS_NAME, 40, b"\xff")
    disk.damage(DURABLE_MARKS_NAME, 4096 + 40, b"\xff")
    again = opened(disk)
    assert again.get(key(1)) == mark(2)
    with pytest.raises(DamagedState, match="bytes 0") as caught:
        again.get(KEY)
    assert DURABLE_MARKS_NAME in caught.value.path
    assert caught.value.hint


def test_a_pair_of_two_partitions_belongs_to_neither(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    other = SimulatedDisk()
    other.directory().create()
    opened(other).put(key(1), mark(2))
    disk.damage(DURABLE_MARKS_NAME, 0, durable(other)[:128])
    with pytest.raises(DamagedState):
        opened(disk).get(KEY)


def test_a_slot_written_to_a_wrong_place_does_not_count(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    marks.put(key(1), mark(2))
    disk.damage(DURABLE_MARKS_NAME, 128, durable(disk)[:128])
    assert opened(disk).get(KEY) == mark(1)
    assert opened(disk).get(key(1)) == mark(2)


def test_a_newer_format_is_refused(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    raw = bytearray(durable(disk)[:128])
    raw[4] = 2
    raw[:4] = struct.pack(">I", crc32c(raw[4:], 0))
    disk.damage(DURABLE_MARKS_NAME, 0, bytes(raw))
    with pytest.raises(WrongDirectory, match="format 2"):
        opened(disk)


def test_forgotten_slots_are_free_and_used_again(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    for number in range(3):
        marks.put(key(number), mark(number))
    size = len(durable(disk))
    marks.forget(key(1))
    marks.forget(key(1))
    assert marks.get(key(1)) is None
    assert opened(disk).keys() == [key(0), key(2)]
    marks.put(key(9), mark(9))
    assert len(durable(disk)) == size
    again = opened(disk)
    assert again.get(key(9)) == mark(9)
    assert again.get(key(1)) is None
    again.put(key(10), mark(10))
    assert opened(disk).get(key(10)) == mark(10)


def test_a_failed_flush_is_told_and_not_repeated(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    marks.put(KEY, mark(1))
    marks.put(KEY, mark(2))
    disk.fail(Call.SYNC, name=DURABLE_MARKS_NAME)
    with pytest.raises(LogDirFailed):
        marks.flush()
    with pytest.raises(LogDirFailed):
        marks.flush()


def test_threads_put_their_own_partitions(disk: SimulatedDisk) -> None:
    marks = opened(disk)

    def work(number: int) -> None:
        for offset in range(40):
            marks.put(key(number), mark(offset))
            if offset % 5 == 0:
                marks.flush()
        marks.lower(key(number), mark(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = opened(disk)
    assert [again.get(key(number)) for number in range(4)] == [mark(n) for n in range(4)]


def test_one_partition_in_two_pairs_is_believed_in_neither(disk: SimulatedDisk) -> None:
    opened(disk).put(KEY, mark(1))
    raw = bytearray(durable(disk)[:128])
    raw[:4] = struct.pack(">I", crc32c(raw[4:], 2))
    disk.damage(DURABLE_MARKS_NAME, 128, bytes(raw))
    with pytest.raises(DamagedState):
        opened(disk).get(KEY)
