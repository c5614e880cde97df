"""Which batch a record joins, room by bytes, and many threads at once."""

import random
import threading

import pytest

from ringlog.client.accumulator import ANY_PARTITION, Accumulator, Record, Topic
from ringlog.client.batch import Batch
from ringlog.client.delivery import Delivery
from ringlog.client.errors import BufferFull, ClientClosed
from ringlog.client.producer_config import ProducerConfig
from ringlog.storage.types import NO_TIMESTAMP


class World:
    def __init__(self, **settings: int) -> None:
        self.now_ms = 0
        self.opened: list[Batch] = []
        self.hurried: list[Batch] = []
        self.short = 0
        values = {"batch_size": 4, "batch_bytes": 4096, "buffer_memory": 8192, **settings}
        self.accumulator = Accumulator(
            owner=self,
            on_opened=self.opened.append,
            on_short=self.on_short,
            clock=lambda: self.now_ms,
            rng=random.Random(2),
            config=ProducerConfig(**values),  # type: ignore[arg-type]  # by name
        )
        self.topic = Topic("t", 3, [0, 1, 2])

    def hurry(self, batch: Batch) -> None:
        self.hurried.append(batch)

    def on_short(self) -> None:
        self.short += 1

    def add(
        self,
        value: bytes | None = b"v",
        partition: int = 0,
        *,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp_ms: int = NO_TIMESTAMP,
        size_bytes: int = 20,
    ) -> Delivery:
        record = Record(value, key, headers, timestamp_ms, size_bytes)
        return self.accumulator.add(self.topic, partition, record)

    def end(self, batch: Batch) -> None:
        batch.close()
        batch.finish(0, None)
        self.accumulator.ended(batch)


def test_records_of_a_partition_fill_one_batch_and_then_the_next() -> None:
    world = World()
    deliveries = [world.add(b"%d" % number) for number in range(6)]
    assert [delivery.index for delivery in deliveries] == [0, 1, 2, 3, 0, 1]
    first, second = world.opened
    assert first.values == [b"0", b"1", b"2", b"3"]
    assert second.partition == 0
    assert list(world.accumulator.live) == [first, second]


def test_a_batch_has_its_first_record_before_anybody_hears_of_it() -> None:
    world = World()
    seen: list[object] = []
    world.accumulator._on_opened = lambda batch: seen.append(batch.values[0])
    world.add(b"first")
    assert seen == [b"first"]


def test_records_without_a_key_stay_with_one_partition_until_its_batch_is_full() -> None:
    world = World(buffer_memory=1 << 20)
    for _ in range(40):
        world.add(partition=ANY_PARTITION)
    assert [batch.taken() for batch in world.opened] == [4] * 10
    assert {batch.partition for batch in world.opened} == {0, 1, 2}
    assert world.accumulator.sticky["t"] is world.opened[-1]


def test_partitions_without_a_leader_get_no_keyless_records_unless_all_lack_one() -> None:
    world = World(buffer_memory=1 << 20)
    world.topic.update(3, [1])
    for _ in range(9):
        world.add(partition=ANY_PARTITION)
    assert {batch.partition for batch in world.opened} == {1}
    world.topic.update(3, [])
    for _ in range(40):
        world.add(partition=ANY_PARTITION)
    assert {batch.partition for batch in world.opened[3:]} == {0, 1, 2}


def test_columns_are_made_when_a_record_needs_them() -> None:
    world = World()
    world.add(b"a")
    world.add(b"b", key=b"k", headers=(("h", b"x"),), timestamp_ms=9)
    columns = world.opened[0].take_columns(5)
    assert columns is not None
    assert columns.keys == [None, b"k"]
    assert columns.headers == [(), (("h", b"x"),)]
    assert columns.timestamps == [5, 9]


def test_large_records_fill_a_batch_by_bytes() -> None:
    world = World(buffer_memory=1 << 20)
    for _ in range(5):
        world.add(size_bytes=2000)
    assert [batch.taken() for batch in world.opened] == [2, 2, 1]


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    world = World(buffer_memory=1 << 20)
    world.add()
    world.add(size_bytes=9000)
    world.add(size_bytes=2000)
    assert [batch.taken() for batch in world.opened] == [1, 1, 1]


