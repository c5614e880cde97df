"""Decoding, deserializers, and when a position moves."""

import contextlib
from collections.abc import Callable

import msgspec
import pytest

from ringlog.client.errors import CorruptRecord, DeserializationFailed, InvalidArgument
from ringlog.client.fetch_slot import Chunk
from ringlog.client.hand_out import HandOut
from ringlog.client.messages import FetchResult
from ringlog.client.record import Record
from ringlog.storage.record_batch import HEADER_SIZE, pack_header, read_header
from ringlog.storage.record_codec import encode_batch
from tests.unit.client.fetch_world import FetchWorld, fetched


def filled(partitions: int = 1, records: int = 10, **settings: object) -> FetchWorld:
    """Everything is buffered."""
    world = FetchWorld(partitions, **settings)  # type: ignore[arg-type]  # by name
    for number in range(partitions):
        world.leader.append(number, records)
    world.assign(*range(partitions))
    world.go_on()
    return world


def test_records_come_whole_and_move_the_position() -> None:
    world = FetchWorld()
    world.assign(0)
    world.go_on(1)
    data = encode_batch([b"v"], keys=[b"k"], headers=[[("h", b"1")]], timestamps=7)
    world.reply(world.one(), fetched(FetchResult(1, 0, 0), frames=[data]))
    assert world.take() == [Record("t", 0, 0, 7, b"k", b"v", (("h", b"1"),))]
    assert world.slot().position == 1
    assert world.fetcher.buffered_bytes == 0


def test_a_batch_is_handed_out_in_parts() -> None:
    world = filled()
    for first in (0, 4, 8):
        assert world.slot().position == first
        offsets = world.offsets(4)
        assert offsets == list(range(first, min(first + 4, 10)))
    assert world.slot().position == 10
    assert world.take() == []


def test_a_batch_is_handed_out_to_its_end_before_the_next_partition_is_decoded() -> None:
    world = filled(2)
    seen = [one.partition for _ in range(7) for one in world.take(3)]
    assert seen == [0] * 10 + [1] * 10


def test_one_take_goes_on_over_batches_and_partitions() -> None:
    world = FetchWorld(2)
    for number in (0, 1):
        world.leader.append(number, 3)
        world.leader.append(number, 2)
    world.assign(0, 1)
    world.go_on()
    assert [(one.partition, one.offset) for one in world.take(7)] == [
        *((0, offset) for offset in range(3)),
        *((1, offset) for offset in range(3)),
        (0, 3),
    ]


def test_records_below_the_offset_asked_for_are_left_out() -> None:
    world = filled()
    world.fetcher.seek(world.slot(), 6)
    world.go_on(1)
    assert world.offsets() == [6, 7, 8, 9]


def changed(batch: bytes, **fields: int) -> bytes:
    """Another header in front of the same records; the CRC is right."""
    records = batch[HEADER_SIZE:]
    header = msgspec.structs.replace(read_header(batch), **fields)
    return pack_header(header, records) + records


def test_a_batch_with_nothing_to_hand_out_is_passed() -> None:
    world = FetchWorld()
    world.assign(0)
    world.fetcher.seek(world.slot(), 4)
    # Compacted: the header's last offset is 7, of the records only offset 3 is left.
    data = changed(encode_batch([b"a"], base_offset=3), last_offset_delta=4)
    world.reply(world.one(), fetched(FetchResult(9, 0, 0), frames=[data]))
    assert world.take() == []
    assert world.slot().position == 8
    assert world.fetcher.buffered_bytes == 0


def corrupt(number: int = 0) -> FetchWorld:
    """The second batch of a partition has a wrong byte; the others have none."""
    world = FetchWorld(2)
    for at in (0, 1):
        world.leader.append(at, 3)
        world.leader.append(at, 3)
    base, count, good = world.leader.batches[number][1]
    world.leader.batches[number][1] = base, count, good[:-2] + bytes([good[-2] ^ 1]) + good[-1:]
    world.assign(0, 1)
    world.go_on()
    return world


def test_a_corrupt_batch_halts_its_partition_before_any_of_its_records() -> None:
    world = corrupt()
    seen = [(one.partition, one.offset) for one in world.take()]
    assert sorted(seen) == [(0, 0), (0, 1), (0, 2), *((1, offset) for offset in range(6))]
    error = world.fetcher.take_error()
    assert isinstance(error, CorruptRecord)
    assert "t-0 at offset 3: " in error.cause
    assert "CRC-32C" in error.cause
    assert error.hint == "nothing of the batch was handed out; seek past it to go on"
    assert error.__cause__ is not None
    assert world.slot().position == 3


def test_a_codec_that_is_not_built_in_is_named() -> None:
    world = FetchWorld()
    world.assign(0)
    world.go_on(1)
    data = changed(encode_batch([b"v"]), attributes=2)
    world.reply(world.one(), fetched(FetchResult(1, 0, 0), frames=[data]))
    assert world.take() == []
    error = world.fetcher.take_error()
    assert isinstance(error, CorruptRecord)
    assert "snappy" in error.cause
    assert error.hint


