"""Create, delete, alter, grow, describe, metadata: what a request may ask for and what it gets."""

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import (
    DiskFull,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    LimitExceeded,
    RequestTimedOut,
    StaleTopic,
    TopicExists,
    UnknownTopic,
)
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import MAX_TOPIC_NAME_LENGTH
from tests.unit.broker.core_bench import Bench, batch

REQUEST_ID = bytes(range(16))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def metadata(bench: Bench, *names: str) -> dict[str, m.TopicMetadata]:
    body = m.MetadataRequest(list(names) or None)
    answer = bench.ask(m.ApiKey.METADATA, body, m.MetadataResponse)
    return {topic.name: topic for topic in answer.topics}


def test_a_created_topic_takes_records_at_once(bench: Bench) -> None:
    uuid = bench.create(partitions=3)
    assert len(uuid) == 16
    for number in range(3):
        assert bench.produce(batch(), partition=number, uuid=uuid) == [0]


def test_a_topic_is_answered_only_once_its_directories_are_durable(bench: Bench) -> None:
    bench.create(partitions=2)
    after = bench.crashed()
    assert after.produce(batch(), partition=1) == [0]


def test_a_retry_with_the_same_request_id_succeeds_once(bench: Bench) -> None:
    uuid = bench.create(request_id=REQUEST_ID)
    bench.produce(batch())
    assert bench.create(request_id=REQUEST_ID) == uuid
    assert bench.restarted().create(request_id=REQUEST_ID) == uuid


def test_two_creates_of_one_name_at_once_are_one_topic(bench: Bench) -> None:
    def body(request_id: bytes) -> m.CreateTopicRequest:
        return m.CreateTopicRequest("t", 2, -1, {}, request_id, 10_000)

    replies = [
        bench.send(m.ApiKey.CREATE_TOPIC, body(request_id))
        for request_id in (REQUEST_ID, REQUEST_ID, bytes(16))
    ]
    bench.settle()
    first, again, other = replies
    uuid = first.result(m.CreateTopicResponse).topic_uuid
    assert again.result(m.CreateTopicResponse).topic_uuid == uuid
    with pytest.raises(TopicExists):
        other.result(m.CreateTopicResponse)
    # One opening each: nobody opened the same directory twice.
    assert [p.leader_epoch for p in bench.describe().partitions] == [1, 1]


def test_a_second_create_without_the_request_id_is_refused(bench: Bench) -> None:
    bench.create()
    with pytest.raises(TopicExists, match="'t' exists"):
        bench.create()


@pytest.mark.parametrize("name", ["T", "a_b", "A.b"])
def test_names_that_would_collide_are_refused(bench: Bench, name: str) -> None:
    bench.create("t")
    bench.create("a.b")
    with pytest.raises(TopicExists, match="collides"):
        bench.create(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "a\n", "x" * (MAX_TOPIC_NAME_LENGTH + 1), "__x"]
)
def test_names_that_are_none_are_refused(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidTopicName):
        bench.create(name)


def test_the_longest_name_can_be_created_used_and_deleted(bench: Bench) -> None:
    name = "x" * MAX_TOPIC_NAME_LENGTH
    bench.create(name)
    bench.produce(batch(), topic=name)
    bench.delete(name)
    assert bench.disk.directory().names() == ["durable-marks", "registry.json"]


@pytest.mark.parametrize("factor", [0, 2, 3])
def test_more_than_one_replica_needs_a_cluster(bench: Bench, factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor, match="stands alone"):
        bench.create(replication_factor=factor)


@pytest.mark.parametrize("factor", [-1, 1])
def test_one_replica_is_what_a_lone_broker_has(bench: Bench, factor: int) -> None:
    bench.create(replication_factor=factor)
    assert bench.describe().replication_factor == 1


def test_unknown_settings_name_the_nearest(bench: Bench) -> None:
    with pytest.raises(InvalidConfig, match=r"nearest is retention\.ms"):
        bench.create(retentionms="1")
    assert not bench.registry.view().topics


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_has_a_partition(bench: Bench, partitions: int) -> None:
    with pytest.raises(InvalidPartitions):
        bench.create(partitions=partitions)


def test_caps_on_topics_and_partitions_name_the_setting() -> None:
    bench = Bench(max_topics=2, max_partitions=5)
    bench.create("a", 3)
    with pytest.raises(LimitExceeded, match="max_partitions is 5"):
        bench.create("b", 3)
    bench.create("b", 2)
    with pytest.raises(LimitExceeded, match="max_topics is 2"):
        bench.create("c", 1)
    bench.delete("a")
    bench.create("c", 1)


