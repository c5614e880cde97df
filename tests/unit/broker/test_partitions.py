"""The host: look-up, the accounting of unstored bytes, and damage that stays where it is."""

import pytest

from ringlog.broker.partitions import Partitions
from ringlog.client.errors import (
    Busy,
    PartitionDamaged,
    StaleTopic,
    UnknownPartition,
    UnknownTopic,
)
from ringlog.storage.errors import DamagedLog, LogDirFailed
from ringlog.storage.types import Offset
from tests.unit.broker.core_bench import Bench, batch


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.create(partitions=2)
    return bench


def host(bench: Bench) -> Partitions:
    return bench.core.partitions


def test_find_wants_name_uuid_and_number_to_agree(bench: Bench) -> None:
    partitions, uuid = host(bench), bench.describe().topic_uuid
    assert partitions.find("t", b"", 1) is partitions.find("t", uuid, 1)
    with pytest.raises(UnknownTopic, match="auto_create_topics") as caught:
        partitions.find("u", b"", 0)
    assert "ringlog topic create u" in caught.value.hint
    with pytest.raises(StaleTopic):
        partitions.find("t", bytes(16), 0)
    for number in (-1, 2):
        with pytest.raises(UnknownPartition, match="partitions 0 to 1"):
            partitions.find("t", b"", number)


def test_a_partition_that_is_being_opened_is_busy(bench: Bench) -> None:
    slot = host(bench).topics["t"].slots[0]
    slot.partition = None
    with pytest.raises(Busy, match="being opened"):
        host(bench).find("t", b"", 0)


def test_unstored_bytes_are_those_of_appended_batches(bench: Bench) -> None:
    bench.hold_flushes = True
    bench.send_produce(batch(b"a"))
    bench.send_produce(batch(b"b"), partition=1)
    size_bytes = 2 * len(batch(b"a"))
    assert bench.core.metrics.unstored_bytes_now == size_bytes
    bench.flush_one()
    assert bench.core.metrics.unstored_bytes_now == size_bytes // 2
    bench.flush_one()
    assert bench.core.metrics.unstored_bytes_now == 0


def damage() -> DamagedLog:
    return DamagedLog(
        "bad CRC", path="t-0/x.log", position=9, first_offset=Offset(1), end_offset=Offset(4)
    )


def test_damage_is_told_with_file_place_and_range_and_only_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    partition = bench.partition()
    host(bench).damage(partition, damage())
    host(bench).damage(partition, damage())
    assert bench.core.metrics.damaged_partitions == 1
    with pytest.raises(PartitionDamaged, match=r"t-0/x\.log at byte 9.*offsets 1 to 4"):
        bench.fetch()
    assert caplog.text.count("is damaged and answers nothing") == 1
    assert bench.produce(batch(), partition=1) == [0]


def test_damage_met_by_a_job_costs_the_partition_and_a_failed_write_the_broker(
    bench: Bench,
) -> None:
    host(bench).on_storage_failed(bench.partition(), damage())
    assert bench.failure is None
    error = LogDirFailed("no")
    host(bench).on_storage_failed(bench.partition(number=1), error)
    assert bench.failure is error


def test_a_damaged_partition_is_not_closed_as_clean(bench: Bench) -> None:
    bench.produce(batch())
    bench.produce(batch(), partition=1)
    host(bench).damage(bench.partition(), damage())
    key = host(bench).topics["t"].slots[0].identity.mark_key
    bench.stop()
    mark = bench.marks.get(key)
    assert mark is not None
    assert not mark.clean
    other = bench.marks.get(host(bench).topics["t"].slots[1].identity.mark_key)
    assert other is not None
    assert other.clean


def test_counts_cover_damaged_partitions_too(bench: Bench) -> None:
    host(bench).damage(bench.partition(), damage())
    assert host(bench).count() == 2
    assert [key for key, _error in host(bench).damaged()] == [("t", 0)]