def picky(bad: bytes) -> Callable[[bytes | None], object]:
    def deserialize(value: bytes | None) -> str:
        assert value is not None
        if value == bad:
            raise ValueError("no")
        return value.decode()

    return deserialize


def test_deserializers_make_keys_and_values() -> None:
    world = filled(records=1, key=lambda key: ("key", key), value=lambda value: ("value", value))
    (record,) = world.take()
    assert (record.key, record.value) == (("key", None), ("value", b"0:0"))
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 0, 0, 0)


def test_what_a_deserializer_raises_comes_again_until_a_seek() -> None:
    world = filled(value=picky(b"0:3"))
    assert world.offsets() == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(DeserializationFailed, match="t-0 at offset 3: no") as caught:
            world.take()
        assert isinstance(caught.value.record, Record)
        assert caught.value.record.value == b"0:3"
        assert caught.value.hint == "seek to offset 4 to skip it"
        assert isinstance(caught.value.__cause__, ValueError)
        assert world.slot().position == 3
    world.fetcher.seek(world.slot(), 4)
    world.go_on(1)
    assert world.offsets() == [4, 5, 6, 7, 8, 9]


def test_the_others_go_on_beside_a_deserializer_that_raises() -> None:
    world = filled(2, value=picky(b"0:0"))
    with pytest.raises(DeserializationFailed):
        world.take(2)
    seen = []
    for _ in range(20):
        with contextlib.suppress(DeserializationFailed):
            seen += [(one.partition, one.offset) for one in world.take(2)]
    assert seen == [(1, offset) for offset in range(10)]


def test_a_key_that_cannot_be_read_is_no_different() -> None:
    world = FetchWorld(key=picky(b""))
    world.leader.append(0, 1)
    world.assign(0)
    world.go_on()
    with pytest.raises(DeserializationFailed, match="AssertionError"):
        world.take()


def meddling(act: Callable[[FetchWorld], object]) -> FetchWorld:
    """`act` is called once, while the record with offset 1 is being deserialized."""
    acts = [act]

    def deserialize(value: bytes | None) -> bytes | None:
        if value == b"0:1" and acts:
            acts.pop()(world)
        return value

    world = filled(value=deserialize)
    return world


def test_a_seek_by_a_deserializer_is_not_undone() -> None:
    world = meddling(lambda world: world.fetcher.seek(world.slot(), 7))
    assert world.take() == []
    assert world.slot().position == 7
    world.go_on(1)
    assert world.offsets() == [7, 8, 9]


def test_a_pause_by_a_deserializer_holds_the_record_back() -> None:
    def pause(world: FetchWorld) -> None:
        world.slot().paused = True

    world = meddling(pause)
    assert world.take() == []
    assert world.slot().position == 0
    world.slot().paused = False
    assert world.offsets() == list(range(10))


def test_a_take_inside_a_take_says_so() -> None:
    world = meddling(FetchWorld.take)
    assert world.offsets(1) == [0]
    with pytest.raises(DeserializationFailed, match="a deserializer asked for records") as caught:
        world.take()
    assert isinstance(caught.value.__cause__, InvalidArgument)
    assert world.offsets() == list(range(1, 10))


def test_a_seek_while_a_corrupt_batch_is_decoded_wins() -> None:
    world = corrupt()
    assert len(world.take(3)) == 3

    class Seeking(contextlib.AbstractContextManager[None]):
        """Each entry of the lock is where another thread may have been before."""

        entries = 0

        def __enter__(self) -> None:
            self.entries += 1
            if self.entries == 2:
                world.fetcher.seek(world.slot(0), 0)

        def __exit__(self, *_: object) -> None:
            return

    world.slot(1).paused = True
    hand_out = HandOut(world.fetcher, Seeking(), None, None)
    assert hand_out.take(10, list[Record]().extend) == 0
    assert world.fetcher.take_error() is None
    assert world.slot(0).position == 0


def test_the_lock_is_not_held_while_a_deserializer_runs() -> None:
    held, during = [0], set()

    class Counting(contextlib.AbstractContextManager[None]):
        def __enter__(self) -> None:
            held[0] += 1

        def __exit__(self, *_: object) -> None:
            held[0] -= 1

    world = filled()
    hand_out = HandOut(
        world.fetcher, Counting(), None, lambda _value: during.add(("deserialize", held[0]))
    )
    assert hand_out.take(10, lambda _records: during.add(("sink", held[0]))) == 10
    assert during == {("deserialize", 0), ("sink", 1)}


def test_what_was_open_and_is_gone_is_left() -> None:
    world = filled(2)
    world.take(3)
    world.fetcher.seek(world.slot(0), 9)
    world.go_on(1)
    assert sorted((one.partition, one.offset) for one in world.take()) == [
        (0, 9),
        *((1, offset) for offset in range(10)),
    ]


def test_a_chunk_of_a_slot_that_was_dropped_is_not_touched() -> None:
    world = filled()
    chunk = world.fetcher.next_chunk()
    assert isinstance(chunk, Chunk)
    world.take(2)
    world.assign()
    assert world.take() == []
    assert world.fetcher.buffered_bytes == 0
