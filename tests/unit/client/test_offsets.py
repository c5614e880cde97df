"""Waiting for offsets: how it ends."""

import threading

import pytest

from ringlog.client.errors import ClientClosed, DeadlineExceeded, PartitionDamaged
from ringlog.client.messages import EARLIEST, LATEST
from ringlog.client.offsets import await_positions, find_offsets
from ringlog.storage.types import TopicPartition
from tests.unit.client.agent_world import AgentWorld


def test_all_kinds_are_found_at_once() -> None:
    world = AgentWorld(4)
    for number in range(4):
        world.leader.append(number, 10)
        world.leader.delete(number, 2)
    targets = dict(zip(map(world.place, range(4)), (EARLIEST, LATEST, 4_500, 99_000), strict=True))
    found = find_offsets(world.agent, targets, 1_000, world.check_open)
    assert list(found.values()) == [2, 10, 5, -1]
    assert list(found) == list(targets)
    assert world.agent.finders == []


def test_plain_tuples_will_do_and_nothing_is_nothing() -> None:
    world = AgentWorld()
    targets: dict[TopicPartition, int] = {("t", 0): LATEST}  # type: ignore[dict-item]  # a caller's shorthand
    assert find_offsets(world.agent, targets, 1_000, world.check_open) == {world.place(): 0}
    assert find_offsets(world.agent, {}, 1_000, world.check_open) == {}


def test_many_partitions_take_one_request_per_leader() -> None:
    world = AgentWorld(100)
    world.deaf = True
    with pytest.raises(DeadlineExceeded):
        find_offsets(world.agent, {world.place(n): LATEST for n in range(100)}, 0, world.check_open)
    assert len(world.asked()) == 2


def test_what_a_broker_says_of_a_partition_is_raised_and_leaves_nothing() -> None:
    world = AgentWorld()
    world.assign(0)
    world.run()
    world.slot().halt(PartitionDamaged("bad"))
    with pytest.raises(PartitionDamaged):
        await_positions(world.agent, world.fetcher, [world.place()], 1_000, world.check_open)
    # It was raised: the position is what it was.
    await_positions(world.agent, world.fetcher, [world.place()], 1_000, world.check_open)


def test_the_deadline_names_the_partition_and_why() -> None:
    world = AgentWorld()
    world.deaf = True
    world.assign(0)
    with pytest.raises(DeadlineExceeded, match="in t-0 is not known after 0 ms: no answer came"):
        await_positions(world.agent, world.fetcher, [world.place()], 0, world.check_open)
    world.turn()
    world.answer(world.asked()[0], DeadlineExceeded("no answer from b:1"))
    with pytest.raises(DeadlineExceeded, match="no answer from b:1"):
        await_positions(world.agent, world.fetcher, [world.place()], 0, world.check_open)


def test_an_answer_in_time_ends_the_wait() -> None:
    world = AgentWorld()
    world.assign(0)
    later = threading.Timer(0.01, world.run)
    later.start()
    await_positions(world.agent, world.fetcher, [world.place()], 20_000, world.check_open)
    later.join()
    assert world.slot().position == 0


def test_a_closed_consumer_waits_for_nothing() -> None:
    world = AgentWorld()
    world.deaf = True
    world.closed = True
    with pytest.raises(ClientClosed):
        find_offsets(world.agent, {world.place(): LATEST}, 60_000, world.check_open)
    assert world.agent.finders == []


def test_what_was_dropped_meanwhile_is_not_waited_for() -> None:
    world = AgentWorld(2)
    world.assign(0)
    world.run()
    places = [world.place(0), world.place(1)]
    await_positions(world.agent, world.fetcher, places, 60_000, world.check_open)
