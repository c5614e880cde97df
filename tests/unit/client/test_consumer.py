"""The façade: what a caller sees. A broker of one thread stands in for a real one."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ringlog.client import Consumer, Record, TopicPartition
from ringlog.client.errors import (
    Busy,
    ClientClosed,
    ClientForked,
    DeadlineExceeded,
    InvalidArgument,
    NoBrokerReachable,
    OffsetOutOfRange,
    PartitionDamaged,
    UnknownPartition,
    UnknownTopic,
)
from ringlog.client.fetcher import Lost
from ringlog.client.messages import ApiKey, ListOffsetsResponse, ListOffsetsResult
from ringlog.client.wire import RequestHeader
from tests.unit.client.scripted_broker import ScriptedBroker

FAR_S = 20
ZERO, ONE = TopicPartition("two", 0), TopicPartition("two", 1)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """Topic `t` has ten records in one partition, `two` five in each of two."""
    with ScriptedBroker({"t": 1, "two": 2, "empty": 1}) as running:
        running.fill("t", 0, 10)
        running.fill("two", 0, 5)
        running.fill("two", 1, 5)
        yield running


@pytest.fixture
def idle(broker: ScriptedBroker) -> Iterator[Consumer]:
    """Nothing is assigned."""
    with reading(broker) as running:
        yield running


def reading(broker: ScriptedBroker, *topics: str, **settings: object) -> Consumer:
    values = {"auto_offset_reset": "earliest", "request_timeout_ms": 5_000, **settings}
    return Consumer(topics, bootstrap_servers=broker.address, **values)  # type: ignore[arg-type]  # by name


def take(consumer: Consumer, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        got = consumer.poll(FAR_S, count - len(records))
        assert got, f"{len(records)} of {count} records within {FAR_S} s"
        records += got
    return records


def places(records: list[Record]) -> list[tuple[int, int]]:
    return sorted((one.partition, one.offset) for one in records)


BOTH = [(partition, offset) for partition in (0, 1) for offset in range(5)]


# -- subscribing --------------------------------------------------------------------------


def test_a_name_or_several_and_positions_when_it_returns(broker: ScriptedBroker) -> None:
    with Consumer("t", bootstrap_servers=broker.address) as consumer:
        assert consumer.position("t", 0) == 10
    with reading(broker, "two", "t") as consumer:
        assert consumer.assignment == {ZERO, ONE, TopicPartition("t", 0)}
        assert consumer.position("t", 0) == 0
        assert len(take(consumer, 20)) == 20


def test_an_unknown_topic_changes_nothing(broker: ScriptedBroker, idle: Consumer) -> None:
    idle.subscribe("t")
    with pytest.raises(UnknownTopic):
        idle.subscribe(["two", "nope"])
    with pytest.raises(UnknownTopic):
        idle.assign([TopicPartition("nope", 0)])
    assert idle.assignment == {TopicPartition("t", 0)}
    with pytest.raises(UnknownTopic):
        reading(broker, "nope")


def test_a_partition_that_does_not_exist_is_told_at_once(idle: Consumer) -> None:
    with pytest.raises(UnknownPartition, match="2 partitions"):
        idle.assign([TopicPartition("two", 7)])


def test_callbacks_get_what_came_and_the_old_one_what_went(idle: Consumer) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []

    def note(name: str) -> Callable[[list[TopicPartition]], object]:
        return lambda partitions: told.append((name, partitions))

    idle.subscribe(["two", "two"], note("in 1"), note("out 1"))
    idle.subscribe(["two", "t"], note("in 2"), note("out 2"))
    idle.subscribe("t", note("in 3"), note("out 3"))
    idle.assign([ZERO])
    idle.assign([])
    assert told == [
        ("in 1", [ZERO, ONE]),
        ("in 2", [TopicPartition("t", 0)]),
        ("out 2", [ZERO, ONE]),
        ("out 3", [TopicPartition("t", 0)]),
    ]
    assert idle.assignment == set()


def test_what_is_assigned_again_goes_on_where_it_is(idle: Consumer) -> None:
    idle.assign([("two", 0)])  # type: ignore[list-item]  # a plain tuple will do
    assert places(take(idle, 3)) == [(0, 0), (0, 1), (0, 2)]
    idle.subscribe("two")
    assert places(take(idle, 7)) == [*((0, o) for o in (3, 4)), *((1, o) for o in range(5))]


def test_no_broker_is_told_with_each_address_by_every_first_call() -> None:
    calls: list[Callable[[Consumer], object]] = [
        lambda consumer: consumer.subscribe("t"),
        lambda consumer: consumer.assign([ZERO]),
        lambda consumer: consumer.end_offsets([ZERO]),
    ]
    for call in calls:
        with (
            Consumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200) as consumer,
            pytest.raises(NoBrokerReachable, match=r"127\.0\.0\.1:1"),
        ):
            call(consumer)
    with pytest.raises(NoBrokerReachable):
        Consumer("t", bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)


def test_a_position_that_nobody_tells_has_a_deadline(broker: ScriptedBroker) -> None:
    def busy(request: RequestHeader, _count: int) -> object:
        return Busy("full") if request.api_key == ApiKey.LIST_OFFSETS else None

    broker.script = busy
    with pytest.raises(DeadlineExceeded, match="position in t-0 is not known after 300 ms: full"):
        reading(broker, "t", request_timeout_ms=300)


# -- reading ------------------------------------------------------------------------------


def test_poll_gives_what_there_is_and_waits_no_longer_than_told(broker: ScriptedBroker) -> None:
    with reading(broker, "t") as consumer:
        assert [one.offset for one in take(consumer, 4)] == [0, 1, 2, 3]
        assert [one.offset for one in take(consumer, 6)] == [4, 5, 6, 7, 8, 9]
        for timeout in (0, 0.0, 0.01):
            assert consumer.poll(timeout) == []
        assert consumer.position("t", 0) == 10


def test_iteration_goes_on_where_poll_stopped_and_the_reverse(broker: ScriptedBroker) -> None:
    with reading(broker, "t") as consumer:
        assert len(take(consumer, 2)) == 2
        assert [one.offset for one in itertools.islice(consumer, 3)] == [2, 3, 4]
        assert consumer.position("t", 0) == 5
        assert [one.offset for one in consumer.poll(0, 2)] == [5, 6]
        assert [one.offset for one in itertools.islice(consumer, 3)] == [7, 8, 9]


def test_seeks_and_pauses_reach_what_an_iteration_holds(broker: ScriptedBroker) -> None:
    with reading(broker, "two") as consumer:
        records = iter(consumer)
        first = next(records)
        other = ONE if first.partition == 0 else ZERO
        consumer.pause(TopicPartition("two", first.partition))
        assert {next(records).partition for _ in range(5)} == {other.partition}
        consumer.seek(*other, 3)
        assert [next(records).offset for _ in range(2)] == [3, 4]
        consumer.resume()
        assert [next(records).offset for _ in range(4)] == [1, 2, 3, 4]
        consumer.seek_to_beginning()
        assert places([next(records) for _ in range(10)]) == BOTH


def test_an_iteration_ends_when_the_consumer_is_closed(broker: ScriptedBroker) -> None:
    consumer = reading(broker, "t")
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if record.offset == 3:
            consumer.close()
    assert seen == [0, 1, 2, 3]
    assert list(consumer) == []
    with pytest.raises(ClientClosed):
        consumer.poll()


def test_closing_ends_what_waits_in_other_threads(broker: ScriptedBroker) -> None:
    consumer = reading(broker, "empty")
    ended: list[object] = []

    def poll() -> None:
        try:
            consumer.poll(FAR_S)
        except ClientClosed as error:
            ended.append(error)

    threads = [threading.Thread(target=poll)]
    threads.append(threading.Thread(target=lambda: ended.append(list(consumer))))
    for thread in threads:
        thread.start()
    consumer.close()
    for thread in threads:
        thread.join(FAR_S)
    assert len(ended) == 2
    consumer.close()


def test_ctrl_c_ends_poll_and_iteration_within_100_ms(broker: ScriptedBroker) -> None:
    waits: dict[str, list[float]] = {"poll": [], "next": []}
    with reading(broker, "empty") as consumer:
        for _ in range(3):
            for name, times in waits.items():
                timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                began = time.monotonic()
                with pytest.raises(KeyboardInterrupt):
                    consumer.poll(30) if name == "poll" else next(iter(consumer))
                times.append(time.monotonic() - began - 0.02)
                timer.join()
    # The best of a few: a busy machine may stop us at any time.
    assert max(map(min, waits.values())) < 0.1


def test_a_lost_range_is_told_before_what_follows_it(broker: ScriptedBroker) -> None:
    told: list[Lost] = []
    with reading(broker, on_lost=told.append) as consumer:
        consumer.assign([ZERO])
        broker.log_starts["two", 0] = 3
        consumer.seek(*ZERO, 1)
        assert places(take(consumer, 2)) == [(0, 3), (0, 4)]
        assert told == [Lost(ZERO, 1, 3)]
    with reading(broker, auto_offset_reset="none") as consumer:
        consumer.assign([ZERO])
        consumer.seek(*ZERO, 1)
        with pytest.raises(OffsetOutOfRange):
            consumer.poll(FAR_S)
        assert consumer.health().state == "stuck"
        assert consumer.position(*ZERO) == 1


# -- positions ----------------------------------------------------------------------------


def test_seeks_by_offset_time_and_end(broker: ScriptedBroker) -> None:
    with reading(broker, "two") as consumer:
        consumer.seek_to_timestamp(3_000, ZERO)
        assert (consumer.position(*ZERO), consumer.position(*ONE)) == (3, 0)
        consumer.seek_to_end()
        assert (consumer.position(*ZERO), consumer.position(*ONE)) == (5, 5)
        consumer.seek_to_timestamp(99_000)
        assert (consumer.position(*ZERO), consumer.position(*ONE)) == (5, 5)
        consumer.seek_to_beginning(ONE)
        consumer.seek(*ZERO, 4)
        assert places(take(consumer, 6)) == [(0, 4), *((1, offset) for offset in range(5))]


def test_offsets_of_partitions_that_are_not_read(broker: ScriptedBroker) -> None:
    broker.log_starts["two", 1] = 2
    with reading(broker) as consumer:
        assert consumer.end_offsets([ZERO, TopicPartition("t", 0)]) == {
            ZERO: 5,
            TopicPartition("t", 0): 10,
        }
        assert consumer.beginning_offsets([ZERO, ONE]) == {ZERO: 0, ONE: 2}
        assert consumer.offsets_for_times({ZERO: 2_500, ONE: 90_000}) == {ZERO: 3, ONE: None}
        assert consumer.end_offsets([]) == {}
        with pytest.raises(UnknownTopic):
            consumer.end_offsets([TopicPartition("nope", 0)])
        with pytest.raises(UnknownPartition):
            consumer.end_offsets([TopicPartition("two", 2)])


def test_an_error_of_a_look_up_that_passes_is_tried_again(broker: ScriptedBroker) -> None:
    full = ListOffsetsResult(-1, -1, Busy("full").info())

    def busy_once(request: RequestHeader, count: int) -> object:
        if request.api_key == ApiKey.LIST_OFFSETS and count == 0:
            return ListOffsetsResponse([full, full])
        return None

    broker.script = busy_once
    with reading(broker) as consumer:
        assert consumer.end_offsets([ZERO]) == {ZERO: 5}
    assert broker.seen.count(ApiKey.LIST_OFFSETS) == 2


def test_many_offsets_take_one_request(broker: ScriptedBroker) -> None:
    broker.topics["wide"] = 200
    with reading(broker) as consumer:
        consumer.end_offsets([TopicPartition("wide", number) for number in range(200)])
    assert broker.seen.count(ApiKey.LIST_OFFSETS) == 1


def test_lag_counts_from_what_is_handed_out(broker: ScriptedBroker) -> None:
    with reading(broker, "two") as consumer:
        assert consumer.lag() == {ZERO: 5, ONE: 5}
        record = next(iter(consumer))
        place = TopicPartition("two", record.partition)
        assert consumer.lag()[place] == 4
        assert consumer.poll(FAR_S)
        consumer.seek_to_end()
        assert consumer.lag() == {ZERO: 0, ONE: 0}


def test_lag_leaves_out_what_has_no_position(broker: ScriptedBroker) -> None:
    with reading(broker, "two") as consumer:
        with consumer._changed:
            slot = consumer._fetcher.slots[ONE]
            consumer._fetcher.look_for(slot, 0)
            slot.halt(PartitionDamaged("bad"))
        assert consumer.lag() == {ZERO: 5}
        assert places(take(consumer, 5)) == BOTH[:5]
        with pytest.raises(PartitionDamaged):
            consumer.poll(FAR_S)
        with pytest.raises(PartitionDamaged):
            consumer.position(*ONE)


def test_only_what_is_assigned_has_a_position(idle: Consumer) -> None:
    calls: list[Callable[[], object]] = [
        lambda: idle.seek("t", 0, 0),
        lambda: idle.position("t", 0),
        lambda: idle.pause(ZERO),
        lambda: idle.seek_to_end(ZERO),
    ]
    for call in calls:
        with pytest.raises(UnknownPartition, match="assign or subscribe"):
            call()


def test_arguments_out_of_range_are_refused(broker: ScriptedBroker) -> None:
    with reading(broker, "t") as consumer:
        calls: list[Callable[[], object]] = [
            lambda: consumer.seek("t", 0, -1),
            lambda: consumer.seek("t", 0, 2**63),
            lambda: consumer.seek_to_timestamp(-5),
            lambda: consumer.seek_to_timestamp(2**48),
            lambda: consumer.poll(0, 0),
            lambda: Consumer(bootstrap_servers="nonsense"),
            lambda: Consumer(bootstrap_servers=broker.address, group_id="g"),
            lambda: Consumer(bootstrap_servers=broker.address, retry_backoff_ms=0),
        ]
        for call in calls:
            with pytest.raises(InvalidArgument):
                call()
        assert consumer.position("t", 0) == 0


# -- flow ---------------------------------------------------------------------------------


def test_a_paused_partition_waits_and_loses_nothing(broker: ScriptedBroker) -> None:
    with reading(broker, "two") as consumer:
        consumer.pause(ONE)
        assert consumer.paused == {ONE}
        assert {one.partition for one in take(consumer, 5)} == {0}
        assert consumer.poll(0.01) == []
        consumer.resume(ONE)
        assert consumer.paused == set()
        assert places(take(consumer, 5)) == BOTH[5:]


def test_callbacks_may_call_the_consumer(broker: ScriptedBroker) -> None:
    positions: list[int] = []

    def on_lost(event: Lost) -> None:
        positions.append(consumer.position(*event.partition))
        consumer.seek(*event.partition, 4)
        positions.extend(consumer.end_offsets([event.partition]).values())

    def on_assign(partitions: list[TopicPartition]) -> None:
        consumer.seek(*partitions[0], 1)

    with reading(broker, on_lost=on_lost) as consumer:
        consumer.subscribe("two", on_assign=on_assign)
        broker.log_starts["two", 0] = 3
        consumer.pause(ONE)
        assert places(take(consumer, 1)) == [(0, 4)]
        assert positions == [3, 5]


def test_a_deserializer_may_call_the_consumer(broker: ScriptedBroker) -> None:
    positions: list[int] = []

    def deserialize(value: bytes | None) -> bytes | None:
        positions.append(consumer.position("t", 0))
        return value

    with reading(broker, "t", value_deserializer=deserialize) as consumer:
        assert len(take(consumer, 10)) == 10
    assert positions == [0] * 10


def test_replay_reads_beside_the_positions(broker: ScriptedBroker) -> None:
    with Consumer("two", bootstrap_servers=broker.address) as consumer:
        assert places(list(consumer.replay("two", {0: 3}, {1: 1}))) == [(0, 3), (0, 4), (1, 0)]
        assert consumer.position(*ZERO) == 5
        with pytest.raises(InvalidArgument):
            consumer.replay("two", "earliest")  # type: ignore[arg-type]  # wrong on purpose


def test_a_replay_reads_with_the_settings_of_its_consumer(broker: ScriptedBroker) -> None:
    with Consumer(
        bootstrap_servers=broker.address,
        value_deserializer=lambda value: ("made", value),
        request_timeout_ms=1_234,
    ) as consumer:
        assert next(consumer.replay("t")).value == ("made", b"0:0")
        reader = consumer._reader()
        assert reader._client.config is consumer._client.config
        assert reader._config.auto_offset_reset == "none"
        reader.close()


def test_health_names_the_trouble(broker: ScriptedBroker) -> None:
    with reading(broker, "t") as consumer:
        assert consumer.health().state == "ok"
        take(consumer, 10)
        assert consumer.health().since_ms > 0
        consumer.close()
        assert consumer.health().state == "stuck"


# -- forks --------------------------------------------------------------------------------


def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(broker: ScriptedBroker) -> None:
    with reading(broker, "t") as consumer:
        take(consumer, 1)
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with consumer._changed, consumer._poller._taking:
                held.set()
                done.wait(FAR_S)

        # The child's copies of these locks are held by a thread that it does not have.
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(FAR_S)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            calls: list[Callable[[], object]] = [
                lambda: consumer.poll(5),
                lambda: next(iter(consumer)),
                lambda: consumer.seek("t", 0, 0),
                lambda: consumer.position("t", 0),
                lambda: consumer.end_offsets([ZERO]),
                lambda: consumer.subscribe("t"),
                lambda: consumer.assign([ZERO]),
            ]
            refused = 0
            for call in calls:
                try:
                    call()
                except ClientForked:
                    refused += 1
            consumer.close()
            os._exit(0 if refused == len(calls) else 1)
        _, status = os.waitpid(child, 0)
        done.set()
        holder.join()
        assert os.waitstatus_to_exitcode(status) == 0
        assert len(take(consumer, 9)) == 9


def test_a_child_may_use_a_consumer_that_was_not_used_before(broker: ScriptedBroker) -> None:
    consumer = reading(broker)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        consumer.assign([ZERO])
        os._exit(0 if len(take(consumer, 5)) == 5 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    consumer.close()
