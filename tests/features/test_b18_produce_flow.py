"""B18: produce flow: discover through the registry, route, persist, acknowledge.

Ours: Metadata answers from the registry and names leader and address; the batch goes there with
the topic's UUID, is persisted, and its offset is the acknowledgement.
"""

from pathlib import Path

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import StaleTopic, UnknownTopic
from ringlog.storage.record_codec import encode_batch
from tests.cluster.core_client import CoreClient, records_in
from tests.features.broker_on_loopback import broker_on_loopback


def discover(client: CoreClient, topic: str) -> tuple[m.TopicMetadata, dict[int, str]]:
    """The topic, and the address of each broker by id."""
    body = m.MetadataRequest([topic])
    answer, _frames = client.call(m.ApiKey.METADATA, body, m.MetadataResponse)
    return answer.topics[0], {broker.broker_id: broker.endpoint for broker in answer.brokers}


def test_b18_a_message_is_routed_to_the_leader_persisted_and_acknowledged(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        client.create_topic("orders", 3)
        topic, addresses = discover(client, "orders")
        assert [partition.partition for partition in topic.partitions] == [0, 1, 2]
        leader = topic.partitions[2].leader
        with CoreClient(addresses[leader]) as producer:
            for expected in range(2):
                offset = producer.produce(
                    "orders",
                    encode_batch([b"message"]),
                    partition=2,
                    topic_uuid=topic.topic_uuid,
                )
                assert offset == expected
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        assert len(records_in(client.fetch("orders", 0, partition=2)[1])) == 2
        assert client.fetch("orders", 0, partition=0)[1] == b""


def test_b18_a_route_that_is_out_of_date_is_refused_not_followed(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        client.create_topic("orders")
        stale, _addresses = discover(client, "orders")
        client.delete_topic("orders")
        with pytest.raises(UnknownTopic):
            client.produce("orders", encode_batch([b"x"]), topic_uuid=stale.topic_uuid)
        client.create_topic("orders")
        with pytest.raises(StaleTopic):
            client.produce("orders", encode_batch([b"x"]), topic_uuid=stale.topic_uuid)
        fresh, _addresses = discover(client, "orders")
        assert client.produce("orders", encode_batch([b"x"]), topic_uuid=fresh.topic_uuid) == 0
