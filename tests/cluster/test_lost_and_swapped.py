"""Files of a data directory that are lost or swapped: named by verify and by the broker."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cli_process import CliBroker, Result, ringlog


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[CliBroker]:
    """Has been stopped in order; `t` has a record in each of two partitions."""
    with CliBroker(tmp_path) as made:
        made.output_of("topic", "create", "t", "--partitions", "2")
        for number in ("0", "1"):
            made.output_of("produce", "t", "--partition", number, stdin=b"precious\n")
        made.stop()
        yield made


def verified(broker: CliBroker) -> Result:
    return ringlog("log", "verify", broker.data)


def test_a_lost_registry_is_damage_and_no_broker_starts(broker: CliBroker) -> None:
    assert verified(broker).returncode == 0
    (broker.data / "registry.json").unlink()
    result = verified(broker)
    assert (result.returncode, result.stderr) == (6, b"")
    assert b"registry.json: is missing; restore registry.json from a backup" in result.stdout
    with pytest.raises(AssertionError, match=r"registry\.json: is missing"):
        broker.start()
    assert "restore registry.json from a backup" in broker.log()
    assert not (broker.data / "registry.json").exists()


def test_swapped_directories_are_damage_for_verify_as_for_the_broker(broker: CliBroker) -> None:
    (broker.data / "t-0").rename(broker.data / "aside")
    (broker.data / "t-1").rename(broker.data / "t-0")
    (broker.data / "aside").rename(broker.data / "t-1")
    result = verified(broker)
    assert result.returncode == 6
    assert b"t-0/partition.json: holds partition 1 of topic t" in result.stdout
    assert b"t-1/partition.json: holds partition 0 of topic t" in result.stdout
    broker.start()
    assert b"damaged" in broker.run("topic", "describe", "t").stdout


def test_a_directory_the_registry_does_not_know_is_named(broker: CliBroker) -> None:
    shutil.copytree(broker.data / "t-0", broker.data / "old-0")
    result = verified(broker)
    assert result.returncode == 6
    assert b"old-0/partition.json: holds partition 0 of topic t" in result.stdout
    broker.start()
    assert "old-0" in broker.log()
    assert broker.everything_in("t") == b"precious\n" * 2


@pytest.mark.parametrize("name", ["partition.json", "raft-log", "00000000000000000000.log"])
def test_a_file_that_cannot_be_opened_costs_its_partition_alone(
    broker: CliBroker, name: str
) -> None:
    path = broker.data / "t-0" / name
    path.unlink()
    path.mkdir()
    broker.start()
    assert "partition t-0 is damaged" in broker.log()
    assert broker.everything_in("t", "--partition", "1") == b"precious\n"
    broker.stop()
    result = verified(broker)
    assert (result.returncode, result.stderr) == (6, b"")
    assert f"t-0/{name}".encode() in result.stdout
