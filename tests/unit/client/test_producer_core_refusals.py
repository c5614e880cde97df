"""What the producer core makes of a partition that cannot take its batches."""

from ringlog.client.errors import BrokerStopping, DeadlineExceeded, PartitionDamaged
from tests.unit.client.producer_world import World


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
