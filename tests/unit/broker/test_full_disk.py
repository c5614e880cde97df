"""A full disk: what is asked for is refused at once, a stop is clean, and nothing is lost."""

import errno
import random

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import DiskFull
from ringlog.storage.crash_images import CrashMode
from ringlog.storage.simulated_files import Call
from tests.unit.broker.core_bench import Bench, FakeReply, batch


def fail(bench: Bench, name: str, *, times: int = 1) -> None:
    for _ in range(times):
        bench.disk.fail(Call.WRITE, name=name, code=errno.ENOSPC)


def next_life(bench: Bench) -> Bench:
    bench.marks.flush()
    return bench.next_life(bench.disk.crash(random.Random(0), CrashMode.KILL))


@pytest.mark.parametrize("name", [".index", ".time", "producers", "durable-marks"])
def test_a_stop_needs_no_space(name: str) -> None:
    bench = Bench()
    bench.create(partitions=2)
    bench.produce(batch(b"a"))
    bench.produce(batch(b"b"), partition=1)
    fail(bench, name)
    bench.stop()
    assert bench.failure is None
    after = next_life(bench)
    assert (after.fetch(), after.fetch(partition=1)) == ([0], [0])


@pytest.mark.parametrize("before_stop", [True, False])
def test_a_stop_does_not_wait_for_space(before_stop: bool) -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch(b"a"))
    fail(bench, ".log", times=9)
    reply = bench.send_produce(batch(b"b"))
    if before_stop:
        bench.settle()
    bench.stop()
    assert bench.failure is None
    assert reply.done
    assert next_life(bench).fetch() == [0]


@pytest.mark.parametrize(
    "name", ["registry.json", "partition.json", "raft-state", "raft-log", "start-state"]
)
def test_a_topic_that_finds_no_space_is_refused_at_once(name: str) -> None:
    bench = Bench()
    fail(bench, name)
    with pytest.raises(DiskFull):
        bench.create()
    assert bench.failure is None
    bench.create()
    assert bench.produce(batch()) == [0]


@pytest.mark.parametrize("name", ["registry.json", "t-2/raft-state", "t-2/raft-log"])
def test_growth_that_finds_no_space_is_refused_and_leaves_no_log_open(name: str) -> None:
    bench = Bench()
    bench.create()
    fail(bench, name)
    grow = m.AddPartitionsRequest("t", 3, 10_000)
    with pytest.raises(DiskFull):
        bench.ask(m.ApiKey.ADD_PARTITIONS, grow, m.Done)
    bench.ask(m.ApiKey.ADD_PARTITIONS, grow, m.Done)
    bench.advance(5_000)
    for number in range(3):
        assert bench.produce(batch(), partition=number) == [0]
    assert bench.restarted().fetch(partition=2) == [0]


@pytest.mark.parametrize("name", ["raft-log", "raft-state"])
def test_a_start_without_space_serves_the_other_partitions(name: str) -> None:
    bench = Bench()
    bench.create(partitions=2)
    bench.produce(batch(b"a"))
    bench.produce(batch(b"b"), partition=1)
    disk = bench.disk.crash(random.Random(0), CrashMode.KILL)
    disk.fail(Call.WRITE, name=f"t-0/{name}", code=errno.ENOSPC)
    after = Bench(disk, life=1)
    assert after.started
    assert (after.start_error, after.failure) == (None, None)
    assert after.fetch(partition=1) == [0]
    after.advance(10_000)
    assert after.fetch() == [0]


def delete_records(bench: Bench) -> FakeReply:
    body = m.DeleteRecordsRequest("t", b"", 0, 1, 10_000)
    reply = bench.send(m.ApiKey.DELETE_RECORDS, body)
    bench.settle()
    return reply


@pytest.mark.parametrize("name", ["start-state", "raft-log"])
def test_delete_records_without_space_says_so_and_goes_on(name: str) -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch(b"a"), batch(b"b"))
    fail(bench, name, times=2)
    with pytest.raises(DiskFull):
        delete_records(bench).result(m.DeleteRecordsResponse)
    bench.advance(5_000)
    assert delete_records(bench).result(m.DeleteRecordsResponse).log_start == 1


def test_a_full_disk_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.create()
    fail(bench, ".log", times=50)
    bench.send_produce(batch(b"a"))
    bench.settle()
    bench.advance(20_000)
    assert caplog.text.count("it is tried again") == 1
    assert "bytes free; free some space there" in caplog.text
    bench.advance(30_000)
    assert caplog.text.count("it is tried again") == 1
