"""Sequences, epochs and ids of one partition."""

import pytest

from ringlog.client.batch import Batch
from ringlog.client.lane import MAX_EPOCH, Lane
from ringlog.storage.record_batch import BatchHeader, check_batch
from ringlog.storage.record_codec import encode_body
from ringlog.storage.types import NO_PRODUCER_ID


def encoded(count: int) -> Batch:
    batch = Batch("t", 0, count, 0)
    batch.close()
    batch.body = encode_body([b"x"] * count)
    return batch


def header(batch: Batch) -> BatchHeader:
    return check_batch(batch.payload, max_bytes=1 << 20)


def lane(*counts: int) -> Lane:
    made = Lane("t", 0)
    made.use_producer(7, 0)
    for count in counts:
        batch = encoded(count)
        made.in_flight.append(batch)
        made.number(batch)
    return made


def test_sequences_follow_one_another() -> None:
    made = lane(3, 2, 1)
    headers = [header(batch) for batch in made.in_flight]
    assert [one.base_sequence for one in headers] == [0, 3, 5]
    assert {(one.producer_id, one.producer_epoch) for one in headers} == {(7, 0)}


def test_sequences_wrap_to_0_behind_the_largest() -> None:
    made = lane()
    made.next_sequence = 2**31 - 2
    first, second = encoded(2), encoded(1)
    made.number(first)
    made.number(second)
    assert (header(first).base_sequence, header(first).last_sequence) == (2**31 - 2, 2**31 - 1)
    assert header(second).base_sequence == 0


def test_a_new_epoch_begins_at_0_and_numbers_what_is_in_flight_anew() -> None:
    made = lane(3, 2)
    del made.in_flight[0]
    made.new_epoch = True
    assert made.must_resend
    assert made.bump_epoch()
    one = header(made.in_flight[0])
    assert (one.producer_epoch, one.base_sequence) == (1, 0)
    assert (made.next_sequence, made.new_epoch) == (2, False)


def test_a_batch_in_doubt_keeps_its_sequence() -> None:
    made = lane(3)
    made.in_flight[0].unknown = True
    with pytest.raises(AssertionError):
        made.bump_epoch()


def test_behind_the_last_epoch_a_new_id_is_needed() -> None:
    made = lane(3)
    made.epoch = MAX_EPOCH - 1
    assert made.bump_epoch()
    assert not made.bump_epoch()
    assert made.producer_id == NO_PRODUCER_ID
    made.use_producer(8, 0)
    one = header(made.in_flight[0])
    assert (one.producer_id, one.producer_epoch, one.base_sequence) == (8, 0, 0)


def test_without_an_id_batches_carry_no_sequence() -> None:
    made = Lane("t", 0)
    batch = encoded(1)
    made.number(batch)
    assert header(batch).producer_id == NO_PRODUCER_ID
    assert header(batch).base_sequence == -1


def test_parts_take_the_sequences_of_the_whole() -> None:
    made = lane(2, 4, 1)
    parts = [encoded(1), encoded(3)]
    made.replace(made.in_flight[1], parts)
    assert [header(batch).base_sequence for batch in made.in_flight] == [0, 2, 3, 6]
    assert made.next_sequence == 7


def test_draining_waits_for_every_answer_once_something_must_be_sent_again() -> None:
    made = lane(1, 1)
    first, second = made.in_flight
    steps = [((True, True), (False, False)), ((False, True), (True, True))]
    steps.append(((False, False), (True, False)))
    for outstanding, expected in steps:
        first.outstanding, second.outstanding = outstanding
        assert (made.must_resend, made.draining) == expected
