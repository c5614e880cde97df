"""Produce: acknowledged after the flush, in order, once; refused with a reason."""

import errno
import random

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import (
    BatchTooLarge,
    Busy,
    CorruptBatch,
    DiskFull,
    InvalidRequest,
    InvalidTimestamp,
    OutOfOrderSequence,
    ProducerFenced,
    RequestTimedOut,
    StaleTopic,
    UnknownPartition,
    UnknownTopic,
)
from ringlog.storage.crash_images import CrashMode
from ringlog.storage.simulated_files import Call, SimulatedCrash
from tests.unit.broker.core_bench import NOW_MS, Bench, batch, fetched, ok, sized


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.create()
    return bench


@pytest.mark.parametrize("acks", [-1, 1])
def test_an_ack_never_comes_before_the_flush(bench: Bench, acks: int) -> None:
    bench.hold_flushes = True
    reply = bench.send_produce(batch(b"a", b"b"), acks=acks)
    bench.settle()
    assert not reply.done
    assert bench.fetch() == []
    bench.flush_one()
    assert [r.base_offset for r in reply.result(m.ProduceResponse).results] == [0]
    assert bench.fetch() == [0]


def test_what_was_acked_survives_a_power_cut_and_what_was_not_may_go(bench: Bench) -> None:
    bench.produce(batch(b"a"))
    bench.hold_flushes = True
    reply = bench.send_produce(batch(b"b"))
    assert not reply.done
    after = bench.crashed()
    assert after.fetch() == [0]
    assert after.offset_at(m.LATEST) == 1


def test_a_kill_between_write_and_ack_answers_nobody_and_loses_no_acked_batch(
    bench: Bench,
) -> None:
    bench.produce(batch(b"a"))
    bench.disk.crash_at(bench.disk.call_count + 2, after=False)  # write, then the flush
    reply = bench.send_produce(batch(b"b"))
    with pytest.raises(SimulatedCrash):
        bench.settle()
    assert not reply.done
    assert bench.crashed(CrashMode.KILL).fetch() == [0, 1]


def test_batches_of_one_request_keep_their_order_and_answers_their_place(bench: Bench) -> None:
    bench.create("u")
    targets = [m.ProducePartition(name, b"", 0) for name in ("t", "nope", "u", "t")]
    body = m.ProduceRequest(-1, 1000, targets)
    batches = [batch(b"1", b"2"), batch(), batch(), batch()]
    results = bench.ask(m.ApiKey.PRODUCE, body, m.ProduceResponse, batches).results
    assert [r.base_offset for r in results] == [0, -1, 0, 2]
    with pytest.raises(UnknownTopic, match="'nope' does not exist"):
        ok(results[1])


def test_a_batch_behind_one_that_was_refused_for_now_is_refused_too() -> None:
    bench = Bench(max_unflushed_bytes=1 << 20)
    bench.create()
    bench.hold_flushes = True
    reply = bench.send_produce(sized(600_000), sized(600_000), sized(10))
    bench.hold_flushes = False
    bench.settle()
    first, second, third = reply.result(m.ProduceResponse).results
    assert ok(first).base_offset == 0
    for refused in (second, third):
        with pytest.raises(Busy, match="max_unflushed_bytes"):
            ok(refused)
    assert bench.produce(sized(10)) == [1]


def test_a_batch_larger_than_the_limit_gets_in_alone_and_frees_its_room() -> None:
    bench = Bench(max_unflushed_bytes=1 << 20)
    bench.create()
    assert bench.produce(sized(3 << 20)) == [0]
    assert bench.produce(sized(3 << 20)) == [1]
    assert bench.core.metrics.unstored_bytes_now == 0


def test_acks_0_is_appended_and_never_answered(bench: Bench) -> None:
    reply = bench.send_produce(batch(), acks=0)
    bench.settle()
    assert reply.discarded
    assert bench.fetch() == [0]


