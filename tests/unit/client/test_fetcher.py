"""Where reading starts, what is asked for, and the bound on memory."""

import random

import pytest

from ringlog.client.errors import (
    Busy,
    PartitionDamaged,
)
from ringlog.client.fetch_slot import SlotState
from ringlog.client.fetcher import FetchLimits, Lost
from ringlog.client.messages import (
    EARLIEST,
    LATEST,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from ringlog.client.requests import Answer
from ringlog.storage.types import TopicPartition
from tests.unit.client.fetch_world import LIMITS, UUID, FetchWorld, ready

DAMAGE = PartitionDamaged("bad")


# -- where reading starts -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("target_ms", "position"), [(EARLIEST, 2), (LATEST, 10), (4_500, 5), (99_000, 10)]
)
def test_a_start_is_looked_for_and_then_read_from(target_ms: int, position: int) -> None:
    world = FetchWorld()
    world.leader.append(0, 10)
    world.leader.delete(0, 2)
    world.assign(0, target_ms=target_ms)
    world.go_on(1)
    assert world.slot().position == position
    fetch = world.one().body
    assert isinstance(fetch, FetchRequest)
    (row,) = fetch.partitions
    assert (row.topic, row.topic_uuid, row.partition, row.offset) == ("t", UUID, 0, position)


def test_the_end_is_asked_for_before_a_time_that_no_record_has_reached() -> None:
    world = FetchWorld()
    world.leader.append(0, 3)
    world.assign(0, target_ms=50_000)
    look = world.one()
    assert isinstance(look.body, ListOffsetsRequest)
    assert [row.timestamp_ms for row in look.body.partitions] == [LATEST, 50_000]
    answer = world.leader.answer(look)
    # Whatever is appended from here on is behind the answer.
    world.leader.append(0, 2)
    world.reply(look, answer)
    world.go_on()
    assert world.offsets() == [3, 4]


def test_a_start_that_lost_a_race_is_looked_for_again() -> None:
    for reset in ("none", "latest", "earliest"):
        world = ready(reset=reset)
        world.leader.delete(0, 4)
        world.go_on(3)
        assert world.fetcher.take_error() is None
        assert world.fetcher.lost == []
        assert world.offsets() == [4, 5, 6, 7, 8, 9]


def test_a_start_that_lost_a_race_is_no_hot_loop() -> None:
    world = ready()
    world.leader.delete(0, 4)
    world.go_on(1)
    assert world.fetcher.turn(world.now_ms, world.metadata) == []


def test_a_start_at_a_time_that_lost_a_race_is_looked_for_again() -> None:
    world = FetchWorld(reset="none")
    world.leader.append(0, 10)
    world.assign(0, target_ms=3_000)
    world.go_on(1)
    world.leader.delete(0, 6)
    world.go_on(3)
    assert world.offsets() == [6, 7, 8, 9]


def test_records_lost_behind_the_latest_are_an_event() -> None:
    world = FetchWorld()
    world.leader.append(0, 3)
    world.assign(0, target_ms=LATEST)
    world.go_on(1)
    world.leader.append(0, 5)
    world.leader.delete(0, 6)
    world.go_on()
    assert world.fetcher.lost == [Lost(TopicPartition("t", 0), 3, 6)]
    assert world.offsets() == [6, 7]


def test_an_error_in_a_look_is_tried_again_or_raised() -> None:
    world = FetchWorld()
    world.leader.append(0, 3)
    world.assign(0)
    fine = ListOffsetsResult(0, -1)
    for rows in ([ListOffsetsResult(-1, -1, Busy("b").info()), fine],
                 [fine, ListOffsetsResult(-1, -1, Busy("b").info())]):  # fmt: skip
        world.reply(world.one(), Answer(ListOffsetsResponse(rows)))
        assert world.slot().state is SlotState.LOOKING
    world.reply(
        world.one(),
        Answer(ListOffsetsResponse([fine, ListOffsetsResult(-1, -1, DAMAGE.info())])),
    )
    assert isinstance(world.fetcher.take_error(), PartitionDamaged)


