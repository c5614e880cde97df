"""What the agent sends, whom it wakes, and what a subscription gains."""

import threading

from ringlog.client.errors import Busy, ClientClosed, NotLeader, PartitionDamaged
from ringlog.client.fetch_slot import SlotState
from ringlog.client.messages import EARLIEST, FetchRequest, ListOffsetsRequest, MetadataResponse
from ringlog.client.requests import AtBroker
from ringlog.storage.types import TopicPartition
from tests.unit.client.agent_world import AgentWorld
from tests.unit.client.fetch_world import topic_metadata


def is_woken(world: AgentWorld) -> "Waiter":
    return Waiter(world)


class Waiter:
    """A thread that waits for the condition; `with` ends when it was notified."""

    def __init__(self, world: AgentWorld) -> None:
        self.changed = world.agent.changed
        self.woken = False
        self.thread = threading.Thread(target=self._wait)

    def _wait(self) -> None:
        with self.changed:
            self.ready.set()
            self.woken = self.changed.wait(10)

    def __enter__(self) -> "Waiter":
        self.ready = threading.Event()
        self.thread.start()
        self.ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        assert self.woken


def test_looks_are_tried_again_sooner_than_fetches() -> None:
    world = AgentWorld(2)
    world.assign(0, 1)
    world.turn()
    looks = world.asked()
    assert [request.route for request in looks] == [AtBroker(0), AtBroker(1)]
    assert all(isinstance(request.body, ListOffsetsRequest) for request in looks)
    assert {request.timeout_ms for request in looks} == {1_000}
    assert not any(request.retry for request in looks)
    for request in looks:
        world.answer(request)
    world.turn()
    fetches = world.asked()
    assert all(isinstance(request.body, FetchRequest) for request in fetches)
    assert {request.timeout_ms for request in fetches} == {3_500}
    assert not any(request.retry for request in fetches)


def test_an_answer_wakes_whoever_waits() -> None:
    world = AgentWorld()
    world.assign(0)
    world.turn()
    (look,) = world.asked()
    with is_woken(world):
        world.answer(look)
    assert world.slot().state is SlotState.READY


def test_an_error_found_without_an_answer_wakes_whoever_waits() -> None:
    world = AgentWorld()
    world.assign(0)
    world.slot().halt(PartitionDamaged("bad"))
    with is_woken(world):
        world.turn()


def test_the_end_of_the_client_wakes_whoever_waits() -> None:
    world = AgentWorld()
    error = ClientClosed("closed")
    with is_woken(world):
        world.agent.on_client_ended(error)
    assert world.agent.failure is error


def test_stale_topics_are_asked_for_once() -> None:
    world = AgentWorld()
    world.assign(0)
    world.turn()
    world.answer(world.asked()[0], NotLeader("moved"))
    world.turn()
    world.turn()
    assert world.session.refreshed == ["t"]


def test_it_is_due_again_when_the_first_pause_ends() -> None:
    world = AgentWorld(2)
    world.assign(0, 1)
    world.turn()
    one, two = world.asked()
    world.answer(one, Busy("full"))
    world.answer(two, Busy("full"))
    due_ms = min(world.slot(number).not_before_ms for number in (0, 1))
    assert world.agent.turn(world.now_ms) == due_ms
    world.run()
    assert world.turn() is None


def test_finders_have_their_turn_beside_the_fetcher() -> None:
    world = AgentWorld(2)
    world.leader.append(1, 5)
    finder = world.fetcher.finder({world.place(1): 2_000})
    world.agent.finders.append(finder)
    world.turn()
    (look,) = world.asked()
    with is_woken(world):
        world.answer(look)
    assert finder.slots[world.place(1)].found == 2
    assert world.fetcher.slots == {}


def test_a_finder_backs_off_and_refreshes_like_the_fetcher() -> None:
    world = AgentWorld()
    finder = world.fetcher.finder({world.place(): EARLIEST})
    world.agent.finders.append(finder)
    world.turn()
    world.answer(world.asked()[0], NotLeader("moved"))
    due_ms = finder.slots[world.place()].not_before_ms
    assert world.agent.turn(world.now_ms) == due_ms
    assert world.session.refreshed == ["t"]


def grown(world: AgentWorld, partitions: int, topic: str = "t") -> None:
    world.metadata.apply(MetadataResponse("c", 0, [], [topic_metadata(partitions, topic)]))
    world.session.metadata_answers += 1
    world.turn()


def test_a_subscribed_topic_gains_partitions_from_their_first_record() -> None:
    world = AgentWorld()
    world.assign(0)
    world.agent.subscribed = ("t",)
    world.run()
    grown(world, 3)
    assert world.agent.gained == [world.place(1), world.place(2)]
    assert world.slot(1).target_ms == EARLIEST
    grown(world, 3)
    assert len(world.agent.gained) == 2


def test_what_is_assigned_by_hand_gains_nothing() -> None:
    world = AgentWorld()
    world.assign(0)
    grown(world, 3)
    assert world.agent.gained == []
    assert list(world.fetcher.slots) == [world.place(0)]


def test_a_topic_that_is_not_known_or_not_read_gains_nothing() -> None:
    world = AgentWorld()
    world.assign(0)
    world.agent.subscribed = ("t", "u", "v")
    grown(world, 2, topic="u")
    assert world.agent.gained == []
    assert TopicPartition("u", 0) not in world.fetcher.slots


def test_metadata_is_looked_at_only_when_there_was_an_answer() -> None:
    world = AgentWorld()
    world.assign(0)
    world.agent.subscribed = ("t",)
    world.turn()
    world.metadata.apply(MetadataResponse("c", 0, [], [topic_metadata(3)]))
    world.turn()
    assert world.agent.gained == []


def test_waking_makes_the_io_thread_take_a_turn() -> None:
    world = AgentWorld()
    world.assign(0)
    world.agent.wake()
    assert world.slot().state is SlotState.READY


def test_a_child_of_a_fork_gets_a_lock_that_is_free() -> None:
    world = AgentWorld()
    before = world.agent.changed
    world.agent.on_forked()
    assert world.agent.changed is not before
