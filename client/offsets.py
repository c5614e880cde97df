"""Offsets by timestamp, asked of the leaders.

Owns one blocking look-up over many partitions. Must not know positions.
"""

from collections.abc import Mapping

from ringlog.client.connection import Client
from ringlog.client.errors import error_from
from ringlog.client.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from ringlog.client.requests import AtLeader
from ringlog.storage.types import TopicPartition


def find_offsets(
    client: Client, targets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """First offset at EARLIEST, LATEST or a timestamp (ms) of each partition; -1: none.

    Raises:
        RinglogError: what a broker says of a partition, or that none answers in time.
    """
    found: dict[TopicPartition, int] = {}
    for partition, target_ms in targets.items():
        topic, number = partition
        body = ListOffsetsRequest([ListOffsetsPartition(topic, b"", number, target_ms)])
        answer = client.call(AtLeader(topic, number), body)
        row = answer.expect(ListOffsetsResponse).results[0]
        if row.error is not None:
            raise error_from(row.error)
        found[TopicPartition(topic, number)] = row.offset
    return found