# -- one request at a time ----------------------------------------------------------------


def test_an_answer_to_what_was_asked_before_a_seek_changes_nothing() -> None:
    world = ready()
    old = world.one()
    world.fetcher.seek(world.slot(), 7)
    new = world.one()
    world.reply(old)
    assert world.take() == []
    assert world.ask() == []
    world.reply(new)
    assert world.offsets() == [7, 8, 9]


def test_an_answer_for_a_partition_that_was_dropped_changes_nothing() -> None:
    world = ready()
    old = world.one()
    world.assign()
    world.reply(old)
    assert (world.fetcher.buffered_bytes, world.fetcher.asked_bytes) == (0, 0)
    assert world.fetcher.slots == {}


def test_a_second_chunk_is_fetched_behind_the_first_and_no_third() -> None:
    world = ready(5)
    for _ in range(3):
        world.leader.append(0, 5, padding=200)
    world.go_on(1)
    assert world.one().body.partitions[0].offset == 5  # type: ignore[union-attr]  # a fetch
    world.slot().fetching = False
    world.go_on(1)
    assert len(world.slot().chunks) == 2
    assert world.ask() == []
    assert world.offsets(5) == [0, 1, 2, 3, 4]
    assert len(world.ask()) == 1


def test_one_request_goes_to_each_leader() -> None:
    world = FetchWorld(4)
    world.assign(0, 1, 2, 3)
    assert {request.broker_id: len(request.slots) for request in world.ask()} == {0: 2, 1: 2}


def test_a_request_names_a_thousand_partitions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringlog.client.fetcher.MAX_PARTITIONS_PER_REQUEST", 2)
    world = FetchWorld(6)
    world.assign(*range(6))
    for kind in ("look", "fetch"):
        sizes = []
        requests = []
        while due := world.ask():
            requests += due
            sizes += [len(request.slots) for request in due]
        assert sorted(sizes) == [1, 1, 2, 2], kind
        for request in requests:
            world.reply(request)


# -- memory -------------------------------------------------------------------------------


def test_what_is_buffered_and_asked_for_stays_within_the_bound() -> None:
    limits = FetchLimits(1, 500, 50_000, 2_000, 10_000)
    world = FetchWorld(100, limits=limits)
    for number in range(100):
        for _ in range(20):
            world.leader.append(number, 1, padding=100)
    world.assign(*range(100))
    draw = random.Random(1)
    under_way, seen, most = world.ask(), 0, 0
    while seen < 2_000:
        fetcher = world.fetcher
        most = max(most, fetcher.buffered_bytes + fetcher.asked_bytes)
        if under_way:
            world.reply(under_way.pop(draw.randrange(len(under_way))))
        if draw.random() < 0.5:
            seen += len(world.take(draw.randrange(1, 40)))
        under_way += world.ask()
    assert 8_000 < most < 10_000 + 2 * 180


def test_a_partition_that_waits_leaves_room_for_one_that_is_busy() -> None:
    limits = FetchLimits(1, 500, 50_000, 10_000, 10_000)
    world = FetchWorld(3, limits=limits)
    world.assign(0, 1, 2)
    world.go_on(1)
    shares = [request.max_bytes for request in world.ask()]
    assert shares == [5_000, 2_500]


def test_nothing_is_asked_for_when_there_is_no_room_at_all() -> None:
    world = FetchWorld()
    world.leader.append(0, 3)
    ((_, _, batch),) = world.leader.batches[0]
    world = FetchWorld(limits=LIMITS._replace(buffer_bytes=len(batch)))
    world.leader.append(0, 3)
    world.assign(0)
    world.go_on()
    assert world.fetcher.buffered_bytes == len(batch)
    assert world.ask() == []


