"""The states of a partition, and what each way into one takes along."""

from collections.abc import Callable

import pytest

from ringlog.client.errors import Busy, PartitionDamaged
from ringlog.client.fetch_slot import NO_OFFSET, Chunk, Slot, SlotState
from ringlog.client.messages import EARLIEST, LATEST
from ringlog.storage.types import TopicPartition


@pytest.fixture
def slot() -> Slot:
    return Slot(TopicPartition("t", 0))


def test_a_look_has_no_position_until_it_has_found_one(slot: Slot) -> None:
    slot.start_at(5)
    slot.look_for(EARLIEST)
    assert (slot.state, slot.position, slot.fetch_from) == (SlotState.LOOKING, -1, -1)
    slot.found_at(7, 9)
    assert (slot.state, slot.position, slot.fetch_from) == (SlotState.READY, 7, 7)
    assert slot.found == 7


@pytest.mark.parametrize(
    ("target_ms", "found", "is_fresh", "position"),
    [
        (EARLIEST, 7, True, 7),
        (EARLIEST, 9, True, 9),
        (LATEST, 9, False, 9),
        (1_000, 8, True, 8),
        (1_000, NO_OFFSET, False, 9),
    ],
)
def test_what_may_be_looked_for_again(
    slot: Slot, target_ms: int, found: int, is_fresh: bool, position: int
) -> None:
    slot.look_for(target_ms)
    slot.found_at(found, 9)
    assert (slot.is_fresh, slot.position, slot.found) == (is_fresh, position, found)
    slot.start_at(3)
    assert not slot.is_fresh


def test_every_start_is_a_new_version_and_forgets_what_was_under_way(slot: Slot) -> None:
    starts: list[Callable[[int], None]] = [slot.start_at, slot.look_for]
    for start in starts:
        before = slot.version
        slot.fetching = True
        slot.chunks.append(Chunk(slot, 0, memoryview(b"x")))
        slot.halt(PartitionDamaged("bad"))
        start(4)
        assert slot.version > before
        assert (slot.fetching, len(slot.chunks)) == (False, 0)
        assert (slot.error, slot.trouble) == (None, None)


def test_trouble_ends_with_an_answer_and_an_error_does_not(slot: Slot) -> None:
    slot.start_at(1)
    slot.attempts = 3
    slot.back_off(Busy("full"), 500)
    assert slot.not_before_ms == 500
    slot.get_on()
    assert not slot.trouble
    assert (slot.attempts, slot.not_before_ms) == (0, 0)
    error = PartitionDamaged("bad")
    slot.halt(error)
    assert (slot.state, slot.error, slot.trouble) == (SlotState.HALTED, error, error)


def test_a_chunk_lives_while_its_partition_hands_it_out_next(slot: Slot) -> None:
    one, two = (Chunk(slot, offset, memoryview(b"xx")) for offset in (0, 1))
    slot.chunks.extend((one, two))
    assert (one.is_live, two.is_live) == (True, False)
    slot.chunks.popleft()
    assert (one.is_live, two.is_live) == (False, True)
    slot.chunks.clear()
    assert not two.is_live


def test_a_chunk_is_done_when_bytes_and_records_are(slot: Slot) -> None:
    chunk = Chunk(slot, 0, memoryview(b"xx"))
    assert not chunk.is_done
    chunk.position_bytes = 2
    assert chunk.is_done
