"""Fetch: only what is committed and whole, within its bounds, waiting as asked."""

import errno

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import (
    Busy,
    InvalidRequest,
    OffsetOutOfRange,
    PartitionDamaged,
    StaleTopic,
    UnknownTopic,
)
from ringlog.storage.record_batch import iter_batches
from ringlog.storage.simulated_files import Call
from tests.unit.broker.core_bench import Bench, FakeReply, batch, fetched, ok, sized


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.create()
    return bench


def fetch_many(
    bench: Bench,
    *targets: tuple[str, int],
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    each: int = 1 << 20,
) -> FakeReply:
    parts = [m.FetchPartition(name, b"", 0, offset, each) for name, offset in targets]
    return bench.send(m.ApiKey.FETCH, m.FetchRequest(max_wait_ms, min_bytes, max_bytes, parts))


def lengths(reply: FakeReply) -> list[int]:
    """Number of batches per result."""
    counts = []
    for result in reply.result(m.FetchResponse).results:
        frame = reply.frames[result.frame] if result.frame >= 0 else b""
        counts.append(len(list(iter_batches(frame))))
    return counts


def test_batches_come_from_the_one_that_contains_the_offset(bench: Bench) -> None:
    bench.produce(batch(b"0", b"1"), batch(b"2", b"3"), batch(b"4"))
    assert bench.fetch(0) == [0, 2, 4]
    assert bench.fetch(3) == [2, 4]
    assert bench.fetch(5) == []


def test_nothing_uncommitted_is_read(bench: Bench) -> None:
    bench.produce(batch())
    bench.hold_flushes = True
    bench.send_produce(batch())
    bench.settle()
    reply = bench.send_fetch()
    assert fetched(reply) == [0]
    assert reply.result(m.FetchResponse).results[0].high_watermark == 1


def test_an_offset_out_of_range_names_the_range(bench: Bench) -> None:
    bench.produce(batch(), batch(), batch())
    bench.delete_records(1)
    for offset in (-1, 0, 4):
        with pytest.raises(OffsetOutOfRange, match=r"\[1, 3\]"):
            bench.fetch(offset)


def test_an_offset_between_high_watermark_and_log_end_waits(bench: Bench) -> None:
    bench.hold_flushes = True
    bench.send_produce(batch(), batch())
    bench.settle()
    reply = bench.send_fetch(1, max_wait_ms=1000)
    assert not reply.done
    bench.hold_flushes = False
    bench.settle()
    assert fetched(reply) == [1]


def test_a_fetch_waits_for_a_record_and_then_answers_at_once(bench: Bench) -> None:
    reply = bench.send_fetch(max_wait_ms=777)
    bench.advance(500)
    assert not reply.done
    bench.produce(batch())
    assert fetched(reply) == [0]
    assert bench.timers.next_deadline_ms() != 777, "the timer was left behind"


def test_a_fetch_answers_empty_at_its_deadline(bench: Bench) -> None:
    reply = bench.send_fetch(max_wait_ms=1000)
    bench.advance(999)
    assert not reply.done
    bench.advance(1)
    assert fetched(reply) == []
    assert len(bench.core.partitions.readers) == 0


def test_min_bytes_counts_over_all_partitions(bench: Bench) -> None:
    bench.create("u")
    size_bytes = len(batch(b"v"))
    bench.produce(batch(b"v"))
    reply = fetch_many(bench, ("t", 0), ("u", 0), max_wait_ms=1000, min_bytes=3 * size_bytes)
    bench.settle()
    assert not reply.done
    bench.produce(batch(b"v"), topic="u")
    assert not reply.done
    bench.produce(batch(b"v"), topic="u")
    assert lengths(reply) == [1, 2]


def test_who_was_woken_gets_what_there_is(bench: Bench) -> None:
    # The first batch counts when it commits, but lies below the offset asked for.
    bench.hold_flushes = True
    bench.send_produce(batch(), batch())
    bench.settle()
    reply = bench.send_fetch(1, max_wait_ms=1000, min_bytes=2 * len(batch()))
    bench.hold_flushes = False
    bench.settle()
    assert fetched(reply) == [1]


