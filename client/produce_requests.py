"""Batches that leave together, as requests to their leader.

Owns how many batches share a request and how long it may take. Must not know why they leave.

Invariants:
    PR1 Batches keep their order, over requests and within each.
    PR2 A request's time ends with the first deadline of its batches, so that nothing leaves
        after it was said to have failed.
    PR3 A request holds at most `REQUEST_BATCHES` batches, and `REQUEST_BYTES` but for one that
        is larger alone.
"""

from collections.abc import Iterator, Sequence

from ringlog.client.batch import Batch
from ringlog.client.messages import ProducePartition, ProduceRequest
from ringlog.client.metadata import MetadataCache
from ringlog.client.producer_effects import Produce

REQUEST_BYTES = 8 * 1024 * 1024
REQUEST_BATCHES = 256


def produce_requests(
    leader: int,
    batches: Sequence[Batch],
    metadata: MetadataCache,
    *,
    acks: int,
    timeout_ms: int,
    now_ms: int,
) -> list[Produce]:
    """The requests that carry `batches` to broker `leader`, in order.

    Args:
        leader: broker id.
        batches: sealed, at least one.
        metadata: tells the topics' UUIDs.
        acks: as it travels.
        timeout_ms: most time of one attempt.
        now_ms: monotonic clock.
    """
    requests = []
    for group in _groups(batches):
        left_ms = min(batch.deadline_ms for batch in group) - now_ms
        time_ms = max(1, min(timeout_ms, left_ms))
        rows = []
        for batch in group:
            view = metadata.topic(batch.topic)
            uuid = b"" if view is None else view.topic_uuid
            rows.append(ProducePartition(batch.topic, uuid, batch.partition))
        requests.append(Produce(leader, ProduceRequest(acks, time_ms, rows), group, time_ms))
    return requests


def _groups(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    group: list[Batch] = []
    size_bytes = 0
    for batch in batches:
        full = size_bytes + len(batch.payload) > REQUEST_BYTES or len(group) == REQUEST_BATCHES
        if group and full:
            yield group
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += len(batch.payload)
    yield group
