"""The rules one by one; `tests/property/test_producer_core.py` has the hostile world."""

import pytest

from ringlog.client.batch import Batch
from ringlog.client.errors import (
    BatchTooLarge,
    Busy,
    ClientClosed,
    DeadlineExceeded,
    DeliveryUnknown,
    InternalError,
    NotLeader,
    OutOfOrderSequence,
    ProducerFenced,
    StaleTopic,
    UnknownTopic,
)
from ringlog.client.lane import PROOF_MS
from ringlog.client.producer_core import EMPTY_SLOT_GRACE_MS, TURN_BYTES
from ringlog.client.requests import Answer
from ringlog.storage.record_codec import decode_records
from tests.unit.client.producer_world import LOST, World, header


def test_the_first_batch_asks_for_an_id_and_leaves_with_it() -> None:
    world = World()
    batch = world.open(b"a", b"b")
    assert (world.wants_id, world.sent) == (1, [])
    world.give_id()
    produce = world.take()
    assert (produce.broker_id, produce.batches) == (1, [batch])
    assert produce.body.partitions[0].topic_uuid == b"u" * 16
    one = header(batch)
    assert (one.producer_id, one.producer_epoch, one.base_sequence) == (7, 0, 0)
    assert [record.value for record in decode_records(batch.payload)] == [b"a", b"b"]
    assert one.max_timestamp == world.wall_ms
    world.answer(produce, 40)
    assert (world.error_of(batch), batch.offset_of(1)) == (None, 41)
    assert world.closed[0].size_bytes > 61


def test_an_id_that_does_not_come_is_asked_for_again() -> None:
    world = World()
    batch = world.open()
    world.core.on_no_producer_id(LOST, world.now_ms)
    world.turn()
    assert world.wants_id == 1
    world.wait(200)
    assert world.wants_id == 2
    world.wait(10_000)
    error = world.error_of(batch)
    assert type(error) is DeadlineExceeded
    assert "closed" in error.cause


def test_a_log_that_knows_nobody_gets_one_batch_until_it_has_acknowledged_one() -> None:
    world = World()
    batches = [world.open(), world.open(), world.open()]
    world.give_id()
    first = world.take()
    assert first.batches == batches[:1]
    world.answer(first, 0)
    assert world.take().batches == batches[1:2], "linger holds the newest, something is under way"


def test_after_a_long_silence_the_log_may_have_forgotten() -> None:
    world = World()
    world.proven()
    world.wait(PROOF_MS)
    world.open()
    world.open()
    world.open()
    assert len(world.sent) == 1


def test_while_something_is_under_way_a_batch_lingers() -> None:
    world = World()
    world.proven()
    under_way = world.open()
    world.take()
    batch = world.open(b"a")
    assert world.sent == []
    world.wait(99)
    assert world.sent == []
    world.wait(1)
    assert world.take().batches == [batch]
    assert not under_way.done


@pytest.mark.parametrize("how", ["full", "hurried", "all hurried", "answered", "followed"])
def test_nobody_sits_through_linger(how: str) -> None:
    world = World(linger_ms=60_000)
    world.proven()
    world.open()
    under_way = world.take()
    batch = world.open(*[b"x"] * (4 if how == "full" else 1))
    assert len(world.sent) == (1 if how == "full" else 0)
    if how == "hurried":
        world.core.on_hurry(batch)
    elif how == "all hurried":
        world.core.on_hurry_all()
    elif how == "answered":
        world.answer(under_way, 1)
    elif how == "followed":
        world.open()
    world.turn()
    assert world.take().batches == [batch]


def test_no_more_than_max_in_flight_are_under_way() -> None:
    world = World(max_in_flight=3, linger_ms=0)
    world.proven()
    for _ in range(5):
        world.open()
    assert len(world.sent) == 3
    world.answer(world.sent.pop(0), 1)
    assert len(world.sent) == 3


