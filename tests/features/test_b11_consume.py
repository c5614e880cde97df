"""B11: `CONSUME` gives a worker the next messages of a topic.

Ours: a fetch names partition and offset, gives whole batches, and waits for new ones as long as
asked; reading takes nothing away.
"""

from pathlib import Path

from ringlog.client import messages as m
from ringlog.storage.record_codec import encode_batch
from tests.cluster.core_client import CoreClient, records_in
from tests.features.broker_on_loopback import broker_on_loopback


def test_b11_messages_are_consumed_from_an_offset_and_stay(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        client.create_topic("t")
        for value in (b"a", b"b", b"c"):
            client.produce("t", encode_batch([value]))
        for _ in range(2):
            result, data = client.fetch("t", 1)
            assert [record.value for record in records_in(data)] == [b"b", b"c"]
            assert result.high_watermark == 3


def test_b11_consuming_waits_for_the_next_message(tmp_path: Path) -> None:
    with (
        broker_on_loopback(tmp_path) as endpoint,
        CoreClient(str(endpoint)) as worker,
        CoreClient(str(endpoint)) as producer,
    ):
        producer.create_topic("t")
        target = m.FetchPartition("t", b"", 0, 0, 1 << 20)
        worker.send(m.ApiKey.FETCH, m.FetchRequest(20_000, 1, 1 << 20, [target]))
        assert worker.is_silent(100)
        producer.produce("t", encode_batch([b"next"]))
        header, frames = worker.receive()
        assert header.error is None
        assert [record.value for record in records_in(frames[0])] == [b"next"]
