"""The core as a whole: start, stop, abandon, retention rounds, measuring free space."""

import errno
import random

import pytest

from ringlog.broker.core import RETENTION_SLICE
from ringlog.broker.dispatch import WRITING_APIS
from ringlog.client import messages as m
from ringlog.client.errors import OffsetOutOfRange, StorageFailed
from ringlog.client.messages import APIS, ApiKey
from ringlog.storage.crash_images import CrashMode
from ringlog.storage.simulated_files import Call
from tests.unit.broker.core_bench import Bench, batch, sized

HOUR_MS = 3_600_000


def test_every_api_but_versions_has_a_handler() -> None:
    assert set(Bench().handlers) == set(APIS) - {ApiKey.VERSIONS}
    assert set(APIS) > WRITING_APIS


def test_a_restart_keeps_everything() -> None:
    bench = Bench()
    uuid = bench.create(partitions=2, retention_ms="5000")
    bench.produce(batch(b"a"), batch(b"b"))
    bench.produce(batch(), partition=1)
    for epoch in (2, 3):
        bench = bench.restarted()
        assert bench.describe().topic_uuid == uuid
        assert bench.describe().config["retention.ms"] == "5000"
        assert bench.fetch() == [0, 1]
        assert bench.fetch(partition=1) == [0]
        assert bench.describe().partitions[0].leader_epoch == epoch


def test_a_clean_stop_flushes_and_answers_what_waits() -> None:
    bench = Bench()
    bench.create()
    bench.create("w", flush_policy="os")
    bench.produce(batch(), topic="w")
    reply = bench.send_produce(batch())
    bench.stop()
    assert reply.result(m.ProduceResponse).results[0].base_offset == 0
    after = bench.crashed()  # the worst that can follow a stop
    assert after.fetch() == [0]
    assert after.fetch(topic="w") == [0]


def test_a_clean_stop_leaves_nothing_to_recover(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch())
    caplog.clear()
    bench.restarted()
    assert "not closed in order" not in caplog.text


def test_a_stop_waits_for_an_operation_under_way() -> None:
    bench = Bench()
    bench.hold_calls = True
    bench.send(ApiKey.CREATE_TOPIC, m.CreateTopicRequest("t", 1, -1, {}, b"", 1000))
    stopped: list[bool] = []
    bench.core.stop(lambda: stopped.append(True))
    assert not stopped
    bench.hold_calls = False
    bench.settle()
    assert stopped == [True]
    bench.marks.flush()
    assert bench.crashed().produce(batch()) == [0]


def test_no_timer_outlives_a_stop() -> None:
    bench = Bench()
    bench.create()
    bench.stop()
    bench.advance(HOUR_MS)
    assert bench.timers.next_deadline_ms() is None


def test_abandon_answers_every_waiter_at_once() -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch())
    bench.hold_flushes = True
    produce = bench.send_produce(batch())
    fetch = bench.send_fetch(1, max_wait_ms=10_000)
    delete = bench.send(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest("t", b"", 0, 1, 1000))
    bench.core.abandon(StorageFailed("a flush failed"))
    assert produce.result(m.ProduceResponse).results[0].error is not None
    assert fetch.result(m.FetchResponse).results[0].error is not None
    with pytest.raises(StorageFailed):
        delete.result(m.DeleteRecordsResponse)


# -- retention ---------------------------------------------------------------------------------


def fill(bench: Bench, count: int, topic: str = "t") -> None:
    """Segments of one batch each."""
    for _ in range(count):
        bench.produce(sized(10_000, at_ms=bench.wall_ms), topic=topic)


def test_retention_by_time_drops_closed_segments_that_are_old() -> None:
    bench = Bench()
    bench.create(segment_bytes="16384", retention_ms=str(HOUR_MS))
    fill(bench, 3)
    bench.advance(HOUR_MS // 2)
    fill(bench, 2)
    assert bench.offset_at(m.EARLIEST) == 0
    bench.advance(HOUR_MS // 2 + 100_000)
    # The third was closed only when the fourth came: from then on its hour counts.
    assert bench.offset_at(m.EARLIEST) == 2
    bench.advance(HOUR_MS // 2)
    assert bench.offset_at(m.EARLIEST) == 4
    with pytest.raises(OffsetOutOfRange):
        bench.fetch(3)
    assert bench.crashed().offset_at(m.EARLIEST) == 4


def test_retention_by_size_drops_the_oldest_segments() -> None:
    bench = Bench()
    bench.create(segment_bytes="16384", retention_bytes="30000")
    fill(bench, 6)
    bench.advance(100_000)
    assert bench.offset_at(m.EARLIEST) == 3
    assert bench.describe().partitions[0].size_bytes >= 30_000
    assert bench.produce(batch()) == [6]


def test_records_of_an_idle_topic_go_too() -> None:
    bench = Bench(disk_check_interval_ms=600_000)
    bench.create(retention_ms=str(HOUR_MS))
    bench.produce(batch())
    bench.advance(2 * HOUR_MS + 200_000)
    assert bench.offset_at(m.EARLIEST) == 1
    assert bench.describe().partitions[0].size_bytes == 0
    assert bench.crashed().produce(batch()) == [1]


def test_retention_is_off_when_told() -> None:
    bench = Bench(disk_check_interval_ms=600_000)
    bench.create(segment_bytes="16384", retention_ms="-1")
    fill(bench, 4)
    bench.advance(200 * HOUR_MS)
    assert bench.offset_at(m.EARLIEST) == 0


def test_retention_never_passes_the_high_watermark() -> None:
    bench = Bench()
    bench.create(segment_bytes="16384", retention_bytes="0")
    fill(bench, 2)
    bench.hold_flushes = True
    for _ in range(3):
        bench.send_produce(sized(10_000))
    bench.advance(100_000)
    bench.hold_flushes = False
    bench.settle()
    assert bench.offset_at(m.EARLIEST) <= 2
    assert bench.failure is None


def test_a_round_of_retention_is_cut_into_slices() -> None:
    bench = Bench(retention_check_interval_ms=1000)
    bench.create(partitions=RETENTION_SLICE + 10)
    looked_at: list[int] = []

    class Spy:
        def retain(self, now_ms: int) -> None:
            looked_at.append(bench.clock_ms)

    bench.core._open_partitions = lambda: [Spy()] * (RETENTION_SLICE + 10)  # type: ignore[method-assign, list-item]  # a spy
    bench.advance(1300)
    assert len(looked_at) == RETENTION_SLICE + 10
    assert looked_at.count(looked_at[0]) == RETENTION_SLICE
    assert len(set(looked_at)) == 2


# -- free space --------------------------------------------------------------------------------


def test_free_space_is_measured_again_and_again() -> None:
    bench = Bench(disk_check_interval_ms=100)
    first = bench.core._space.free_bytes
    bench.disk.take(1 << 20)
    bench.advance(100)
    assert bench.core._space.free_bytes == first - (1 << 20)
    bench.disk.give_back(1 << 20)
    bench.advance(100)
    assert bench.core._space.free_bytes == first


def test_a_start_that_fails_says_why() -> None:
    bench = Bench()
    bench.create()
    bench.stop()
    disk = bench.disk
    disk.fail(Call.RENAME, name="raft-state", code=errno.EIO)
    after = bench.next_life(disk)
    assert after.failure is not None
    assert not after.started


def test_a_start_that_cannot_recover_a_log_fails() -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch())
    disk = bench.disk.crash(random.Random(0), CrashMode.KILL)
    disk.fail(Call.SYNC, name="t-0")
    after = bench.next_life(disk)
    assert after.failure is not None
    assert after.start_error is after.failure