def test_too_few_bytes_are_given_at_the_deadline(bench: Bench) -> None:
    reply = bench.send_fetch(max_wait_ms=100, min_bytes=10_000)
    bench.produce(batch())
    assert not reply.done
    bench.advance(100)
    assert fetched(reply) == [0]


def test_the_wait_is_capped_by_the_broker() -> None:
    bench = Bench(fetch_max_wait_ms=50)
    bench.create()
    reply = bench.send_fetch(max_wait_ms=1_000_000)
    bench.advance(50)
    assert fetched(reply) == []


def test_max_bytes_bounds_the_answer_but_the_first_batch_always_fits(bench: Bench) -> None:
    bench.create("u")
    bench.produce(sized(1000), sized(1000), sized(1000))
    bench.produce(sized(5000), sized(1000), topic="u")
    assert lengths(fetch_many(bench, ("t", 0), ("u", 0), max_bytes=2500)) == [2, 0]
    assert lengths(fetch_many(bench, ("u", 0), ("t", 0), max_bytes=2500)) == [1, 0]
    assert lengths(fetch_many(bench, ("t", 0), ("u", 1), max_bytes=10_000, each=1)) == [1, 1]
    assert lengths(fetch_many(bench, ("t", 3), ("u", 0), max_bytes=1)) == [0, 1]
    assert lengths(fetch_many(bench, ("t", 0), ("u", 0), max_bytes=0)) == [1, 0]


def test_the_answer_fits_what_the_peer_may_be_sent(bench: Bench) -> None:
    bench.produce(*[sized(1000)] * 5)
    reply = FakeReply()
    reply.room_bytes = 2200
    body = m.FetchRequest(0, 1, 1 << 20, [m.FetchPartition("t", b"", 0, 0, 1 << 20)])
    bench.handlers[m.ApiKey.FETCH](body, [], reply, 0)
    assert len(fetched(reply)) == 2


def test_one_bad_partition_does_not_hide_the_others_and_ends_the_wait(bench: Bench) -> None:
    bench.produce(batch())
    reply = fetch_many(bench, ("nope", 0), ("t", 0), max_wait_ms=1000, min_bytes=10_000)
    first, second = reply.result(m.FetchResponse).results
    with pytest.raises(UnknownTopic):
        ok(first)
    assert second.frame == 0


def test_a_stale_uuid_is_refused(bench: Bench) -> None:
    with pytest.raises(StaleTopic, match="made again"):
        bench.fetch(uuid=bytes(16))


def test_a_deleted_topic_wakes_who_waits_for_it(bench: Bench) -> None:
    reply = bench.send_fetch(max_wait_ms=10_000)
    bench.delete()
    with pytest.raises(UnknownTopic):
        fetched(reply)
    assert bench.clock_ms == 0


def test_a_topic_made_again_is_stale_for_who_waits_by_uuid(bench: Bench) -> None:
    uuid = bench.describe().topic_uuid
    reply = bench.send_fetch(max_wait_ms=10_000, uuid=uuid)
    bench.delete()
    assert reply.done
    bench.create()
    with pytest.raises(StaleTopic):
        bench.fetch(uuid=uuid)


def test_waiting_fetches_are_bounded() -> None:
    bench = Bench(max_waiting_fetches=2)
    bench.create()
    replies = [bench.send_fetch(max_wait_ms=1000) for _ in range(3)]
    assert [reply.done for reply in replies] == [False, False, True]
    with pytest.raises(Busy, match="max_waiting_fetches"):
        fetched(replies[2])
    bench.produce(batch())
    assert fetched(replies[0]) == fetched(replies[1]) == [0]


