"""What doctor makes of facts: levels at their edges, and a next step for all that is wrong."""

import msgspec
import pytest

from ringlog.client.admin import BrokerInfo
from ringlog.client.messages import DescribeBrokerResponse
from ringlog.tools.cli.doctor_checks import (
    FEW_OPEN_FILES,
    MAX_SKEW_MS,
    Asked,
    Check,
    Level,
    address_checks,
    broker_checks,
    cluster_checks,
)

NOW_MS = 1_000_000
HEALTHY = DescribeBrokerResponse(
    broker_id=3,
    broker_version="1.2.3",
    cluster_id="c",
    pid=1,
    started_ms=0,
    now_ms=NOW_MS,
    listen="h:1",
    advertise="h:1",
    data_directory="/data",
    free_bytes=2048 << 20,
    reserve_bytes=512 << 20,
    open_files=20,
    open_files_limit=FEW_OPEN_FILES,
    flush_policy="majority",
    partitions=7,
    damaged=[],
    warnings=[],
)


def asked(**changes: object) -> Asked:
    answer = msgspec.structs.replace(HEALTHY, **changes)
    return Asked("h:1", answer, NOW_MS - 10, NOW_MS + 10)


def checks(**changes: object) -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = {}
    for check in broker_checks(asked(**changes), "1.2.3"):
        assert check.where == "h:1"
        found.setdefault(check.what, []).append(check)
    return found


def test_a_healthy_broker_is_ok_in_every_respect() -> None:
    found = checks()
    assert list(found) == ["version", "clock", "space", "files", "flush", "partitions"]
    assert {check.level for rows in found.values() for check in rows} == {Level.OK}


@pytest.mark.parametrize(
    ("what", "changes", "level", "text"),
    [
        ("version", {"broker_version": "1.2.4"}, Level.NOTE, "broker 1.2.4, this command 1.2.3"),
        ("clock", {"now_ms": NOW_MS + 10 + MAX_SKEW_MS}, Level.OK, "within"),
        ("clock", {"now_ms": NOW_MS + 11 + MAX_SKEW_MS}, Level.WRONG, "1001 ms ahead of"),
        ("clock", {"now_ms": NOW_MS - 10 - MAX_SKEW_MS}, Level.OK, "within"),
        ("clock", {"now_ms": NOW_MS - 11 - MAX_SKEW_MS}, Level.WRONG, "1001 ms behind"),
        ("space", {"free_bytes": 512 << 20}, Level.NOTE, "refused soon"),
        ("space", {"free_bytes": (512 << 20) - 1}, Level.WRONG, "produce is refused"),
        ("space", {"free_bytes": 1024 << 20}, Level.OK, "1,024 MiB free in /data"),
        ("space", {"free_bytes": 0, "reserve_bytes": 0}, Level.WRONG, "almost full; free space"),
        ("space", {"free_bytes": (64 << 20) - 1, "reserve_bytes": 0}, Level.WRONG, "almost full"),
        ("space", {"free_bytes": 64 << 20, "reserve_bytes": 0}, Level.NOTE, "refused soon"),
        ("space", {"free_bytes": 128 << 20, "reserve_bytes": 0}, Level.OK, "128 MiB free"),
        ("files", {"open_files": 3687}, Level.WRONG, "ulimit -n"),
        ("files", {"open_files": 3686}, Level.OK, "3686 open of 4096"),
        ("files", {"open_files_limit": FEW_OPEN_FILES - 1}, Level.NOTE, "ulimit -n 4096"),
        ("files", {"open_files_limit": -1}, Level.OK, "no limit"),
        ("flush", {"warnings": ["t: flush.policy=os"]}, Level.NOTE, "t: flush.policy=os; "),
    ],
)
def test_each_respect_at_its_edge(
    what: str, changes: dict[str, object], level: Level, text: str
) -> None:
    (check,) = checks(**changes)[what]
    assert check.level is level
    assert text in check.text


def test_each_damaged_partition_has_its_line_and_the_command_for_it() -> None:
    rows = checks(damaged=["a-0: bad", "b-1: bad"])["partitions"]
    assert [row.level for row in rows] == [Level.DAMAGE, Level.DAMAGE]
    assert [row.text.split(";")[0] for row in rows] == ["a-0: bad", "b-1: bad"]
    assert all("ringlog log verify /data" in row.text for row in rows)


def test_advertised_addresses_are_judged_by_who_answers_there() -> None:
    brokers = [BrokerInfo(3, "h:1", ""), BrokerInfo(4, "h:2", ""), BrokerInfo(5, "h:1", "")]
    good, silent, taken = address_checks([asked()], brokers, {"h:2": "connection refused"})
    assert (good.where, good.level) == ("h:1", Level.OK)
    assert (silent.where, silent.level) == ("h:2", Level.WRONG)
    assert "connection refused; set advertise" in silent.text
    assert taken.level is Level.WRONG
    assert "but broker 3 answers there; correct advertise of broker 5" in taken.text


def test_addresses_of_two_clusters_are_named() -> None:
    assert cluster_checks([asked(), asked()]) == []
    (check,) = cluster_checks([asked(), asked(cluster_id="d")])
    assert check.level is Level.WRONG
    assert "2 clusters (c, d)" in check.text
