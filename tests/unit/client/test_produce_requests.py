"""How batches share requests."""

from ringlog.client.batch import Batch
from ringlog.client.messages import MetadataResponse, TopicMetadata
from ringlog.client.metadata import MetadataCache
from ringlog.client.produce_requests import REQUEST_BATCHES, produce_requests
from ringlog.client.producer_effects import Produce

MIB = 1 << 20


def batch_of(size_bytes: int, *, topic: str = "t", deadline_ms: int = 10_000) -> Batch:
    batch = Batch(topic, 0, 1, 0)
    batch.payload = bytes(size_bytes)
    batch.deadline_ms = deadline_ms
    return batch


def requests_of(*batches: Batch) -> list[Produce]:
    metadata = MetadataCache()
    metadata.apply(MetadataResponse("c", 1, [], [TopicMetadata("t", b"u" * 16, [])]))
    return produce_requests(3, batches, metadata, acks=-1, timeout_ms=1_000, now_ms=100)


def test_a_request_names_each_batch_in_order() -> None:
    first, second = batch_of(1), batch_of(2, topic="gone")
    (one,) = requests_of(first, second)
    assert (one.broker_id, one.batches, one.timeout_ms) == (3, [first, second], 1_000)
    assert (one.body.acks, one.body.timeout_ms) == (-1, 1_000)
    assert [(row.topic, row.topic_uuid) for row in one.body.partitions] == [
        ("t", b"u" * 16),
        ("gone", b""),
    ]


def test_bytes_bound_a_request_but_for_one_that_is_larger_alone() -> None:
    batches = [batch_of(3 * MIB) for _ in range(5)]
    batches.insert(3, batch_of(9 * MIB))
    groups = [one.batches for one in requests_of(*batches)]
    assert [len(group) for group in groups] == [2, 1, 1, 2]
    assert [batch for group in groups for batch in group] == batches


def test_their_number_bounds_a_request() -> None:
    sizes = [len(one.batches) for one in requests_of(*[batch_of(1)] * (REQUEST_BATCHES + 1))]
    assert sizes == [REQUEST_BATCHES, 1]


def test_a_request_never_outlives_its_batches() -> None:
    (one,) = requests_of(batch_of(1), batch_of(1, deadline_ms=400), batch_of(1))
    assert one.timeout_ms == one.body.timeout_ms == 300
    (late,) = requests_of(batch_of(1, deadline_ms=50))
    assert late.timeout_ms == 1
