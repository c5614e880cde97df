"""What the producer core makes of a partition that cannot take its batches."""

from ringlog.client.errors import (
    BrokerStopping,
    DeadlineExceeded,
    PartitionDamaged,
    RecordTooLarge,
)
from ringlog.client.messages import ProduceRequest, ProduceResponse, ProduceResult
from ringlog.client.producer_effects import Produce
from ringlog.client.requests import Answer
from ringlog.storage.record_codec import decode_records
from tests.unit.client.producer_world import World, header


def test_a_damaged_partition_ends_its_batches_once_a_broker_has_said_so_again() -> None:
    world = World()
    world.lead(-1, 1, because=PartitionDamaged("flipped"))
    batch, healthy = world.open(), world.open(partition=1)
    assert not batch.done, "what is known may be old"
    assert world.wants_metadata
    world.lead(-1, 1, because=PartitionDamaged("flipped"))
    world.core.on_metadata(world.now_ms)
    world.turn()
    assert isinstance(world.error_of(batch), PartitionDamaged)
    world.give_id()
    world.answer(world.take(), 0)
    assert world.error_of(healthy) is None
    world.lead(1, 1)
    again = world.open()
    world.answer(world.take(), 0)
    assert world.error_of(again) is None


def test_an_old_word_of_damage_is_asked_for_again_each_time() -> None:
    world = World()
    world.lead(-1, 1, because=PartitionDamaged("flipped"))
    for _ in range(2):
        batch = world.open()
        world.core.on_metadata(world.now_ms)
        world.turn()
        assert not batch.done, "the same answer twice is one answer"
        world.lead(-1, 1, because=PartitionDamaged("flipped"))
        world.core.on_metadata(world.now_ms)
        world.turn()
        assert batch.done


def test_what_passes_is_waited_for_and_named() -> None:
    world = World()
    world.lead(-1, 1, because=BrokerStopping("moving"))
    batch = world.open()
    for _ in range(3):
        world.lead(-1, 1, because=BrokerStopping("moving"))
        world.core.on_metadata(world.now_ms)
        world.turn()
    assert not batch.done
    world.wait(10_000)
    error = world.error_of(batch)
    assert type(error) is DeadlineExceeded
    assert "moving" in error.cause


def test_a_record_no_connection_would_carry_is_never_sent() -> None:
    world = World(batch_size=4)
    world.proven()
    world.core.max_message_bytes = 300
    big, small = world.open(b"x" * 400), world.open(b"y")
    assert isinstance(world.error_of(big), RecordTooLarge)
    world.wait(200)
    assert world.take().batches == [small]


def test_a_batch_no_connection_would_carry_leaves_in_parts_and_each_once() -> None:
    world = World(batch_size=4)
    world.proven()
    world.core.max_message_bytes = 300
    batch = world.open(b"a" * 100, b"b" * 100, b"c" * 400, b"d" * 100)
    sent = [part for produce in world.sent for part in produce.batches]
    world.sent.clear()
    assert [len(decode_records(part.payload)) for part in sent] == [2, 1]
    assert all(len(part.payload) <= 300 for part in sent)
    assert [header(part).base_sequence for part in sent] == [1, 3]
    for index, part in enumerate(sent):
        world.core.on_produced(
            Produce(1, ProduceRequest(-1, 1, []), [part], 1),
            Answer(ProduceResponse([ProduceResult(10 + 2 * index, 0)])),
            world.now_ms,
        )
        world.turn()
    assert batch.done
    assert world.sent == []
