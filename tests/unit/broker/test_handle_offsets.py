"""ListOffsets and DeleteRecords."""

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    PartitionDamaged,
    RequestTimedOut,
    UnknownTopic,
)
from tests.unit.broker.core_bench import NOW_MS, Bench, batch, sized


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.create()
    return bench


def test_latest_is_the_high_watermark_and_earliest_the_log_start(bench: Bench) -> None:
    bench.produce(batch(b"a", b"b"))
    bench.hold_flushes = True
    bench.send_produce(batch())
    assert bench.offset_at(m.LATEST) == 2
    assert bench.offset_at(m.EARLIEST) == 0


def test_a_time_finds_the_first_record_at_or_behind_it(bench: Bench) -> None:
    for i in range(5):
        bench.produce(batch(b"a", b"b", at_ms=NOW_MS + 10 * i))
    assert bench.offset_at(NOW_MS) == 0
    assert bench.offset_at(NOW_MS + 11) == 4
    assert bench.offset_at(NOW_MS + 40) == 8
    assert bench.offset_at(NOW_MS + 41) == -1


def test_no_time_finds_what_is_not_committed(bench: Bench) -> None:
    bench.produce(batch(at_ms=NOW_MS))
    bench.hold_flushes = True
    bench.send_produce(batch(at_ms=NOW_MS + 10))
    bench.settle()
    assert bench.offset_at(NOW_MS) == 0
    assert bench.offset_at(NOW_MS + 10) == -1


def test_a_bad_time_or_topic_is_an_error_of_its_own_result(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="timestamp_ms is -3"):
        bench.offset_at(-3)
    with pytest.raises(UnknownTopic):
        bench.offset_at(m.LATEST, topic="nope")


def test_damage_found_by_a_time_look_up_closes_the_partition(bench: Bench) -> None:
    bench.produce(batch(b"value", at_ms=NOW_MS))
    bench.disk.damage(f"t-0/{0:020d}.log", 65, b"\xff\xff")
    with pytest.raises(PartitionDamaged):
        bench.offset_at(NOW_MS)
    assert bench.core.metrics.damaged_partitions == 1
    with pytest.raises(PartitionDamaged):
        bench.produce(batch())


@pytest.mark.parametrize("crash", [False, True])
def test_deleted_records_stay_deleted_after_a_restart(bench: Bench, crash: bool) -> None:
    bench.produce(batch(b"0", b"1", b"2"), batch(b"3"))
    assert bench.delete_records(2) == 2
    life = bench.crashed() if crash else bench.restarted()
    assert life.offset_at(m.EARLIEST) == 2
    assert life.fetch(2) == [0, 3]  # the log start lies inside a batch
    with pytest.raises(OffsetOutOfRange, match=r"\[2, 4\]"):
        life.fetch(1)


def test_segments_below_the_log_start_are_removed(bench: Bench) -> None:
    bench.alter(segment_bytes="16384")
    for _ in range(4):
        bench.produce(sized(10_000))
    before = bench.describe().partitions[0].size_bytes
    bench.delete_records(3)
    assert bench.describe().partitions[0].size_bytes < before / 3
    after = bench.crashed()
    assert after.fetch(3) == [3]
    assert after.produce(batch()) == [4]


def test_delete_records_is_answered_only_after_commit_and_apply(bench: Bench) -> None:
    bench.produce(batch(), batch())
    bench.hold_flushes = True
    body = m.DeleteRecordsRequest("t", b"", 0, 1, 10_000)
    reply = bench.send(m.ApiKey.DELETE_RECORDS, body)
    bench.settle()
    assert bench.offset_at(m.EARLIEST) == 0
    bench.flush_one()  # the own entry: committed
    bench.settle()
    assert not reply.done
    bench.flush_one()  # the move of start-state: applied
    assert reply.result(m.DeleteRecordsResponse).log_start == 1


def test_the_high_watermark_can_be_named_by_minus_one(bench: Bench) -> None:
    bench.produce(batch(), batch())
    assert bench.delete_records(-1) == 2
    assert bench.fetch(2) == []
    assert bench.produce(batch()) == [2]


def test_deleting_what_is_deleted_is_answered_at_once(bench: Bench) -> None:
    bench.produce(batch(), batch())
    bench.delete_records(2)
    bench.hold_flushes = True
    assert bench.delete_records(1) == 2
    assert bench.delete_records(2) == 2


def test_two_deletes_at_once_are_both_answered(bench: Bench) -> None:
    bench.produce(*[batch()] * 5)
    requests = [m.DeleteRecordsRequest("t", b"", 0, before, 10_000) for before in (3, 2, 5)]
    replies = [bench.send(m.ApiKey.DELETE_RECORDS, body) for body in requests]
    bench.settle()
    starts = [reply.result(m.DeleteRecordsResponse).log_start for reply in replies]
    assert min(starts) >= 2
    assert starts[2] == 5


@pytest.mark.parametrize("before", [3, -2])
def test_above_the_high_watermark_nothing_can_be_deleted(bench: Bench, before: int) -> None:
    bench.produce(batch(), batch())
    with pytest.raises(OffsetOutOfRange, match=r"\[0, 2\]"):
        bench.delete_records(before)


def test_a_deadline_says_that_it_may_still_move(bench: Bench) -> None:
    bench.produce(batch())
    bench.hold_flushes = True
    reply = bench.send(m.ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest("t", b"", 0, 1, 30))
    bench.advance(30)
    with pytest.raises(RequestTimedOut, match="may still move"):
        reply.result(m.DeleteRecordsResponse)
    bench.hold_flushes = False
    bench.settle()
    assert bench.offset_at(m.EARLIEST) == 1


def test_a_delete_of_the_topic_ends_the_wait(bench: Bench) -> None:
    bench.produce(batch())
    bench.hold_flushes = True
    reply = bench.send(m.ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest("t", b"", 0, 1, 3000))
    bench.send(m.ApiKey.DELETE_TOPIC, m.DeleteTopicRequest("t", b"", 1000))
    bench.hold_flushes = False
    bench.settle()
    with pytest.raises(UnknownTopic):
        reply.result(m.DeleteRecordsResponse)
