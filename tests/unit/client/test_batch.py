"""Slots, columns and outcome of one batch."""

import threading

import pytest

from ringlog.client.batch import EMPTY, NO_OFFSET, Batch
from ringlog.client.errors import Busy
from ringlog.storage.record_codec import decode_records, encode_body, seal_batch
from ringlog.storage.types import NO_TIMESTAMP


def fill(batch: Batch, *values: bytes | None) -> None:
    for value in values:
        for index in batch.slots:
            batch.values[index] = value
            break


def batch_of(*values: bytes | None, capacity: int = 8) -> Batch:
    batch = Batch("t", 0, capacity, 0)
    fill(batch, *values)
    return batch


def test_slots_are_handed_out_once_each_up_to_the_capacity() -> None:
    batch = Batch("t", 0, 3, 0)
    assert list(batch.slots) == [0, 1, 2]
    assert list(batch.slots) == []
    assert batch.taken() == 3


def test_threads_never_get_the_same_slot_and_none_is_lost_to_a_close() -> None:
    """Many batches filled by four threads and closed by a fifth at some moment."""
    for _ in range(30):
        batch = Batch("t", 0, 500, 0)
        got: list[list[int]] = [[] for _ in range(4)]
        start = threading.Barrier(5)

        def writer(mine: list[int], batch: Batch = batch, start: threading.Barrier = start) -> None:
            start.wait()
            for index in batch.slots:
                batch.values[index] = b"%d" % index
                mine.append(index)

        threads = [threading.Thread(target=writer, args=(mine,)) for mine in got]
        for thread in threads:
            thread.start()
        start.wait()
        batch.close()
        for thread in threads:
            thread.join()
        taken = sorted(index for mine in got for index in mine)
        assert taken == list(range(batch.count))
        columns = batch.take_columns(5)
        assert columns is not None
        assert columns.values == [b"%d" % index for index in taken]


def test_columns_of_plain_records_share_the_time_of_leaving() -> None:
    batch = batch_of(b"a", None, b"c")
    columns = batch.take_columns(1234)
    assert columns is not None
    assert (columns.values, columns.keys, columns.headers) == ([b"a", None, b"c"], None, None)
    assert columns.timestamps == 1234
    assert batch.timestamp_of(1) == 1234
    assert list(batch.slots) == []


def test_columns_with_everything() -> None:
    batch = Batch("t", 0, 8, 0)
    for name in ("keys", "headers", "timestamps"):
        batch.column(name)
    assert batch.keys is not None
    assert batch.headers is not None
    assert batch.timestamps is not None
    fill(batch, b"a", b"b")
    batch.keys[1] = b"k"
    batch.headers[1] = (("h", b"v"),)
    batch.timestamps[1] = 77
    columns = batch.take_columns(1234)
    assert columns is not None
    assert columns.keys == [None, b"k"]
    assert columns.headers == [(), (("h", b"v"),)]
    assert columns.timestamps == [1234, 77]
    assert [batch.timestamp_of(index) for index in (0, 1)] == [1234, 77]


def test_a_slot_that_was_taken_and_not_written_holds_the_columns_back() -> None:
    batch = batch_of(b"a")
    late = next(batch.slots)
    fill(batch, b"c")
    assert batch.take_columns(1) is None
    batch.values[late] = b"b"
    columns = batch.take_columns(1)
    assert columns is not None
    assert columns.values == [b"a", b"b", b"c"]


def test_a_hole_is_left_out_and_the_offsets_behind_it_close_up() -> None:
    batch = batch_of(b"a")
    next(batch.slots)
    fill(batch, b"c")
    assert batch.take_columns(1) is None
    columns = batch.give_up_empty(1)
    assert columns.values == [b"a", b"c"]
    assert batch.holes == (1,)
    batch.finish(100, None)
    assert (batch.offset_of(0), batch.offset_of(2)) == (100, 101)


def test_an_unwritten_slot_is_seen_beside_a_null_value() -> None:
    batch = batch_of(None)
    next(batch.slots)
    assert batch.take_columns(1) is None


def test_sealing_keeps_the_records_once_and_gives_them_back() -> None:
    batch = batch_of(b"a")
    batch.close()
    batch.body = encode_body([b"a"])
    batch.seal(seal_batch(batch.encoded(), base_sequence=1, producer_id=1, producer_epoch=0))
    assert batch.body.data == b""
    again = seal_batch(batch.encoded(), base_sequence=9, producer_id=1, producer_epoch=1)
    assert decode_records(again)[0].value == b"a"


def test_finish_sets_the_outcome_before_it_tells_and_frees_the_records() -> None:
    batch = batch_of(b"a")
    told: list[int] = []
    batch.add_callback(lambda: told.append(batch.offset_of(0)))
    batch.finish(7, None)
    assert told == [7]
    assert (batch.values, batch.payload, batch.body) == ([], b"", None)
    with pytest.raises(AssertionError):
        batch.finish(8, None)


def test_without_an_offset_nobody_invents_one() -> None:
    batch = batch_of(b"a", b"b")
    assert batch.timestamp_of(0) == NO_TIMESTAMP
    batch.finish(NO_OFFSET, Busy("later"))
    assert batch.offset_of(1) == NO_OFFSET
    assert isinstance(batch.error_of(1), Busy)


def test_a_batch_in_parts_ends_with_its_last_part() -> None:
    whole = batch_of(b"a", b"b", b"c")
    left, right = Batch("t", 0, 1, 0), Batch("t", 0, 2, 0)
    whole.parts = ((0, left), (1, right))
    left.parent = right.parent = whole
    right.finish(50, None)
    ended = [whole.has_ended()]
    left.finish(NO_OFFSET, Busy("later"))
    assert [*ended, whole.has_ended()] == [False, True]
    assert [whole.offset_of(index) for index in range(3)] == [NO_OFFSET, 50, 51]
    assert isinstance(whole.error_of(0), Busy)
    assert whole.error_of(2) is None


def test_who_waits_hurries_the_owner() -> None:
    class Owner:
        def __init__(self) -> None:
            self.hurried: list[Batch] = []

        def hurry(self, batch: Batch) -> None:
            self.hurried.append(batch)

    owner = Owner()
    batch = Batch("t", 0, 1, 0, owner)
    assert not batch.wait(0)
    assert owner.hurried == [batch]
    assert batch.values == [EMPTY]
