"""A partition that is damaged when the broker starts: said at once, and no hindrance to others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringlog.client import Admin, BatchProducer, Consumer, TopicPartition
from ringlog.client.errors import PartitionDamaged
from tests.cluster.cli_process import CliBroker

BAD, GOOD = TopicPartition("t", 0), TopicPartition("t", 1)
QUICK_S = 10
"""Far below every timeout of the client."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliBroker]:
    made = CliBroker(tmp_path_factory.mktemp("damaged"))
    with made:
        made.output_of("topic", "create", "t", "--partitions", "2")
        with BatchProducer(made.address) as producer:
            for number in range(3):
                producer.send("t", b"bad %d" % number, partition=0)
                producer.send("t", b"good %d" % number, partition=1)
        made.stop()
        damage(made.data / "t-0" / "raft-log")
        made.start()
        yield made


def damage(path: Path) -> None:
    path.write_bytes(b"\x55" * path.stat().st_size)


@pytest.mark.parametrize("more", [(), ("--until-end",)])
def test_consume_writes_what_the_healthy_hold_and_exits_6(
    broker: CliBroker, more: tuple[str, ...]
) -> None:
    consumed = broker.run("consume", "t", "--from-beginning", *more)
    assert consumed.stdout == b"good 0\ngood 1\ngood 2\n"
    assert consumed.returncode == 6, consumed.stderr
    assert b"t-0" in consumed.stderr


def test_every_question_about_it_is_answered_with_the_damage(broker: CliBroker) -> None:
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        values: list[bytes | None] = []
        damages = 0
        while len(values) < 3 or not damages:
            try:
                values += [record.value for record in consumer.poll(QUICK_S)]
            except PartitionDamaged:
                damages += 1
        assert values == [b"good 0", b"good 1", b"good 2"]
        assert consumer.poll(0.2) == []
        assert damages == 1
        assert consumer.end_offsets([GOOD]) == {GOOD: 3}
        with pytest.raises(PartitionDamaged):
            consumer.end_offsets([BAD, GOOD])
        with pytest.raises(PartitionDamaged):
            consumer.position(*BAD)
    with Admin(broker.address) as admin, pytest.raises(PartitionDamaged):
        admin.delete_records("t", 0, -1)


def test_a_record_for_it_ends_with_the_damage_and_others_are_stored(broker: CliBroker) -> None:
    with BatchProducer(broker.address) as producer:
        bad = producer.send("t", b"x", partition=0)
        with pytest.raises(PartitionDamaged):
            bad.result(QUICK_S)
        assert producer.send("t", b"good 3", partition=1).result(QUICK_S).offset == 3
        assert producer.send("t", b"good 4").result(QUICK_S).offset == 4