def test_a_retry_of_a_create_is_not_held_against_the_caps() -> None:
    bench = Bench(max_topics=1)
    uuid = bench.create(request_id=REQUEST_ID)
    assert bench.create(request_id=REQUEST_ID) == uuid


def test_a_batch_size_the_broker_cannot_receive_is_refused() -> None:
    bench = Bench(max_message_bytes=1 << 20, max_session_bytes=1 << 20)
    with pytest.raises(InvalidConfig, match="max_message_bytes"):
        bench.create(max_message_bytes=str(2 << 20))
    bench.create()
    with pytest.raises(InvalidConfig, match="max_message_bytes"):
        bench.alter(max_message_bytes=str(2 << 20))


def test_a_request_id_has_16_bytes_or_none(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="16"):
        bench.create(request_id=b"short")


def test_a_full_disk_refuses_a_topic_before_anything_is_written() -> None:
    bench = Bench(SimulatedDisk(capacity_bytes=1 << 20), disk_reserve_bytes=(1 << 20) + 1)
    with pytest.raises(DiskFull):
        bench.create()
    assert not bench.registry.view().topics


def test_a_deadline_says_that_the_outcome_is_unknown_and_a_retry_finds_it(bench: Bench) -> None:
    bench.hold_calls = True
    body = m.CreateTopicRequest("t", 1, -1, {}, REQUEST_ID, 50)
    reply = bench.send(m.ApiKey.CREATE_TOPIC, body)
    bench.advance(50)
    with pytest.raises(RequestTimedOut, match="unknown"):
        reply.result(m.CreateTopicResponse)
    bench.hold_calls = False
    bench.settle()
    bench.create(request_id=REQUEST_ID)


# -- delete ------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_with_its_files(bench: Bench) -> None:
    bench.create(partitions=3)
    bench.produce(batch())
    bench.delete()
    with pytest.raises(UnknownTopic):
        bench.fetch()
    assert bench.disk.directory().names() == ["durable-marks", "registry.json"]
    assert not bench.marks.keys()
    with pytest.raises(UnknownTopic):
        bench.delete()


def test_a_topic_made_again_is_another_one(bench: Bench) -> None:
    old = bench.create()
    bench.produce(batch())
    bench.delete()
    new = bench.create()
    assert new != old
    assert bench.fetch() == []
    with pytest.raises(StaleTopic):
        bench.produce(batch(), uuid=old)
    with pytest.raises(StaleTopic):
        bench.delete(topic_uuid=old)
    assert bench.restarted().produce(batch(), uuid=new) == [0]


def test_a_delete_ends_produces_that_wait(bench: Bench) -> None:
    bench.create()
    bench.hold_flushes = True
    first = bench.send_produce(batch())  # under way when the topic goes
    second = bench.send_produce(batch())  # not yet taken
    delete = bench.send(m.ApiKey.DELETE_TOPIC, m.DeleteTopicRequest("t", b"", 1000))
    bench.settle()
    for reply in (first, second):
        error = reply.result(m.ProduceResponse).results[0].error
        assert error is not None
        assert "was deleted" in error.cause
    assert not delete.done, "files were removed under a job"
    bench.hold_flushes = False
    bench.settle()
    delete.result(m.Done)
    assert bench.core.metrics.unstored_bytes_now == 0


@pytest.mark.parametrize("name", ["__x", "__consumer"])
def test_internal_names_cannot_be_deleted_altered_or_grown(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidTopicName):
        bench.delete(name)
    with pytest.raises(InvalidTopicName):
        bench.alter(name)
    with pytest.raises(InvalidTopicName):
        grow(bench, 2, name)


# -- alter -------------------------------------------------------------------------------------


def test_altered_settings_hold_at_once_and_after_a_restart(bench: Bench) -> None:
    bench.create(retention_ms="1000")
    bench.alter(retention_ms=None, max_message_bytes="2048")
    for _life in range(2):
        described = bench.describe()
        assert described.config["retention.ms"] == "604800000"
        assert described.overrides == ["max.message.bytes"]
        assert bench.partition().settings.log.max_batch_bytes == 2048
        assert bench.partition().log.config.max_batch_bytes == 2048
        bench = bench.restarted()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"retention_mss": "1"}, r"nearest is retention\.ms"),
        ({"segment_bytes": "1"}, "outside 16384"),
        ({"segment_bytes": "x"}, "no whole number"),
        ({"flush_policy": "never"}, "none of majority, interval, os"),
        ({"storage": "memory"}, "fixed when a topic is created"),
    ],
)
def test_a_bad_alteration_changes_nothing(bench: Bench, changes: dict[str, str], text: str) -> None:
    bench.create()
    before = bench.describe()
    with pytest.raises(InvalidConfig, match=text):
        bench.alter(**changes)
    assert bench.describe() == before


