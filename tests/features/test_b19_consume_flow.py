"""B19: consume flow: assign, pull, process and confirm, update the offset.

Ours, on the wire: partitions are known from Metadata, a worker pulls each from its own offset,
moves on by what it has processed, and goes on from there after the broker was restarted. What
was pulled but not processed is pulled again. (Groups that keep the offset come with consumers.)
"""

from pathlib import Path

from ringlog.client import messages as m
from ringlog.storage.record_codec import Record, encode_batch
from tests.cluster.core_client import CoreClient, records_in
from tests.features.broker_on_loopback import broker_on_loopback


class Worker:
    """Processes at most `limit` records of each pull and confirms them one by one."""

    def __init__(self, partitions: list[int]) -> None:
        self.offsets = dict.fromkeys(partitions, 0)
        self.processed: list[tuple[int, bytes | None]] = []

    def pull(self, client: CoreClient, limit: int) -> int:
        """One round over the assignment; returns how many were processed."""
        targets = [
            m.FetchPartition("t", b"", number, offset, 1 << 20)
            for number, offset in self.offsets.items()
        ]
        body = m.FetchRequest(0, 1, 1 << 20, targets)
        answer, frames = client.call(m.ApiKey.FETCH, body, m.FetchResponse)
        before = len(self.processed)
        for target, result in zip(targets, answer.results, strict=True):
            if result.frame >= 0:
                records = records_in(frames[result.frame])
                self._process(target.partition, records, limit)
        return len(self.processed) - before

    def _process(self, partition: int, records: list[Record], limit: int) -> None:
        wanted = [record for record in records if record.offset >= self.offsets[partition]]
        for record in wanted[:limit]:
            self.processed.append((partition, record.value))
            self.offsets[partition] = record.offset + 1


def test_b19_a_worker_goes_on_from_its_confirmed_offset(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        client.create_topic("t", 2)
        for number in range(2):
            for i in range(0, 10, 5):
                sent = [b"%d-%d" % (number, i + j) for j in range(5)]
                client.produce("t", encode_batch(sent), partition=number)
        body = m.MetadataRequest(["t"])
        metadata, _frames = client.call(m.ApiKey.METADATA, body, m.MetadataResponse)
        worker = Worker([partition.partition for partition in metadata.topics[0].partitions])
        # Three of each five pulled are processed; the rest is not lost.
        assert worker.pull(client, limit=3) == 6
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        while worker.pull(client, limit=3):
            pass
    for number in range(2):
        values = [value for partition, value in worker.processed if partition == number]
        assert values == [b"%d-%d" % (number, i) for i in range(10)]
