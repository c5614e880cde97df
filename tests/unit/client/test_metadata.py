"""Who leads what, and which answer counts."""

import time

from ringlog.client.errors import ErrorCode, ErrorInfo
from ringlog.client.messages import (
    BrokerEndpoint,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from ringlog.client.metadata import NO_LEADER, MetadataCache

MISSING = ErrorInfo(int(ErrorCode.UNKNOWN_TOPIC), "no such topic")


def answer(*topics: TopicMetadata, brokers: int = 2) -> MetadataResponse:
    rows = [BrokerEndpoint(number, f"host{number}:1") for number in range(1, brokers + 1)]
    return MetadataResponse("c", 1, rows, list(topics))


def topic(
    name: str, *leaders: int, epoch: int = 1, uuid: bytes = b"u", error: ErrorInfo | None = None
) -> TopicMetadata:
    rows = [PartitionMetadata(p, leader, epoch, [1, 2]) for p, leader in enumerate(leaders)]
    return TopicMetadata(name, uuid, rows, error)


def test_leaders_and_endpoints() -> None:
    cache = MetadataCache()
    assert cache.leader("t", 0) == NO_LEADER
    cache.apply(answer(topic("t", 1, 2)))
    assert [cache.leader("t", p) for p in (-1, 0, 1, 2)] == [NO_LEADER, 1, 2, NO_LEADER]
    assert cache.endpoint(2) == "host2:1"
    assert cache.endpoint(3) is None
    assert [row.broker_id for row in cache.brokers] == [1, 2]
    assert cache.names == ("t",)


def test_partitions_may_come_in_any_order() -> None:
    cache = MetadataCache()
    rows = [PartitionMetadata(1, 8, 1, []), PartitionMetadata(0, 7, 1, [])]
    cache.apply(answer(TopicMetadata("t", b"u", rows)))
    assert cache.leader("t", 0) == 7


def test_an_older_epoch_never_replaces_a_newer_one_of_the_same_topic() -> None:
    cache = MetadataCache()
    cache.apply(answer(topic("t", 2, epoch=5)))
    cache.apply(answer(topic("t", 1, epoch=4)))
    assert cache.leader("t", 0) == 2
    cache.apply(answer(topic("t", 1, epoch=6)))
    assert cache.leader("t", 0) == 1


def test_a_topic_made_anew_starts_over() -> None:
    cache = MetadataCache()
    cache.apply(answer(topic("t", 2, epoch=5, uuid=b"old")))
    cache.apply(answer(topic("t", 1, epoch=0, uuid=b"new")))
    view = cache.topic("t")
    assert view is not None
    assert (view.topic_uuid, view.partitions[0].leader) == (b"new", 1)


def test_a_topic_that_is_gone_is_forgotten_and_said_to_be_missing() -> None:
    cache = MetadataCache()
    cache.apply(answer(topic("t", 1)))
    cache.apply(answer(topic("t", error=MISSING)))
    assert cache.topic("t") is None
    assert cache.missing("t") == MISSING
    cache.apply(answer(topic("t", 1)))
    assert cache.missing("t") is None


def test_another_error_of_a_topic_keeps_what_is_known() -> None:
    cache = MetadataCache()
    cache.apply(answer(topic("t", 1)))
    cache.apply(answer(topic("t", error=ErrorInfo(int(ErrorCode.BUSY), "later"))))
    assert cache.leader("t", 0) == 1


def test_an_answer_without_brokers_keeps_the_old_ones() -> None:
    cache = MetadataCache()
    cache.apply(answer())
    cache.apply(answer(brokers=0))
    assert cache.endpoint(1) == "host1:1"


def test_lookups_do_not_slow_down_with_the_number_of_topics() -> None:
    def seconds(count: int) -> float:
        cache = MetadataCache()
        cache.apply(answer(*(topic(f"t{number}", 1) for number in range(count))))
        best = 1e9
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(2000):
                cache.leader("t7", 0)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(5_000) < 5 * seconds(10)