@pytest.mark.parametrize("cold", [False, True])
def test_cold_bytes_are_read_on_a_worker(bench: Bench, cold: bool) -> None:
    bench.create("u")
    bench.produce(batch(), batch())
    bench.produce(batch(), topic="u")
    bench.disk.cold = cold
    bench.hold_calls = True
    reply = fetch_many(bench, ("t", 0), ("u", 0))
    assert reply.done is not cold
    bench.hold_calls = False
    bench.settle()
    assert lengths(reply) == [2, 1]
    assert bench.core.metrics.cold_reads == cold


def test_a_cold_read_whose_topic_goes_meanwhile_is_no_damage(bench: Bench) -> None:
    bench.produce(batch())
    bench.disk.cold = True
    bench.hold_calls = True
    reply = bench.send_fetch()
    read = bench.calls.popleft()
    bench.hold_calls = False
    bench.delete()
    read()
    bench.settle()
    with pytest.raises(UnknownTopic, match="was deleted"):
        fetched(reply)
    assert bench.core.metrics.damaged_partitions == 0


def test_a_cold_read_below_a_log_start_that_moves_meanwhile_is_no_damage(bench: Bench) -> None:
    bench.alter(segment_bytes="16384")
    for _ in range(4):
        bench.produce(sized(10_000))
    bench.disk.cold = True
    bench.hold_calls = True
    reply = bench.send_fetch(0)
    read = bench.calls.popleft()
    bench.hold_calls = False
    assert bench.delete_records(3) == 3
    read()
    bench.settle()
    with pytest.raises(OffsetOutOfRange):
        fetched(reply)
    assert bench.fetch(3) == [3]


def segment_path(bench: Bench, topic: str = "t") -> str:
    return f"{topic}-0/{0:020d}.log"


def test_damage_is_never_served_and_costs_one_partition_only(bench: Bench) -> None:
    bench.create("u")
    bench.produce(batch(b"good"), batch(b"bad"))
    bench.produce(batch(), topic="u")
    waiting = bench.send_fetch(2, max_wait_ms=10_000)
    first_size = len(batch(b"good"))
    bench.disk.damage(segment_path(bench), first_size + 70, b"\xff")
    with pytest.raises(PartitionDamaged, match="partition t-0 is damaged") as caught:
        bench.fetch(1)
    text = str(caught.value)
    assert "00000000000000000000.log" in text
    assert f"at byte {first_size}" in text
    assert "offsets 1 to" in text
    assert "ringlog log verify" in caught.value.hint
    for again in (waiting, bench.send_fetch(0), bench.send_produce(batch())):
        body = again.result(m.Message)
        with pytest.raises(PartitionDamaged):
            ok(body.results[0])  # type: ignore[attr-defined]  # both kinds have results
    assert bench.fetch(topic="u") == [0]
    assert bench.produce(batch(), topic="u") == [1]
    assert bench.core.partitions.damaged()[0][0] == ("t", 0)
    assert bench.describe().partitions[0].error is not None


def test_a_disk_that_cannot_read_costs_one_partition_only(bench: Bench) -> None:
    bench.produce(batch())
    bench.disk.fail(Call.READ, name="t-0", code=errno.EIO)
    with pytest.raises(PartitionDamaged):
        bench.fetch(0)
    assert bench.failure is None


def test_a_fetch_without_partitions_or_with_frames_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequest):
        bench.ask(m.ApiKey.FETCH, m.FetchRequest(0, 1, 1, []), m.FetchResponse)
    body = m.FetchRequest(0, 1, 1, [m.FetchPartition("t", b"", 0, 0, 1)])
    with pytest.raises(InvalidRequest):
        bench.ask(m.ApiKey.FETCH, body, m.FetchResponse, [b"x"])


def test_a_stop_wakes_who_waits(bench: Bench) -> None:
    reply = bench.send_fetch(max_wait_ms=10_000)
    bench.stop()
    error = reply.result(m.FetchResponse).results[0].error
    assert error is not None
    assert "shutting down" in error.cause
