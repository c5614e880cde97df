"""A damaged segment: named by broker, consume, doctor and verify; mended at a stated price."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cli_process import CliBroker, ringlog

ALL = b"one a\none b\ntwo a\ntwo b\nthree a\nthree b\n"
SEGMENT = "00000000000000000000.log"


class Damaged(CliBroker):
    """Serves `good`, and `bad`, whose second batch is damaged."""

    position = 0
    """Byte at which that batch begins."""
    offset = 0
    """Its first offset."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Damaged]:
    made = Damaged(tmp_path)
    with made:
        for topic in ("bad", "good"):
            made.output_of("topic", "create", topic)
            for lines in (ALL[:12], ALL[12:24], ALL[24:]):
                made.output_of("produce", topic, stdin=lines)
        made.stop()
        dumped = ringlog("log", "dump", "--json", made.data / "bad-0")
        second = json.loads(dumped.stdout.splitlines()[1])
        made.position, made.offset = second["position"], second["base_offset"]
        path = made.data / "bad-0" / SEGMENT
        data = bytearray(path.read_bytes())
        data[second["position"] + second["size_bytes"] - 3] ^= 1
        path.write_bytes(data)
        made.start()
        yield made


def test_damage_is_exit_6_and_named_everywhere(broker: Damaged) -> None:
    place = f"bad-0/{SEGMENT} at byte {broker.position}"
    consumed = broker.run("consume", "bad", "--from-beginning", "--until-end")
    assert consumed.returncode == 6
    assert ALL.startswith(consumed.stdout)
    assert place in consumed.stderr.decode()
    assert f"offsets {broker.offset} to" in consumed.stderr.decode()
    assert broker.everything_in("good") == ALL
    dumped = ringlog("log", "dump", broker.data / "bad-0")
    assert dumped.returncode == 6
    assert place in dumped.stderr.decode()
    refused = ringlog("log", "verify", broker.data)
    assert refused.returncode == 3
    assert f"in use by process {broker.pid}" in refused.stderr.decode()
    assert refused.stdout == b""


def test_doctor_knows_of_damage_that_was_met(broker: Damaged) -> None:
    broker.run("consume", "bad", "--from-beginning", "--until-end")
    examined = broker.run("doctor", "--json")
    assert examined.returncode == 6
    damage = [row for row in json.loads(examined.stdout) if row["level"] == "DAMAGE"]
    assert len(damage) == 1
    assert f"bad-0/{SEGMENT} at byte {broker.position}" in damage[0]["text"]
    assert f"ringlog log verify {broker.data}" in damage[0]["text"]


def test_a_repair_states_its_price_pays_it_and_keeps_the_bytes(broker: Damaged) -> None:
    broker.stop()
    path = broker.data / "bad-0" / SEGMENT
    damaged = path.read_bytes()
    found = ringlog("log", "verify", broker.data)
    assert found.returncode == 6
    first = found.stdout.decode().splitlines()[0]
    position = broker.position
    assert first.startswith(f"damage: {path} at byte {position}: ")
    planned = ringlog("log", "verify", "--repair", "--dry-run", broker.data)
    assert planned.returncode == 6
    assert f"LOSES offsets {broker.offset} to 6 (exclusive)" in planned.stdout.decode()
    assert path.read_bytes() == damaged
    mended = ringlog("log", "verify", "--repair", broker.data)
    assert mended.returncode == 0, mended.stderr
    copy = path.with_name(f"{path.name}.damaged-{position}")
    assert damaged == damaged[:position] + copy.read_bytes()
    broker.start()
    kept = b"".join(ALL.splitlines(keepends=True)[: broker.offset])
    assert broker.everything_in("bad") == kept
    broker.output_of("produce", "bad", stdin=b"four\n")
    assert broker.everything_in("bad") == kept + b"four\n"
    assert broker.run("doctor").returncode == 0


def test_damage_beside_it_hinders_no_other_partition(broker: Damaged) -> None:
    assert broker.run("produce", "good", stdin=b"four\n").returncode == 0
    assert broker.everything_in("good").endswith(b"three b\nfour\n")
