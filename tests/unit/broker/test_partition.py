"""One partition: what it appends, when waits end, what may be read, and its end."""

import pytest

from ringlog.broker.partition import Partition
from ringlog.client.errors import (
    BrokerError,
    BrokerStopping,
    NotLeader,
    OffsetNotAvailable,
    StaleTopic,
)
from ringlog.storage.errors import OffsetOutOfRange
from ringlog.storage.types import Offset, Position
from tests.unit.broker.core_bench import NOW_MS, Bench, batch, sized


class Waiter:
    def __init__(self) -> None:
        self.ends: list[BrokerError | None] = []

    def ended(self, error: BrokerError | None) -> None:
        self.ends.append(error)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.create()
    return bench


def produce(partition: Partition, *values: bytes, sequence: int = -1) -> tuple[int, Position]:
    named = {}
    if sequence >= 0:
        named = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
    produced = partition.produce(batch(*values, **named), NOW_MS)
    return produced.base_offset, produced.end


def test_a_wait_ends_with_the_commit_of_its_batch(bench: Bench) -> None:
    partition, waiter = bench.partition(), Waiter()
    offset, end = produce(partition, b"a", b"b")
    assert (offset, end) == (0, Position(Offset(2), 0))
    partition.await_commit(end, waiter)
    partition.pump()
    assert waiter.ends == []
    bench.settle()
    assert waiter.ends == [None]


def test_a_wait_for_what_is_committed_ends_at_once(bench: Bench) -> None:
    bench.produce(batch(producer_id=1, producer_epoch=0, base_sequence=0))
    partition, waiter = bench.partition(), Waiter()
    offset, end = produce(partition, sequence=0)
    assert offset == 0
    partition.await_commit(end, waiter)
    assert waiter.ends == [None]


def test_a_duplicate_is_told_apart_and_ends_where_its_original_ends(bench: Bench) -> None:
    partition = bench.partition()
    first = partition.produce(
        batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0), NOW_MS
    )
    again = partition.produce(
        batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0), NOW_MS
    )
    assert not first.is_duplicate
    assert again.is_duplicate
    assert (again.base_offset, again.end) == (first.base_offset, first.end)
    assert partition.log.end.offset == 2


def test_readers_hear_of_committed_bytes_only(bench: Bench) -> None:
    partition = bench.partition()
    heard: list[int] = []
    bench.core.partitions.on_readable = (  # type: ignore[method-assign]  # a spy
        lambda partition, size_bytes: heard.append(size_bytes)
    )
    produce(partition, b"a")
    produce(partition, b"bb")
    partition.pump()
    assert heard == []
    bench.settle()
    assert sum(heard) == len(batch(b"a")) + len(batch(b"bb"))


def test_readable_means_committed_and_not_deleted(bench: Bench) -> None:
    bench.produce(batch(), batch())
    partition = bench.partition()
    bench.hold_flushes = True
    bench.send_produce(batch())
    assert [partition.readable_from(Offset(i)) for i in range(4)] == [True, True, False, False]
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRange, match=r"\[0, 2\]"):
            partition.readable_from(Offset(offset))


def test_nothing_is_read_or_written_before_the_opening_is_committed() -> None:
    bench = Bench()
    bench.create()
    bench.produce(batch())
    bench.stop()
    after = bench.next_life(bench.disk)
    partition = after.partition()
    # The same partition, before its replicator knew anything.
    replicator = partition._driver._replicator
    replicator._opening_end = None  # type: ignore[attr-defined]  # of the solo one
    replicator._leads = False  # type: ignore[attr-defined]  # of the solo one
    assert not partition.is_ready
    with pytest.raises(OffsetNotAvailable):
        partition.readable_from(Offset(0))
    with pytest.raises(NotLeader):
        produce(partition)
    with pytest.raises(NotLeader):
        partition.delete_records(Offset(0), Waiter())


def test_closing_ends_every_wait_once_and_lets_nobody_in(bench: Bench) -> None:
    bench.produce(batch())
    partition = bench.partition()
    bench.hold_flushes = True
    commit, delete = Waiter(), Waiter()
    _offset, end = produce(partition)
    partition.await_commit(end, commit)
    partition.delete_records(Offset(1), delete)
    error = BrokerStopping("bye")
    partition.close(error)
    bench.hold_flushes = False
    bench.settle()
    assert commit.ends == [error]
    assert delete.ends == [error]
    for request in (
        lambda: produce(partition),
        lambda: partition.readable_from(Offset(0)),
        lambda: partition.delete_records(Offset(0), Waiter()),
    ):
        with pytest.raises(BrokerStopping):
            request()


def test_a_closed_partition_is_left_alone_by_retention(bench: Bench) -> None:
    bench.alter(segment_bytes="16384", retention_bytes="0")
    for _ in range(3):
        bench.produce(sized(10_000))
    partition = bench.partition()
    partition.close(StaleTopic("gone"))
    partition.retain(NOW_MS)
    bench.settle()
    assert partition.log.log_start == 0


def test_the_same_move_is_proposed_once(bench: Bench) -> None:
    bench.alter(segment_bytes="16384", retention_bytes="0")
    for _ in range(3):
        bench.produce(sized(10_000))
    partition = bench.partition()
    own = partition.log.end.own
    for _ in range(5):
        partition.retain(NOW_MS)
    assert partition.log.end.own == own + 1
    bench.settle()
    assert partition.log.log_start == 2