def test_what_is_encoded_leaves_before_more_is_encoded() -> None:
    world = World(max_in_flight=8)
    world.proven()
    world.lead(-1)
    batches = [world.open(b"x" * (TURN_BYTES // 2)) for _ in range(5)]
    world.core.on_hurry_all()
    world.lead(1)
    world.turn()
    assert [produce.batches for produce in world.sent] == [batches[:2]]
    assert [batch.payload == b"" for batch in batches] == [False, False, True, True, True]
    assert world.core.next_deadline_ms() == 0, "it wants its next turn at once"
    world.turn()
    world.turn()
    assert [produce.batches for produce in world.sent] == [batches[:2], batches[2:4], batches[4:]]
    assert [header(batch).base_sequence for batch in batches] == [1, 2, 3, 4, 5]
    assert world.core.next_deadline_ms() != 0


def test_batches_for_one_leader_share_a_request() -> None:
    world = World()
    first, second = world.open(partition=0), world.open(partition=1)
    world.give_id()
    produce = world.take()
    assert produce.batches == [first, second]
    assert [row.partition for row in produce.body.partitions] == [0, 1]
    world.answer(produce, 0, Busy("full"))
    assert (first.done, second.done) == (True, False)


def test_a_retry_keeps_the_sequence_and_waits_its_pause() -> None:
    world = World()
    batch = world.open()
    world.give_id()
    payload = batch.payload
    world.answer(world.take(), Busy("full"))
    assert world.sent == []
    world.wait(24)
    assert world.sent == []
    world.wait(30)
    produce = world.take()
    assert batch.payload == payload
    world.answer(produce, 5)
    assert world.error_of(batch) is None


def test_on_an_error_everything_behind_is_sent_again_in_order_once_every_answer_is_in() -> None:
    world = World(linger_ms=0)
    world.proven()
    batches = [world.open() for _ in range(3)]
    requests, world.sent = world.sent, []
    sequences = [header(batch).base_sequence for batch in batches]
    late = world.open()
    late_request = world.take()
    world.answer(requests[0], Busy("full"))
    world.wait(1_000)
    world.open()
    assert world.sent == [], "answers are missing"
    world.answer(requests[1], OutOfOrderSequence("gap"))
    world.answer(requests[2], OutOfOrderSequence("gap"))
    world.answer(late_request, OutOfOrderSequence("gap"))
    produce = world.take()
    assert produce.batches[:4] == [*batches, late]
    assert [header(batch).base_sequence for batch in batches] == sequences
    assert header(late).producer_epoch == 0


def test_not_leader_asks_for_metadata_and_does_not_wait_for_the_pause() -> None:
    world = World()
    world.open()
    world.give_id()
    world.answer(world.take(), NotLeader("ask broker 2"))
    assert world.wants_metadata == 1
    world.lead(2, 2)
    world.core.on_metadata(world.now_ms)
    world.turn()
    assert world.take().broker_id == 2


def test_a_partition_without_a_leader_waits_for_one() -> None:
    world = World()
    world.lead(-1, -1)
    world.open()
    world.give_id()
    assert (world.sent, world.wants_metadata > 0) == ([], True)
    world.lead(1, 1)
    world.core.on_metadata(world.now_ms)
    world.turn()
    assert world.take()


def test_a_topic_that_is_gone_ends_its_batches() -> None:
    world = World()
    world.lead(-1)
    batch = world.open()
    world.lead(error=UnknownTopic("topic 't' does not exist"))
    world.core.on_metadata(world.now_ms)
    world.turn()
    assert type(world.error_of(batch)) is UnknownTopic


def test_a_topic_made_anew_knows_nobody() -> None:
    world = World(linger_ms=0)
    world.proven()
    batches = [world.open(), world.open()]
    requests, world.sent = world.sent, []
    for request in requests:
        world.answer(request, StaleTopic("made anew"))
    world.wait(200)
    assert world.take().batches == batches[:1]


def test_a_deadline_before_anything_was_sent_is_a_clean_failure() -> None:
    world = World()
    world.lead(-1)
    batch = world.open()
    world.wait(9_999)
    world.wait(1)
    error = world.error_of(batch)
    assert type(error) is DeadlineExceeded
    assert "definitely not stored" in error.hint
    assert "has no leader" in error.cause
    assert list(batch.slots) == []


def test_a_deadline_with_an_attempt_unanswered_is_unknown_and_a_new_epoch_follows() -> None:
    world = World()
    world.proven()
    batch = world.open()
    world.take()
    world.wait(10_000)
    assert type(world.error_of(batch)) is DeliveryUnknown
    following = world.open()
    assert world.take().batches == [following]
    one = header(following)
    assert (one.producer_epoch, one.base_sequence) == (1, 0)


def test_a_deadline_behind_clean_refusals_is_a_clean_failure() -> None:
    world = World()
    batch = world.open()
    world.give_id()
    while not batch.has_ended():
        if world.sent:
            world.answer(world.take(), Busy("no room"))
        world.wait(100)
    error = world.error_of(batch)
    assert type(error) is DeadlineExceeded
    assert "no room" in error.cause


def test_a_deadline_while_the_request_still_waits_to_leave_is_a_clean_failure() -> None:
    world = World()
    batch = world.open()
    world.give_id()
    produce = world.take()
    assert batch.carrier is not None
    batch.carrier.sent = False
    world.wait(10_000)
    assert type(world.error_of(batch)) is DeadlineExceeded
    world.fail(produce, LOST, sent=False)


def test_an_answer_after_the_deadline_changes_nothing() -> None:
    world = World()
    batch = world.open()
    world.give_id()
    produce = world.take()
    world.wait(10_000)
    world.answer(produce, 3)
    assert type(world.error_of(batch)) is DeliveryUnknown


def test_a_refusal_for_good_fails_that_batch_and_the_next_go_on_under_a_new_epoch() -> None:
    world = World(linger_ms=0)
    world.proven()
    first, second = world.open(), world.open()
    requests, world.sent = world.sent, []
    world.answer(requests[0], BatchTooLarge("one record too many"))
    assert type(world.error_of(first)) is BatchTooLarge
    world.answer(requests[1], OutOfOrderSequence("gap"))
    world.wait(200)
    produce = world.take()
    assert produce.batches == [second]
    assert (header(second).producer_epoch, header(second).base_sequence) == (1, 0)


def test_a_batch_whose_attempt_got_lost_is_never_numbered_anew() -> None:
    world = World(linger_ms=0)
    world.proven()
    first, second = world.open(), world.open()
    requests, world.sent = world.sent, []
    world.answer(requests[0], BatchTooLarge("too large"))
    world.fail(requests[1], LOST)
    world.wait(200)
    again = world.take()
    assert header(second).producer_epoch == 0
    world.answer(again, OutOfOrderSequence("gap"))
    assert type(world.error_of(first)) is BatchTooLarge
    assert type(world.error_of(second)) is DeliveryUnknown


def test_a_bug_in_the_broker_leaves_the_outcome_unknown() -> None:
    world = World()
    batch = world.open()
    world.give_id()
    world.answer(world.take(), InternalError("assertion"))
    error = world.error_of(batch)
    assert type(error) is DeliveryUnknown
    assert "assertion" in error.cause


def test_an_answer_that_leaves_a_batch_out_leaves_it_unknown() -> None:
    world = World()
    batch = world.open()
    world.give_id()
    world.answer(world.take())
    assert type(world.error_of(batch)) is DeliveryUnknown


def test_a_batch_that_is_too_large_is_divided_and_keeps_its_sequences() -> None:
    world = World()
    world.proven()
    batch = world.open(b"a", b"b", b"c")
    following = world.open(b"d")
    world.answer(world.take(), BatchTooLarge("at most 2"))
    produce = world.take()
    assert [len(decode_records(one.payload)) for one in produce.batches] == [1, 2]
    assert [header(one).base_sequence for one in produce.batches] == [1, 2]
    world.answer(produce, 10, 11)
    assert batch.done
    assert [batch.offset_of(index) for index in range(3)] == [10, 11, 12]
    assert header(following).base_sequence == 4


def test_one_record_that_is_too_large_fails() -> None:
    world = World()
    batch = world.open(b"a", b"b")
    world.give_id()
    world.answer(world.take(), BatchTooLarge("at most 1"))
    world.answer(world.take(), BatchTooLarge("at most 0"))
    world.wait(1_000)
    for _ in range(5):
        if world.sent:
            world.answer(world.take(), BatchTooLarge("at most 0"))
        world.wait(1_000)
    assert batch.done
    assert [type(batch.error_of(index)) for index in (0, 1)] == [BatchTooLarge] * 2


def test_fenced_means_a_new_id() -> None:
    world = World()
    world.proven()
    batch = world.open()
    world.answer(world.take(), ProducerFenced("epoch 3 has written"))
    assert type(world.error_of(batch)) is ProducerFenced
    following = world.open()
    assert world.wants_id == 2
    world.give_id(8)
    assert world.take().batches == [following]
    assert (header(following).producer_id, header(following).base_sequence) == (8, 0)


def test_with_acks_0_a_batch_ends_when_it_is_sent() -> None:
    world = World(acks=0)
    batch = world.open()
    produce = world.take()
    assert produce.body.acks == 0
    assert header(batch).producer_id == -1
    world.core.on_produced(produce, Answer(), world.now_ms)
    world.turn()
    assert (world.error_of(batch), batch.offset_of(0)) == (None, -1)


def test_without_idempotence_one_batch_is_under_way_and_carries_no_id() -> None:
    world = World(enable_idempotence=False, linger_ms=0)
    first, _ = world.open(), world.open()
    produce = world.take()
    assert produce.batches == [first]
    assert header(first).producer_id == -1
    world.fail(produce, LOST)
    world.wait(200)
    assert world.take().batches == [first]


def test_a_slot_taken_and_not_written_is_waited_for_and_then_left_out() -> None:
    world = World()
    world.proven()
    batch = Batch("t", 0, 4, world.now_ms)
    batch.deadline_ms = world.now_ms + 10_000
    batch.values[next(batch.slots)] = b"a"
    next(batch.slots)
    world.core.on_opened(batch, world.now_ms)
    world.turn()
    assert world.sent == []
    world.wait(EMPTY_SLOT_GRACE_MS - 1)
    assert world.sent == []
    world.wait(1)
    world.answer(world.take(), 1)
    assert batch.holes == (1,)
    assert world.error_of(batch) is None


def test_a_batch_of_holes_only_ends_without_being_sent() -> None:
    world = World()
    world.proven()
    batch = Batch("t", 0, 4, world.now_ms)
    batch.deadline_ms = world.now_ms + 10_000
    next(batch.slots)
    world.core.on_opened(batch, world.now_ms)
    world.turn()
    world.wait(EMPTY_SLOT_GRACE_MS)
    assert world.sent == []
    assert batch.done


def test_abandon_ends_everything_with_what_is_known() -> None:
    world = World(linger_ms=60_000)
    world.proven()
    under_way = world.open()
    world.take()
    lingering = world.open()
    world.core.abandon(ClientClosed("closed"))
    world.turn()
    assert type(world.error_of(under_way)) is DeliveryUnknown
    assert type(world.error_of(lingering)) is ClientClosed
    assert list(world.core.unfinished) == []


def test_ended_batches_leave_no_timers_behind() -> None:
    world = World()
    world.proven()
    for number in range(500):
        world.open()
        world.answer(world.take(), number)
    assert len(world.core._timers._heap) < 200
