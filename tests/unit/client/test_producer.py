"""The façade: what a caller sees. A broker of one thread stands in for a real one."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringlog.client import BatchProducer, Delivery
from ringlog.client.errors import (
    BufferFull,
    ClientClosed,
    ClientForked,
    DeadlineExceeded,
    DeliveryUnknown,
    InvalidArgument,
    NoBrokerReachable,
    RecordTooLarge,
    SerializationFailed,
    UnknownPartition,
    UnknownTopic,
)
from ringlog.client.messages import ApiKey
from ringlog.client.wire import RequestHeader
from tests.unit.client.scripted_broker import ScriptedBroker

ROOT = Path(__file__).parents[3]


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({"t": 1, "many": 8}) as running:
        yield running


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[BatchProducer]:
    with BatchProducer(broker.address) as running:
        yield running


def silent(request: RequestHeader, _count: int) -> object:
    """Never answer a produce request."""
    return "drop" if request.api_key == ApiKey.PRODUCE else None


def test_a_record_and_what_became_of_it(broker: ScriptedBroker, producer: BatchProducer) -> None:
    delivery = producer.send("t", b"value", key=b"k", headers={"a": "b"}, timestamp_ms=7)
    meta = delivery.result(timeout=5)
    assert (meta.topic, meta.partition, meta.offset, meta.timestamp) == ("t", 0, 0, 7)
    (record,) = broker.logs[("t", 0)]
    assert (record.key, record.value, record.headers) == (b"k", b"value", (("a", b"b"),))
    assert record.timestamp == 7


def test_fast_and_slow_records_keep_their_order(
    broker: ScriptedBroker, producer: BatchProducer
) -> None:
    deliveries: list[Delivery] = []
    for number in range(3000):
        value = b"%d" % number
        if number % 7 == 0:
            deliveries.append(producer.send("t", value, key=b"k"))
        elif number % 11 == 0:
            deliveries.append(producer.send("t", value + b"x" * 3000))
        else:
            deliveries.append(producer.send("t", value))
    producer.flush(timeout=30)
    assert [one.result().offset for one in deliveries] == list(range(3000))
    assert [int((value or b"").rstrip(b"x")) for value in broker.values("t")] == list(range(3000))


def test_a_thread_that_comes_too_late_finds_another_batch(
    broker: ScriptedBroker, producer: BatchProducer
) -> None:
    """As if it had been stopped, slot in hand, until the batch had left without it."""
    for index, key in enumerate((None, b"k")):
        left = producer.send("t", b"x", key=b"k").batch
        assert left.wait(5)
        left.slots, left.keys = iter([1]), []
        producer._accumulator.sticky["t"] = left
        producer._topics["t"].open[0] = left
        assert producer.send("t", b"late", key=key).result(5).offset == 2 * index + 1
    assert broker.values("t") == [b"x", b"late"] * 2


def test_a_record_without_a_timestamp_gets_the_time_its_batch_left(
    producer: BatchProducer,
) -> None:
    before = time.time_ns() // 1_000_000
    meta = producer.send("t", b"x").result(5)
    assert before <= meta.timestamp <= time.time_ns() // 1_000_000


def test_equal_keys_go_to_one_partition_and_a_partition_may_be_named(
    producer: BatchProducer,
) -> None:
    keyed = {producer.send("many", b"x", key="k").result(5).partition for _ in range(5)}
    assert len(keyed) == 1
    assert producer.send("many", b"x", key="k", partition=6).result(5).partition == 6
    keyless = {producer.send("many", b"x").result(5).partition for _ in range(60)}
    assert len(keyless) > 3


def test_text_none_and_serializers(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address, value_serializer=lambda value: repr(value).encode()) as one:
        one.send("t", {"a": 1})
    with BatchProducer(broker.address) as other:
        other.send("t", "ü")
        other.send("t", None, key=b"tombstone")
    assert broker.values("t") == [b"{'a': 1}", b"\xc3\xbc", None]


def test_compression_travels(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address, compression="lz4") as producer:
        for _ in range(100):
            producer.send("t", b"x" * 500)
    assert broker.values("t") == [b"x" * 500] * 100


@pytest.mark.parametrize(
    ("topic", "kwargs", "error"),
    [
        ("unheard-of", {}, UnknownTopic),
        ("", {}, InvalidArgument),
        ("t", {"partition": 1}, UnknownPartition),
        ("t", {"partition": -1}, UnknownPartition),
        ("t", {"partition": "0"}, InvalidArgument),
        ("t", {"timestamp_ms": -5}, InvalidArgument),
        ("t", {"timestamp_ms": 1.5}, InvalidArgument),
        ("t", {"key": 5}, InvalidArgument),
        ("t", {"headers": {"a": 5}}, InvalidArgument),
        ("t", {"value": 5}, InvalidArgument),
        ("t", {"value": b"x" * (11 << 20)}, RecordTooLarge),
    ],
)
def test_a_record_that_cannot_be_sent_is_refused_at_send(
    producer: BatchProducer, topic: str, kwargs: dict[str, object], error: type[Exception]
) -> None:
    value = kwargs.pop("value", b"x")
    with pytest.raises(error):
        producer.send(topic, value, **kwargs)  # type: ignore[arg-type]  # on purpose
    assert not producer._accumulator.live


def test_too_large_names_size_limit_and_setting(broker: ScriptedBroker) -> None:
    producer = BatchProducer(broker.address, delivery_timeout_ms=2_000)
    with pytest.raises(RecordTooLarge, match=r"1153\d{4} bytes .* at most 10485699") as caught:
        producer.send("t", b"x" * (11 << 20))
    assert "max.message.bytes" in caught.value.hint
    small = BatchProducer("127.0.0.1:1", buffer_memory=2 << 20)
    with small, pytest.raises(RecordTooLarge, match="buffer_memory is 2097152"):
        small.send("t", b"x" * (3 << 20))


def test_a_serializer_that_raises_names_itself(broker: ScriptedBroker) -> None:
    def bad(_value: object) -> bytes:
        raise KeyError("id")

    producer = BatchProducer(broker.address, value_serializer=bad)
    with producer, pytest.raises(SerializationFailed):
        producer.send("t", 1)


def test_a_partitioner_of_ones_own(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address, partitioner=lambda key, n: len(key) % n) as producer:
        assert producer.send("many", b"x", key=b"12345").result(5).partition == 5
    wild = BatchProducer(broker.address, partitioner=lambda _key, n: n)
    with wild, pytest.raises(UnknownPartition):
        wild.send("many", b"x", key=b"k")


def test_bad_settings_are_refused_at_once() -> None:
    for settings in ({"acks": 3}, {"partitioner": "x"}, {"linger_ms": -1}):
        with pytest.raises(InvalidArgument):
            BatchProducer("127.0.0.1:1", **settings)
    with pytest.raises(InvalidArgument):
        BatchProducer("nonsense")


def test_result_does_not_sit_through_linger(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address, linger_ms=60_000) as producer:
        began = time.monotonic()
        for _ in range(20):
            producer.send("t", b"x")
            producer.send("t", b"x").result(5)
        producer.send("t", b"x")
        producer.flush(5)
        assert time.monotonic() - began < 5


def test_without_a_broker_the_first_send_names_the_reason() -> None:
    producer = BatchProducer("127.0.0.1:1", bootstrap_timeout_ms=200)
    with producer, pytest.raises(NoBrokerReachable, match="refused"):
        producer.send("t", b"x")


def test_room_is_bounded(broker: ScriptedBroker) -> None:
    broker.script = silent
    settings = {"buffer_memory": 64 << 10, "batch_bytes": 16 << 10, "max_block_ms": 100}
    producer = BatchProducer(broker.address, **settings)  # type: ignore[arg-type]  # by name

    def flood() -> None:
        for _ in range(1000):
            producer.send("t", b"x" * 1000)

    with pytest.raises(BufferFull):
        flood()
    with pytest.raises(DeadlineExceeded):
        producer.close(0)


def test_flush_says_how_many_are_open_and_close_gives_them_up(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.script = silent
    producer = BatchProducer(broker.address)
    deliveries = [producer.send("t", b"x") for _ in range(3)]
    with pytest.raises(DeadlineExceeded, match="3 deliveries are still open"):
        producer.flush(0.05)
    with caplog.at_level(logging.WARNING, "ringlog.client"), pytest.raises(DeadlineExceeded):
        producer.close(0.05)
    kinds = {type(one.exception(timeout=5)) for one in deliveries}
    assert kinds <= {DeliveryUnknown, ClientClosed}
    assert isinstance(deliveries[0].exception(), DeliveryUnknown)
    assert "record(s) to t-0" in caplog.text


def test_after_close_nothing_is_taken(broker: ScriptedBroker) -> None:
    producer = BatchProducer(broker.address)
    producer.send("t", b"x")
    producer.close()
    for topic in ("t", "many"):
        with pytest.raises(ClientClosed):
            producer.send(topic, b"x")
    producer.close()
    producer.flush()
    assert broker.values("t") == [b"x"]


def test_leaving_the_block_by_ctrl_c_does_not_wait_for_two_minutes(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringlog.client.producer.INTERRUPTED_TIMEOUT_S", 0.05)
    broker.script = silent
    began = time.monotonic()

    def interrupted() -> None:
        with BatchProducer(broker.address) as producer:
            producer.send("t", b"x")
            raise KeyboardInterrupt

    with pytest.raises(DeadlineExceeded) as caught:
        interrupted()
    assert isinstance(caught.value.__context__, BaseException)
    assert time.monotonic() - began < 5


def test_ctrl_c_ends_a_wait_within_100_ms(broker: ScriptedBroker) -> None:
    broker.script = silent
    producer = BatchProducer(broker.address)
    delivery = producer.send("t", b"x")
    waits: dict[str, list[float]] = {"result": [], "flush": []}
    for _ in range(3):
        for name, times in waits.items():
            timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                delivery.result(30) if name == "result" else producer.flush(30)
            times.append(time.monotonic() - began - 0.02)
            timer.join()
    # The best of a few: a busy machine may stop us at any time.
    assert max(map(min, waits.values())) < 0.1
    with pytest.raises(DeadlineExceeded):
        producer.close(0)


def test_callbacks_run_for_every_delivery_and_may_send(
    broker: ScriptedBroker, producer: BatchProducer
) -> None:
    seen: list[int] = []
    done = threading.Event()

    def on_done(delivery: Delivery) -> None:
        seen.append(delivery.result().offset)
        if len(seen) < 10:
            producer.send("t", b"x").add_done_callback(on_done)
        else:
            done.set()

    producer.send("t", b"x").add_done_callback(on_done)
    assert done.wait(10)
    assert seen == list(range(10))


def test_a_wait_inside_a_callback_is_refused_not_hung(producer: BatchProducer) -> None:
    errors: list[Exception] = []
    done = threading.Event()

    def on_done(_delivery: Delivery) -> None:
        other = producer.send("t", b"y")
        try:
            other.result(30)
        except InvalidArgument as error:
            errors.append(error)
        done.set()

    producer.send("t", b"x").add_done_callback(on_done)
    assert done.wait(10)
    assert "callback" in str(errors[0])


def test_many_threads_send_each_in_its_own_order(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address, batch_size=64) as producer:

        def work(number: int) -> None:
            for index in range(2000):
                producer.send("t", b"%d:%05d" % (number, index))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [value or b"" for value in broker.values("t")]
    assert len(values) == 8000
    for number in range(4):
        mine = [value for value in values if value.startswith(b"%d:" % number)]
        assert len(mine) == 2000
        assert mine == sorted(mine)


def test_acks_0_and_1(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address, acks=0) as producer:
        assert producer.send("t", b"none").result(5).offset == -1
    with BatchProducer(broker.address, acks=1) as producer:
        assert producer.send("t", b"one").result(5).offset == 1
    assert broker.values("t") == [b"none", b"one"]


def test_new_partitions_and_a_deleted_topic_are_noticed(broker: ScriptedBroker) -> None:
    with BatchProducer(broker.address, metadata_max_age_ms=50) as producer:
        producer.send("t", b"x").result(5)
        broker.topics["t"] = 2
        waiting = threading.Event()
        for _ in range(200):
            if producer._topics["t"].partitions == 2:
                break
            waiting.wait(0.02)
        assert producer.send("t", b"x", partition=1).result(5).partition == 1
        del broker.topics["t"]
        for _ in range(200):
            if "t" not in producer._topics:
                break
            waiting.wait(0.02)
        with pytest.raises(UnknownTopic):
            producer.send("t", b"x")


def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(
    broker: ScriptedBroker,
) -> None:
    producer = BatchProducer(broker.address, linger_ms=60_000)
    producer.send("t", b"x").result(5)
    broker.script = silent
    producer.send("t", b"under way")
    while broker.seen[-1] is not ApiKey.PRODUCE or len(producer._accumulator.live) != 1:
        threading.Event().wait(0.005)
    # A batch that still takes records: the child must not put any into its copy.
    waiting = producer.send("t", b"lingering")
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (
            lambda: producer.send("t", b"x"),
            lambda: producer.send("many", b"x"),
            lambda: waiting.result(1),
        ):
            try:
                call()
            except ClientForked:
                refused += 1
        producer.close(1)
        os._exit(0 if refused == 3 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not waiting.done()
    with pytest.raises(DeadlineExceeded):
        producer.close(0)


def test_the_end_of_the_program_drains(broker: ScriptedBroker) -> None:
    program = (
        "import sys; from ringlog.client import BatchProducer\n"
        "producer = BatchProducer(sys.argv[1], linger_ms=60000)\n"
        "for number in range(2500): producer.send('t', b'%d' % number)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, broker.address],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert len(broker.values("t")) == 2500


def test_import_is_quick_and_loads_nothing_of_the_command_line() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import ringlog.client\n"
        "new = set(sys.modules) - before\n"
        "assert not {'zmq', 'lz4', 'msgspec'} & new, new\n"
        "from ringlog.client import Admin, BatchProducer, Delivery, RecordMetadata\n"
        "from ringlog.client import TopicPartition\n"
        "from ringlog.client import RinglogError\n"
        "assert not {'click', 'rich', 'kazoo', 'asyncio'} & set(sys.modules)\n"
        "assert 'BatchProducer' in dir(ringlog.client)\n"
        "try: ringlog.client.Nonsense\n"
        "except AttributeError: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