def test_a_record_goes_into_another_batch_when_its_own_was_closed_meanwhile() -> None:
    world = World()
    first = world.add(b"a")
    first.batch.close()
    second = world.add(b"b")
    assert second.batch is not first.batch
    assert second.index == 0


def test_a_slot_that_became_a_hole_is_not_confirmed() -> None:
    world = World()
    batch = world.add(b"a").batch
    late = next(batch.slots)
    batch.close()
    assert world.accumulator.confirm(batch, 0) is not None
    world.accumulator.give_up_empty(batch, 1)
    record = Record(b"b", None, (), NO_TIMESTAMP, 20)
    assert world.accumulator.write(batch, late, record) is None
    batch.free_records()
    assert world.accumulator.write(batch, late, record) is None


def test_room_is_bounded_and_the_wait_has_a_deadline() -> None:
    world = World(max_block_ms=0)
    world.add(partition=0)
    world.add(partition=1)
    with pytest.raises(BufferFull, match="buffer_memory = 8192") as caught:
        world.add(partition=2)
    assert isinstance(caught.value, TimeoutError)
    assert len(world.opened) == 2
    world.add(partition=0)
    world.end(world.opened[0])
    world.add(partition=2)


def test_a_closed_batch_gives_back_what_it_does_not_need() -> None:
    world = World(max_block_ms=0)
    first, second = (world.add(partition=number).batch for number in (0, 1))
    world.accumulator.measured(first, 100)
    with pytest.raises(BufferFull):
        world.add(partition=2)
    world.accumulator.measured(second, 100)
    world.add(partition=2)


def test_whoever_waits_for_room_asks_for_everything_to_be_sent_and_is_woken() -> None:
    world = World(max_block_ms=60_000)
    world.add(partition=0)
    world.add(partition=1)
    asked = threading.Event()
    world.accumulator._on_short = asked.set
    added: list[Delivery] = []
    thread = threading.Thread(target=lambda: added.append(world.add(partition=2)))
    thread.start()
    assert asked.wait(10)
    world.end(world.opened[0])
    thread.join(10)
    assert added[0].batch.partition == 2


def test_with_nothing_held_any_record_fits() -> None:
    world = World(max_block_ms=0)
    world.add(size_bytes=100_000)
    with pytest.raises(BufferFull):
        world.add(partition=1)


def test_a_refusal_ends_the_fast_path_and_every_wait() -> None:
    world = World(max_block_ms=60_000)
    world.add(partition=ANY_PARTITION)
    world.add(partition=1 if world.opened[0].partition != 1 else 2)
    asked = threading.Event()
    world.accumulator._on_short = asked.set
    errors: list[Exception] = []

    def blocked() -> None:
        taken = {batch.partition for batch in world.opened}
        try:
            world.add(partition=({0, 1, 2} - taken).pop())
        except ClientClosed as error:
            errors.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    assert asked.wait(10)
    world.accumulator.refuse(ClientClosed("closed"))
    thread.join(10)
    assert len(errors) == 1
    assert world.accumulator.sticky == {}
    with pytest.raises(ClientClosed):
        world.add()


def test_after_a_fork_a_lock_that_nobody_holds_is_not_waited_for() -> None:
    world = World()
    world.add()
    world.accumulator.lock.acquire()
    world.accumulator.forked(ClientClosed("forked"))
    with pytest.raises(ClientClosed):
        world.add()
    assert not world.accumulator.live


def test_threads_fill_batches_without_loss_and_each_in_its_own_order() -> None:
    world = World(batch_size=16, buffer_memory=1 << 24)
    count, writers = 400, 4

    def write(number: int) -> None:
        for index in range(count):
            world.add(b"%d:%04d" % (number, index))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored: list[bytes | None] = []
    for batch in world.opened:
        columns = batch.take_columns(1)
        assert columns is not None
        stored += columns.values
    assert len(stored) == count * writers
    for number in range(writers):
        mine = [
            value for value in stored if value is not None and value.startswith(b"%d:" % number)
        ]
        assert mine == sorted(mine)