def idempotent(sequence: int, *values: bytes, epoch: int = 0, producer_id: int = 5) -> bytes:
    return batch(
        *(values or (b"v",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def test_a_duplicate_gets_the_offset_of_its_original(bench: Bench) -> None:
    assert bench.produce(batch(b"x")) == [0]
    assert bench.produce(idempotent(0, b"a", b"b")) == [1]
    assert bench.produce(idempotent(2)) == [3]
    assert bench.produce(idempotent(0, b"a", b"b")) == [1]
    assert bench.offset_at(m.LATEST) == 4
    assert bench.core.metrics.duplicate_batches == 1


def test_a_duplicate_of_an_uncommitted_batch_waits_for_it(bench: Bench) -> None:
    bench.hold_flushes = True
    first = bench.send_produce(idempotent(0))
    again = bench.send_produce(idempotent(0))
    bench.settle()
    assert not first.done
    assert not again.done
    bench.hold_flushes = False
    bench.settle()
    for reply in (first, again):
        assert ok(reply.result(m.ProduceResponse).results[0]).base_offset == 0
    assert bench.offset_at(m.LATEST) == 1


@pytest.mark.parametrize("crash", [False, True])
def test_a_duplicate_is_known_after_a_restart(bench: Bench, crash: bool) -> None:
    bench.produce(idempotent(0, b"a", b"b"))
    after = bench.crashed() if crash else bench.restarted()
    assert after.produce(idempotent(0, b"a", b"b")) == [0]
    assert after.produce(idempotent(2)) == [2]


def test_a_gap_in_the_sequence_is_refused(bench: Bench) -> None:
    bench.produce(idempotent(0))
    with pytest.raises(OutOfOrderSequence, match="1 is next"):
        bench.produce(idempotent(2))
    assert bench.offset_at(m.LATEST) == 1


def test_an_older_epoch_is_fenced(bench: Bench) -> None:
    bench.produce(idempotent(0, epoch=1))
    with pytest.raises(ProducerFenced, match="epoch 0 is older than 1"):
        bench.produce(idempotent(0, epoch=0))


def _truncated() -> bytes:
    return batch(b"a")[:-1]


def _flipped() -> bytes:
    data = bytearray(batch(b"abc"))
    data[-2] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (_truncated(), CorruptBatch),
        (_flipped(), CorruptBatch),
        (batch() + batch(), CorruptBatch),
        (b"", CorruptBatch),
        (b"\0" * 100, CorruptBatch),
        (batch(at_ms=NOW_MS + 3_600_001), InvalidTimestamp),
        (sized(2_000), BatchTooLarge),
    ],
    ids=["truncated", "flipped", "two", "empty", "zeros", "future", "oversized"],
)
def test_a_bad_batch_is_refused_and_nothing_is_stored(
    payload: bytes, error: type[Exception]
) -> None:
    bench = Bench()
    bench.create(max_message_bytes="1024")
    with pytest.raises(error):
        bench.produce(payload)
    assert bench.offset_at(m.LATEST) == 0
    assert bench.produce(batch(at_ms=NOW_MS + 3_600_000)) == [0]


def test_names_that_do_not_fit_are_refused(bench: Bench) -> None:
    with pytest.raises(StaleTopic):
        bench.produce(batch(), uuid=bytes(16))
    for number in (-1, 1):
        with pytest.raises(UnknownPartition, match=f"not {number}"):
            bench.produce(batch(), partition=number)


@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (m.ProduceRequest(2, 10, [m.ProducePartition("t", b"", 0)]), 1),
        (m.ProduceRequest(-1, 10, [m.ProducePartition("t", b"", 0)]), 2),
        (m.ProduceRequest(-1, 10, []), 1),
        (m.ProduceRequest(-1, -1, [m.ProducePartition("t", b"", 0)]), 1),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(
    bench: Bench, body: m.ProduceRequest, frames: int
) -> None:
    with pytest.raises(InvalidRequest):
        bench.ask(m.ApiKey.PRODUCE, body, m.ProduceResponse, [batch()] * frames)
    assert bench.offset_at(m.LATEST) == 0


def test_an_empty_request_is_answered(bench: Bench) -> None:
    body = m.ProduceRequest(-1, 1000, [])
    assert bench.ask(m.ApiKey.PRODUCE, body, m.ProduceResponse).results == []


def test_a_deadline_says_that_the_outcome_is_unknown(bench: Bench) -> None:
    bench.hold_flushes = True
    reply = bench.send_produce(batch(), timeout_ms=50)
    bench.advance(49)
    assert not reply.done
    bench.advance(1)
    with pytest.raises(RequestTimedOut, match="unknown"):
        ok(reply.result(m.ProduceResponse).results[0])
    bench.hold_flushes = False
    bench.settle()
    assert bench.fetch() == [0]
    assert bench.core.metrics.produce_timeouts == 1


def test_a_deadline_behind_the_answer_counts_as_nothing(bench: Bench) -> None:
    bench.hold_flushes = True
    reply = bench.send_produce(batch(), timeout_ms=50)
    bench.hold_flushes = False
    bench.settle()
    assert reply.done
    bench.advance(50)
    assert bench.core.metrics.produce_timeouts == 0


def test_the_disk_reserve_refuses_before_anything_is_written() -> None:
    bench = Bench(disk_reserve_bytes=(1 << 40) - (1 << 20))
    bench.create()
    assert bench.produce(sized(500_000)) == [0]
    with pytest.raises(DiskFull, match="disk_reserve_bytes"):
        bench.produce(sized(600_000))
    assert bench.offset_at(m.LATEST) == 1
    assert bench.fetch() == [0]
    assert bench.core.metrics.disk_full_refusals == 1


def test_a_failed_flush_stops_the_broker_and_acks_nothing(bench: Bench) -> None:
    bench.disk.fail(Call.SYNC, name=".log")
    reply = bench.send_produce(batch())
    bench.settle()
    assert bench.failure is not None
    assert not reply.done  # the server now calls `abandon` with STORAGE_FAILED
    second = bench.send_produce(batch())
    bench.settle()
    assert not second.done
    assert not bench.flushes, "retried"


def test_a_full_disk_is_tried_again_and_then_acked(bench: Bench) -> None:
    bench.disk.fail(Call.WRITE, name=".log", code=errno.ENOSPC, short=10)
    reply = bench.send_produce(batch(b"a"))
    bench.settle()
    assert not reply.done
    assert bench.failure is None
    bench.advance(500)
    assert ok(reply.result(m.ProduceResponse).results[0]).base_offset == 0
    assert bench.crashed().fetch() == [0]


@pytest.mark.parametrize("policy", ["interval", "os"])
def test_a_weak_policy_acks_from_the_page_cache(policy: str) -> None:
    bench = Bench()
    bench.create(flush_policy=policy)
    bench.produce(batch(b"a"))
    assert bench.fetch() == [0]
    assert bench.partition().log.durable.offset == 0
    assert bench.crashed(CrashMode.KILL).fetch() == [0]


def test_the_interval_policy_flushes_within_its_interval() -> None:
    bench = Bench()
    bench.create(flush_policy="interval", flush_interval_ms="100")
    bench.produce(batch(b"a"))
    bench.advance(99)
    assert bench.partition().log.durable.offset == 0
    bench.advance(1)
    assert bench.partition().log.durable.offset == 1
    bench.produce(batch(b"b"))
    bench.advance(100)
    assert bench.partition().log.durable.offset == 2
    assert bench.crashed().fetch() == [0, 1]


def test_random_interleavings_ack_only_what_is_flushed(bench: Bench) -> None:
    rng = random.Random(3)
    bench.hold_flushes = True
    waiting = []
    for _ in range(200):
        if rng.random() < 0.5:
            waiting.append(bench.send_produce(batch(b"x" * rng.randrange(50))))
        elif bench.flushes:
            bench.flush_one()
        durable = bench.partition().log.durable.offset
        for reply in waiting:
            if reply.done:
                result = ok(reply.result(m.ProduceResponse).results[0])
                assert result.base_offset < durable
    assert fetched(bench.send_fetch()) == list(range(bench.partition().high_watermark))
