"""The consumer against a real broker where things go wrong: topics made again, codecs, signals."""

import gzip
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from ringlog.client import Admin, BatchProducer, Consumer, Record, TopicPartition
from ringlog.client.errors import CorruptRecord, RinglogError, StaleTopic, UnknownTopic
from ringlog.storage.record_batch import HEADER_SIZE, pack_header, read_header
from ringlog.storage.record_codec import encode_batch
from tests.cluster.core_client import CoreClient
from tests.cluster.test_broker_process import BrokerProcess
from tests.cluster.test_consumer_broker import PATIENCE_S, fill, serving, take

ROOT = Path(__file__).parents[2]


def errors_of(consumer: Consumer, *codes: str) -> tuple[list[Record], RinglogError]:
    """Poll until an error comes: what came before, and the error."""
    records: list[Record] = []
    while True:
        try:
            records += consumer.poll(PATIENCE_S)
        except RinglogError as error:
            if error.code not in codes:
                raise
            return records, error


def make_again(address: str, topic: str, values: list[bytes]) -> None:
    with Admin(address) as admin, BatchProducer(address) as producer:
        admin.delete_topic(topic)
        admin.create_topic(topic)
        for value in values:
            producer.send(topic, value)
        producer.flush(PATIENCE_S)


def test_a_topic_made_again_is_an_error_once_and_then_read_by_a_seek(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 5)
        fill(address, "other", 1)
        with Consumer(
            ["t", "other"],
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=1,
        ) as consumer:
            take(consumer, 6)
            # A fetch that waits while the topic is gone would say so.
            consumer.pause()
            assert consumer.poll(0.1) == []
            make_again(address, "t", [b"new"] * 9)
            consumer.resume()
            _, error = errors_of(consumer, "STALE_TOPIC")
            assert isinstance(error, StaleTopic)
            assert consumer.health().state == "stuck"
            # Once; and the others go on.
            with BatchProducer(address) as producer:
                producer.send("other", b"more").result(PATIENCE_S)
            assert [one.value for one in take(consumer, 1)] == [b"more"]
            assert consumer.poll(0.1) == []
            consumer.seek("t", 0, 7)
            assert [(one.offset, one.value) for one in take(consumer, 2)] == [
                (7, b"new"),
                (8, b"new"),
            ]
            assert consumer.health().state == "ok"


def test_a_topic_made_again_is_read_from_its_start_by_a_subscription(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 5)
        with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            take(consumer, 3)
            make_again(address, "t", [b"a", b"b"])
            errors_of(consumer, "STALE_TOPIC", "UNKNOWN_TOPIC")
            consumer.subscribe("t")
            assert [one.value for one in take(consumer, 2)] == [b"a", b"b"]


def test_a_deleted_topic_is_an_error_once(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 1)
        with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            take(consumer, 1)
            with Admin(address) as admin:
                admin.delete_topic("t")
            _, error = errors_of(consumer, "UNKNOWN_TOPIC")
            assert isinstance(error, UnknownTopic)
            assert consumer.poll(0.1) == []
            with pytest.raises(UnknownTopic):
                consumer.subscribe("t")
            fill(address, "t", 3)
            consumer.seek("t", 0, 1)
            assert [one.value for one in take(consumer, 2)] == [b"0:1", b"0:2"]


def packed(value: bytes, codec: int, *, squeeze: bool) -> bytes:
    """One record in a batch of that codec, as another client would send it."""
    plain = encode_batch([value])
    records = gzip.compress(plain[HEADER_SIZE:]) if squeeze else plain[HEADER_SIZE:]
    header = msgspec.structs.replace(
        read_header(plain), attributes=codec, size_bytes=HEADER_SIZE + len(records)
    )
    return pack_header(header, records) + records


def test_codecs_of_other_clients_are_read_or_named(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        with CoreClient(address) as raw:
            raw.create_topic("t")
            raw.produce("t", packed(b"gzip", 1, squeeze=True))
            raw.produce("t", packed(b"snappy", 2, squeeze=False))
            raw.produce("t", packed(b"zstd", 4, squeeze=False))
            raw.produce("t", encode_batch([b"lz4" * 100], compression="lz4"))
        with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            records, error = errors_of(consumer, "CorruptRecord")
            assert [one.value for one in records] == [b"gzip"]
            assert isinstance(error, CorruptRecord)
            assert "snappy" in error.cause
            consumer.seek("t", 0, 2)
            records, error = errors_of(consumer, "CorruptRecord")
            assert records == []
            assert "zstd" in error.cause
            consumer.seek("t", 0, 3)
            assert [one.value for one in take(consumer, 1)] == [b"lz4" * 100]


def test_a_client_that_closes_while_it_waits_is_nothing_to_warn_of(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    address = broker.endpoint()
    fill(address, "t", 1)
    for _ in range(3):
        consumer = Consumer("t", bootstrap_servers=address, fetch_max_wait_ms=20_000)
        # The position is known, so the next answer is that of a fetch that waits.
        assert consumer.poll(0.05) == []
        consumer.close()
    with BatchProducer(address) as producer:
        producer.send("t", b"wakes the fetches that are left").result(PATIENCE_S)
    broker.process.terminate()
    code, stderr = broker.end()
    assert code == 0
    assert not [line for line in stderr.splitlines() if "WARN" in line.upper()], stderr


PROGRAM = """
import os, signal, sys, threading, time
from ringlog.client import Consumer
# No answer wakes it: the wait itself must end.
consumer = Consumer("t", bootstrap_servers=sys.argv[1], fetch_max_wait_ms=20_000)
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.1, interrupt).start()
try:
    for record in consumer: pass
except KeyboardInterrupt:
    interrupted = time.monotonic()
    consumer.close()
    print(interrupted - sent[0], time.monotonic() - interrupted)
"""


def test_ctrl_c_ends_a_program_that_reads(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 1)
        times = []
        for _ in range(3):
            reader = subprocess.run(
                [sys.executable, "-c", PROGRAM, address],
                cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert (reader.returncode, reader.stderr) == (0, "")
            times.append(list(map(float, reader.stdout.split())))
        # The best of a few: a busy machine may stop us at any time.
        assert min(waited for waited, _ in times) < 0.1
        assert min(closed for _, closed in times) < 1


def test_threads_share_what_there_is(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 2_000, partitions=3)
        seen: list[tuple[int, int]] = []
        with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:

            def work() -> None:
                while len(seen) < 6_000:
                    seen.extend((one.partition, one.offset) for one in consumer.poll(0.05, 37))

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert sorted(seen) == [(number, at) for number in range(3) for at in range(2_000)]


def test_a_start_with_reset_none_survives_records_that_go(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        fill(address, "t", 10)
        with (
            Consumer(bootstrap_servers=address, auto_offset_reset="none") as consumer,
            Admin(address) as admin,
        ):
            consumer.assign([TopicPartition("t", 0)])
            consumer.pause()
            # What was fetched before the pause may be handed out; the start itself may be gone.
            consumer.seek_to_beginning()
            admin.delete_records("t", 0, 6)
            consumer.resume()
            assert [one.offset for one in take(consumer, 4)] == [6, 7, 8, 9]