def test_a_batch_larger_than_everything_is_still_fetched() -> None:
    world = FetchWorld(limits=FetchLimits(1, 500, 1, 1, 1))
    world.leader.append(0, 1, padding=5_000)
    world.leader.append(0, 1)
    world.assign(0)
    world.go_on()
    assert world.ask() == []
    assert world.offsets() == [0]
    world.go_on(1)
    assert world.offsets() == [1]


def test_paused_partitions_make_room_for_the_others() -> None:
    world = FetchWorld(2, limits=FetchLimits(1, 500, 1_000, 1_000, 1_000))
    world.leader.append(0, 3, padding=400)
    world.leader.append(1, 3)
    world.assign(0)
    world.go_on()
    assert world.offsets(1) == [0]
    world.slot().paused = True
    world.assign(0, 1)
    world.go_on()
    assert [(one.partition, one.offset) for one in world.take()] == [(1, 0), (1, 1), (1, 2)]
    world.slot().paused = False
    world.go_on()
    assert world.offsets() == [1, 2]


def test_a_paused_partition_keeps_what_stands_before_its_error() -> None:
    world = FetchWorld(2, limits=FetchLimits(1, 500, 1_000, 1_000, 1_000))
    world.leader.append(0, 3, padding=400)
    world.assign(0)
    world.go_on()
    world.slot().halt(DAMAGE)
    world.slot().paused = True
    world.ask()
    assert world.fetcher.take_error() is None
    world.slot().paused = False
    assert world.offsets() == [0, 1, 2]
    assert world.fetcher.take_error() is DAMAGE


# -- turns --------------------------------------------------------------------------------


def test_partitions_take_turns() -> None:
    world = FetchWorld(3)
    for number in range(3):
        for _ in range(3):
            world.leader.append(number, 2, padding=450)
    world.assign(0, 1, 2)
    world.go_on()
    order = []
    for _ in range(9):
        order += [one.partition for one in world.take(2)]
        world.go_on(1)
    assert order == [0, 0, 1, 1, 2, 2] * 3


def test_turns_go_on_behind_partitions_that_have_nothing() -> None:
    world = FetchWorld(4)
    for number in (0, 2):
        for _ in range(3):
            world.leader.append(number, 2, padding=450)
    world.assign(0, 1, 2, 3)
    world.go_on(3)
    order = []
    for _ in range(6):
        order += [one.partition for one in world.take(2)]
        world.go_on(1)
    assert order == [0, 0, 2, 2] * 3


def test_the_next_request_begins_behind_what_was_handed_out() -> None:
    world = FetchWorld(4)
    for number in (0, 2):
        world.leader.append(number, 2)
    world.assign(0, 2)
    world.go_on()
    assert {one.partition for one in world.take(2)} == {0}
    for request in world.ask():
        assert [slot.partition.partition for slot in request.slots] == [2, 0]


def test_a_paused_partition_is_not_asked_for_and_not_handed_out() -> None:
    world = ready()
    world.go_on(1)
    world.slot().paused = True
    assert world.fetcher.next_chunk() is None
    has_records = [world.fetcher.has_records]
    assert world.ask() == []
    world.slot().paused = False
    has_records.append(world.fetcher.has_records)
    assert has_records == [False, True]
    assert len(world.offsets()) == 10


def test_no_leader_is_due_again_after_its_pause() -> None:
    world = ready()
    world.refuse(world.one(), Busy("full"))
    due_ms = world.slot().not_before_ms
    assert world.fetcher.turn(due_ms - 1, world.metadata) == []
    assert len(world.fetcher.turn(due_ms, world.metadata)) == 1


def test_the_limits_are_asked_for() -> None:
    world = ready()
    body = world.one().body
    assert isinstance(body, FetchRequest)
    assert (body.max_wait_ms, body.min_bytes) == (LIMITS.max_wait_ms, LIMITS.min_bytes)
    assert body.partitions[0].max_bytes == LIMITS.partition_bytes
    assert body.max_bytes == LIMITS.partition_bytes
