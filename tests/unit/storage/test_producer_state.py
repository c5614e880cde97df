"""The table of producers: duplicates, order, epochs, forgetting, snapshots."""

import msgspec
import pytest

from ringlog.storage.errors import ProducerFenced, SequenceError
from ringlog.storage.producer_state import (
    MAX_SEQUENCE,
    ProducerTable,
    TableSnapshot,
    decode_snapshot,
    next_sequence,
)
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.types import LeaderEpoch, Offset, Position, ProducerId


def batch(sequence: int, *, count: int = 1, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return BatchHeader(
        Offset(0), 100, LeaderEpoch(0), 0, 0, count - 1, 0, 0, ProducerId(producer_id), epoch,
        sequence, count,
    )  # fmt: skip


def table_of(*batches: tuple[BatchHeader, int]) -> ProducerTable:
    table = ProducerTable()
    for header, offset in batches:
        assert table.check(header) is None
        table.note(header, Offset(offset))
    return table


def test_a_batch_without_a_producer_is_none_of_our_business() -> None:
    table = ProducerTable()
    header = batch(-1, producer_id=-1, epoch=-1)
    assert table.check(header) is None
    table.note(header, Offset(0))
    assert len(table) == 0


def test_a_duplicate_gets_the_offset_of_the_original() -> None:
    table = table_of((batch(0, count=5), 100), (batch(5, count=3), 105))
    assert table.check(batch(0, count=5)) == 100
    assert table.check(batch(5, count=3)) == 105
    assert table.check(batch(8)) is None


def test_sixteen_batches_are_remembered() -> None:
    table = table_of(*((batch(n), 10 + n) for n in range(17)))
    assert table.check(batch(1)) == 11
    with pytest.raises(SequenceError, match="0 to 0, but 17 is next") as caught:
        table.check(batch(0))
    assert caught.value.expected == 17
    assert "no longer remembered" in caught.value.hint


@pytest.mark.parametrize("header", [batch(6), batch(4), batch(0, count=4), batch(1, count=4)])
def test_a_gap_or_another_cut_of_batches_is_refused(header: BatchHeader) -> None:
    table = table_of((batch(0, count=5), 0))
    with pytest.raises(SequenceError) as caught:
        table.check(header)
    assert caught.value.expected == 5
    assert not isinstance(caught.value, ProducerFenced)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    table = table_of((batch(12345, epoch=3), 0))
    assert table.check(batch(12346, epoch=3)) is None


def test_sequences_wrap_to_zero() -> None:
    assert next_sequence(MAX_SEQUENCE) == 0
    table = table_of((batch(MAX_SEQUENCE - 1, count=4), 50))
    assert table.check(batch(2)) is None
    assert table.check(batch(MAX_SEQUENCE - 1, count=4)) == 50
    with pytest.raises(SequenceError):
        table.check(batch(0))


def test_an_older_epoch_is_fenced_even_for_a_duplicate() -> None:
    table = table_of((batch(0, epoch=1), 0), (batch(0, epoch=2), 1))
    with pytest.raises(ProducerFenced, match="epoch 1 is older than 2"):
        table.check(batch(0, epoch=1))
    with pytest.raises(ProducerFenced):
        table.check(batch(1, epoch=1))


def test_a_newer_epoch_begins_at_zero() -> None:
    table = table_of((batch(0), 0), (batch(1), 1))
    with pytest.raises(SequenceError) as caught:
        table.check(batch(2, epoch=1))
    assert caught.value.expected == 0
    assert table.check(batch(0, epoch=1)) is None
    table.note(batch(0, epoch=1), Offset(2))
    assert table.check(batch(0, epoch=1)) == 2


@pytest.mark.parametrize("header", [batch(-1), batch(0, epoch=-1), batch(0, producer_id=-2)])
def test_negative_fields_are_refused(header: BatchHeader) -> None:
    with pytest.raises(SequenceError, match="negative"):
        ProducerTable().check(header)


def test_the_producer_whose_last_batch_is_oldest_is_forgotten() -> None:
    table = ProducerTable(max_producers=2)
    table.note(batch(0, producer_id=1), Offset(0))
    table.note(batch(0, producer_id=2), Offset(1))
    table.note(batch(1, producer_id=1), Offset(2))
    table.note(batch(0, producer_id=3), Offset(3))
    assert [row.producer_id for row in table.snapshot().producers] == [1, 3]
    # forgotten: any sequence may come, known ones are still judged
    assert table.check(batch(40, producer_id=2)) is None
    with pytest.raises(SequenceError):
        table.check(batch(5, producer_id=1))


def test_a_snapshot_restores_the_same_table_and_order() -> None:
    table = table_of((batch(0), 0), (batch(0, producer_id=8), 1), (batch(1), 2))
    snapshot = table.snapshot()
    table.note(batch(2), Offset(3))
    other = ProducerTable()
    other.restore(snapshot)
    assert other.snapshot() == snapshot
    assert other.check(batch(1)) == 2
    assert [row.producer_id for row in snapshot.producers] == [8, 7]


def test_a_snapshot_holds_all_that_is_remembered() -> None:
    table = table_of(*((batch(n), 10 + n) for n in range(17)))
    other = ProducerTable()
    other.restore(table.snapshot())
    assert [other.check(batch(n)) for n in range(1, 17)] == list(range(11, 27))


def test_a_snapshot_survives_json_as_in_start_state() -> None:
    snapshot = table_of((batch(0, producer_id=2**63 - 1), 2**62)).snapshot()
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=TableSnapshot) == snapshot


def test_restoring_into_smaller_bounds_keeps_the_newest() -> None:
    table = table_of(*((batch(n, producer_id=n), n) for n in range(5)))
    for n in range(4):
        table.note(batch(5 + n, producer_id=4), Offset(5 + n))
    small = ProducerTable(max_producers=2, remembered=3)
    small.restore(table.snapshot())
    rows = small.snapshot().producers
    assert [row.producer_id for row in rows] == [3, 4]
    assert [kept.base_offset for kept in rows[1].batches] == [6, 7, 8]


def test_the_cache_file_is_taken_whole_or_not_at_all() -> None:
    table = table_of((batch(0, count=3), 5), (batch(9, producer_id=8, epoch=2), 8))
    position = Position(Offset(9), 4)
    data = table.encode_snapshot(position, seed=99)
    assert decode_snapshot(data, seed=99) == (position, table.snapshot())
    assert decode_snapshot(data, seed=98) is None
    for cut in range(len(data)):
        assert decode_snapshot(data[:cut], seed=99) is None
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        assert decode_snapshot(flipped, seed=99) is None
