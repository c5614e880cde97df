"""B02: the records of a partition come out in the order they went in.

Ours: also while many requests are in flight on one connection, over segment borders and a
restart; offsets say the order, and only grow.
"""

from pathlib import Path

import msgspec

from ringlog.client import messages as m
from ringlog.storage.record_codec import encode_batch
from tests.cluster.core_client import CoreClient, records_in
from tests.features.broker_on_loopback import broker_on_loopback


def values_of(client: CoreClient) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    while True:
        offset = found[-1][0] + 1 if found else 0
        _result, data = client.fetch("t", offset, max_bytes=5000)
        if not data:
            return found
        found += [(record.offset, record.value) for record in records_in(data)]


def test_b02_records_keep_their_order_over_requests_in_flight_and_a_restart(
    tmp_path: Path,
) -> None:
    sent = [b"%d" % number for number in range(500)]
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        client.create_topic("t", 1, {"segment.bytes": "16384"})
        for i in range(0, 500, 5):
            body = m.ProduceRequest(-1, 30_000, [m.ProducePartition("t", b"", 0)])
            client.send(m.ApiKey.PRODUCE, body, [encode_batch(sent[i : i + 5])])
        offsets = []
        for _ in range(100):
            header, _frames = client.receive()
            answer = msgspec.msgpack.decode(header.body, type=m.ProduceResponse)
            offsets.append((header.correlation_id, answer.results[0].base_offset))
        assert [offset for _id, offset in sorted(offsets)] == list(range(0, 500, 5))
        before = values_of(client)
    assert before == list(enumerate(sent))
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        assert values_of(client) == before