def test_altering_what_is_not_there_says_so(bench: Bench) -> None:
    with pytest.raises(UnknownTopic):
        bench.alter("nope", retention_ms="1")


# -- grow --------------------------------------------------------------------------------------


def grow(bench: Bench, total: int, name: str = "t") -> None:
    bench.ask(m.ApiKey.ADD_PARTITIONS, m.AddPartitionsRequest(name, total, 1000), m.Done)


def test_added_partitions_take_records_and_survive(bench: Bench) -> None:
    bench.create()
    bench.produce(batch())
    grow(bench, 3)
    assert bench.produce(batch(), partition=2) == [0]
    after = bench.crashed()
    assert after.fetch(partition=2) == [0]
    assert after.fetch() == [0]


@pytest.mark.parametrize("total", [2, 1, 0, -1])
def test_partitions_are_never_taken_away(bench: Bench, total: int) -> None:
    bench.create(partitions=2)
    with pytest.raises(InvalidPartitions, match="never taken away"):
        grow(bench, total)


def test_growing_is_capped() -> None:
    bench = Bench(max_partitions=3)
    bench.create(partitions=2)
    with pytest.raises(LimitExceeded):
        grow(bench, 4)
    grow(bench, 3)


# -- describe and metadata -----------------------------------------------------------------------


def test_describe_names_every_setting_and_what_is_stored(bench: Bench) -> None:
    uuid = bench.create(partitions=2, retention_ms="5000")
    bench.produce(batch(b"a", b"b"))
    bench.hold_flushes = True
    bench.send_produce(batch())
    described = bench.describe()
    assert described.topic_uuid == uuid
    assert described.state == "online"
    assert described.config["retention.ms"] == "5000"
    assert described.config["flush.policy"] == "majority"
    assert described.overrides == ["retention.ms"]
    first = described.partitions[0]
    assert (first.log_start, first.high_watermark, first.log_end) == (0, 2, 3)
    assert first.size_bytes == len(batch(b"a", b"b")) + len(batch())
    assert (first.leader, first.leader_epoch, first.replicas) == (7, 1, [7])


def test_metadata_names_brokers_and_the_topics_asked_for_in_order(bench: Bench) -> None:
    uuid = bench.create("b", 2)
    bench.create("a")
    answer = bench.ask(m.ApiKey.METADATA, m.MetadataRequest(["b", "nope"]), m.MetadataResponse)
    assert answer.cluster_id == "cluster"
    assert answer.controller_id == 7
    assert answer.brokers == [m.BrokerEndpoint(7, "127.0.0.1:5555")]
    known, unknown = answer.topics
    assert known.topic_uuid == uuid
    assert [p.leader for p in known.partitions] == [7, 7]
    assert unknown.error is not None
    assert "ringlog topic create nope" in unknown.error.hint
    assert set(metadata(bench)) == {"a", "b"}


def test_unknown_topics_are_not_created_by_default(bench: Bench) -> None:
    assert metadata(bench, "t")["t"].error is not None
    assert not bench.registry.view().topics


def test_with_the_setting_metadata_creates_what_is_asked_for() -> None:
    bench = Bench(auto_create_topics=True, default_partitions=2)
    bench.create("old")
    found = metadata(bench, "old", "new", "a/b", "__internal", "OLD")
    assert len(found["new"].partitions) == 2
    assert [found[name].error is None for name in ("a/b", "__internal", "OLD")] == [False] * 3
    error = found["OLD"].error
    assert error is not None
    assert "collides" in error.cause
    assert bench.produce(batch(), topic="new", partition=1) == [0]
    assert set(bench.registry.view().topics) == {"old", "new"}


def test_a_damaged_partition_has_no_leader_but_a_reason(bench: Bench) -> None:
    bench.create()
    bench.produce(batch(b"value"))
    bench.disk.damage(f"t-0/{0:020d}.log", 65, b"\xff\xff")
    bench.send_fetch()
    partition = metadata(bench, "t")["t"].partitions[0]
    assert partition.leader == -1
    assert partition.error is not None
    assert "damaged" in partition.error.cause


def test_abandoned_operations_are_answered() -> None:
    bench = Bench()
    bench.hold_calls = True
    reply = bench.send(m.ApiKey.CREATE_TOPIC, m.CreateTopicRequest("t", 1, -1, {}, b"", 50))
    bench.core.abandon(StaleTopic("the end"))
    with pytest.raises(StaleTopic, match="the end"):
        reply.result(m.CreateTopicResponse)
    bench.hold_calls = False
    bench.settle()
