"""The life of topics across stops: each step durable before the next, so a start can finish it."""

import contextlib
import errno
import logging
import random
from pathlib import Path

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import (
    BrokerError,
    DiskFull,
    PartitionDamaged,
    UnknownTopic,
)
from ringlog.registry.model import RegistryState, TopicState
from ringlog.registry.standalone import FORMAT
from ringlog.storage.crash_images import CrashMode
from ringlog.storage.errors import StorageError
from ringlog.storage.real_files import RealDirectory
from ringlog.storage.simulated_files import Call
from ringlog.storage.state_file import write_state
from tests.unit.broker.core_bench import Bench, batch, sized


def names(bench: Bench) -> list[str]:
    kept = {"durable-marks", "registry.json"}
    return [name for name in bench.disk.directory().names() if name not in kept]


def state_of(bench: Bench) -> TopicState | None:
    topic = bench.registry.view().topics.get("t")
    return topic.state if topic is not None else None


@pytest.mark.parametrize("name", ["t-1", "registry.json"])
def test_a_create_that_finds_no_space_is_taken_back(name: str) -> None:
    bench = Bench()
    skip = 1 if name == "registry.json" else 0  # the second write: online
    bench.disk.fail(Call.CREATE, name=name, code=errno.ENOSPC, skip=skip)
    with pytest.raises(DiskFull):
        bench.create(partitions=3)
    assert state_of(bench) is None
    assert names(bench) == []
    bench.create(partitions=3)
    assert bench.produce(batch(), partition=1) == [0]


def test_a_registry_that_cannot_be_kept_stops_the_broker() -> None:
    bench = Bench()
    bench.disk.fail(Call.SYNC, name="registry.json")
    with pytest.raises(BrokerError):
        bench.create()
    assert isinstance(bench.failure, StorageError)


def test_a_directory_of_another_topic_is_never_overwritten() -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch(b"precious"))
    bench.stop()
    # Somebody put an old registry back: the topic is unknown, its files are there.
    write_state(bench.disk.directory(), "registry.json", RegistryState(), format=FORMAT)
    after = bench.next_life(bench.disk.crash(random.Random(0), CrashMode.SURVIVE_ALL))
    with pytest.raises(PartitionDamaged, match="holds partition 0 of topic t"):
        after.create()
    assert after.disk.directory().exists("t-0")
    assert state_of(after) is None


def test_a_damaged_partition_does_not_keep_the_broker_from_starting() -> None:
    bench = Bench()
    bench.create(partitions=2)
    bench.produce(batch(b"bad"))
    bench.produce(batch(b"good"), partition=1)
    bench.disk.damage(f"t-0/{0:020d}.log", 65, b"\xff\xff")
    after = bench.crashed()
    assert after.start_error is None
    with pytest.raises(PartitionDamaged, match="t-0") as caught:
        after.produce(batch())
    assert "at byte 0" in str(caught.value)
    assert "ringlog log verify" in caught.value.hint
    assert after.fetch(partition=1) == [0]
    assert after.produce(batch(), partition=1) == [1]
    # It stays as it is, also over a clean stop.
    assert after.restarted().core.partitions.damaged()[0][0] == ("t", 0)


def test_a_damaged_topic_can_be_deleted() -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch(b"bad"))
    bench.disk.damage(f"t-0/{0:020d}.log", 65, b"\xff\xff")
    after = bench.crashed()
    after.delete()
    assert names(after) == []
    after.create()
    assert after.produce(batch()) == [0]


def test_a_start_that_finds_no_space_opens_the_partition_later() -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch())
    disk = bench.disk.crash(random.Random(0), CrashMode.KILL)
    disk.fail(Call.CREATE, name="t-0", code=errno.ENOSPC)
    after = Bench(disk)
    assert after.start_error is None
    with pytest.raises(DiskFull):
        after.fetch()
    after.advance(10_000)
    assert after.fetch() == [0]


def test_a_deleted_topic_whose_job_waits_for_space_goes() -> None:
    bench = Bench()
    bench.create()
    bench.disk.fail(Call.WRITE, name=".log", code=errno.ENOSPC)
    reply = bench.send_produce(batch())
    bench.settle()
    bench.delete()
    assert reply.done
    bench.advance(1000)
    assert bench.core.metrics.unstored_bytes_now == 0
    with pytest.raises(UnknownTopic):
        bench.fetch()


def test_memory_topics_keep_nothing_and_write_nothing() -> None:
    bench = Bench()
    bench.create(storage="memory")
    assert bench.produce(batch(b"a"), batch(b"b")) == [0, 1]
    assert bench.fetch() == [0, 1]
    assert names(bench) == []
    after = bench.restarted()
    assert after.fetch() == []
    assert after.produce(batch()) == [0]
    after.delete()


def test_memory_topics_are_bounded_together() -> None:
    bench = Bench(max_memory_topic_bytes=1 << 20)
    bench.create("a", storage="memory", segment_bytes="16384", retention_bytes="0")
    bench.create("b", storage="memory")
    fill(bench, "a", 20)
    fill(bench, "b", 20)
    with pytest.raises(DiskFull, match="max_memory_topic_bytes"):
        fill(bench, "b", 20)
    assert bench.failure is None
    # A topic that lets go of its records makes room again.
    bench.advance(100_000)
    bench.produce(sized(20_000), topic="b")
    bench.delete("a")
    bench.delete("b")
    bench.create("c", storage="memory")
    fill(bench, "c", 40)


def fill(bench: Bench, topic: str, count: int) -> None:
    for _ in range(count):
        bench.produce(sized(20_000), topic=topic)


def open_below(directory: Path) -> list[Path]:
    """Files below `directory` that this process has open, removed ones too."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = descriptor.readlink()
            if target.is_relative_to(directory) and target.parent != directory:
                found.append(target)
    return found


def test_a_deleted_topic_leaves_no_file_open(tmp_path: Path) -> None:
    root = RealDirectory(str(tmp_path / "data"))
    bench = Bench(directory=root)
    bench.create(partitions=3)
    for number in range(3):
        bench.produce(batch(), partition=number)
    assert open_below(tmp_path / "data")
    bench.delete()
    assert open_below(tmp_path / "data") == []
    bench.stop()


def test_memory_and_weak_topics_say_so_at_start(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.create("m", storage="memory")
    bench.create("i", flush_policy="interval")
    bench.create("o", flush_policy="os")
    bench.create("safe")
    caplog.clear()
    after = bench.restarted()
    for text in ("topic m: storage=memory", "topic i: flush.policy=interval", "topic o: flush"):
        assert text in caplog.text
    assert "topic safe" not in caplog.text
    body = m.DescribeBrokerRequest()
    described = after.ask(m.ApiKey.DESCRIBE_BROKER, body, m.DescribeBrokerResponse)
    assert len(described.warnings) == 3


def test_the_life_of_a_topic_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ringlog.broker.topics")
    bench = Bench()
    bench.create(partitions=2)
    bench.ask(m.ApiKey.ADD_PARTITIONS, m.AddPartitionsRequest("t", 5, 1000), m.Done)
    bench.alter(retention_ms="5000", flush_policy="os")
    bench.alter(retention_ms=None)
    bench.delete()
    assert [record.getMessage() for record in caplog.records] == [
        "topic t created, partitions: 2",
        "topic t grew, partitions: 5",
        "topic t altered: retention.ms=5000, flush.policy=os",
        "topic t: flush.policy=os; a power loss may lose acknowledged records",
        "topic t altered: retention.ms back to its default",
        "topic t deleted",
    ]
    assert caplog.records[3].levelno == logging.WARNING
