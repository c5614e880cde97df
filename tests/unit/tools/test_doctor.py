"""`ringlog doctor`: whom it dials, and its exit code."""

import json
from collections.abc import Sequence

import msgspec
import pytest

from ringlog import __version__
from ringlog.client.admin import BrokerInfo
from ringlog.client.errors import NoBrokerReachable
from ringlog.tools.cli import doctor, main
from ringlog.tools.cli.doctor_checks import Asked
from ringlog.tools.cli.exits import Exit
from tests.unit.tools.test_doctor_checks import HEALTHY


class Cluster:
    """Brokers by address; `ask` takes the place of the network."""

    def __init__(self) -> None:
        self.brokers: dict[str, tuple[int, dict[str, object]]] = {}
        self.advertised: list[BrokerInfo] = []
        self.dialled: list[str] = []

    def ask(self, address: str) -> tuple[Asked, Sequence[BrokerInfo]]:
        self.dialled.append(address)
        if address not in self.brokers:
            raise NoBrokerReachable("nobody", reasons=((address, "connection refused"),))
        number, changes = self.brokers[address]
        changes = {"broker_version": __version__, **changes}
        answer = msgspec.structs.replace(HEALTHY, broker_id=number, **changes)
        now_ms = HEALTHY.now_ms
        return Asked(address, answer, now_ms, now_ms), self.advertised


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(doctor, "_ask", made.ask)
    return made


def examine(capsys: pytest.CaptureFixture[str], servers: str) -> tuple[int, list[list[str]]]:
    code = main(["doctor", "--json", "-b", servers])
    out, err = capsys.readouterr()
    assert err == ""
    return code, [list(row.values()) for row in json.loads(out)]


def test_given_and_advertised_addresses_are_each_dialled_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.brokers = {"h:1": (0, {}), "h:2": (1, {}), "h:3": (2, {})}
    cluster.advertised = [BrokerInfo(i, f"h:{i + 1}", "") for i in range(3)]
    code, rows = examine(capsys, "h:1,h:2,h:1")
    assert code == Exit.DONE
    assert sorted(cluster.dialled) == ["h:1", "h:2", "h:3"]
    assert [row[:3] for row in rows if row[1] == "advertised"] == [
        ["h:1", "advertised", "ok"],
        ["h:2", "advertised", "ok"],
        ["h:3", "advertised", "ok"],
    ]


def test_a_broker_behind_two_addresses_is_judged_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.brokers = {"h:1": (0, {}), "i:1": (0, {})}
    cluster.advertised = [BrokerInfo(0, "h:1", "")]
    _code, rows = examine(capsys, "i:1")
    assert [row[0] for row in rows if row[1] == "clock"] == ["i:1"]
    assert cluster.dialled == ["i:1", "h:1"]


def test_nobody_there_is_exit_4_with_the_reason(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = examine(capsys, "h:1,h:2")
    assert code == Exit.UNREACHABLE
    assert rows == [
        ["h:1", "dial", "WRONG", "connection refused"],
        ["h:2", "dial", "WRONG", "connection refused"],
    ]


def test_one_of_two_silent_is_exit_1(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.brokers = {"h:1": (0, {})}
    cluster.advertised = [BrokerInfo(0, "h:1", "")]
    code, rows = examine(capsys, "h:1,h:2")
    assert code == Exit.FAILED
    assert ["h:2", "dial", "WRONG", "connection refused"] in rows


def test_an_advertised_address_that_nobody_answers_is_exit_1(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.brokers = {"h:1": (0, {})}
    cluster.advertised = [BrokerInfo(0, "inner:1", "")]
    code, rows = examine(capsys, "h:1")
    assert code == Exit.FAILED
    (row,) = [row for row in rows if row[1] == "advertised"]
    assert row[:3] == ["inner:1", "advertised", "WRONG"]
    assert "connection refused" in row[3]


def test_damage_is_exit_6_whatever_else_is_wrong(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.brokers = {"h:1": (0, {"damaged": ["t-0: bad"], "free_bytes": 0})}
    cluster.advertised = [BrokerInfo(0, "h:1", "")]
    assert examine(capsys, "h:1")[0] == Exit.DAMAGED


def test_notes_alone_are_exit_0(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.brokers = {"h:1": (0, {"warnings": ["t: flush.policy=os"]})}
    cluster.advertised = [BrokerInfo(0, "h:1", "")]
    assert examine(capsys, "h:1")[0] == Exit.DONE


def test_for_people_it_is_a_table(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.brokers = {"h:1": (0, {"damaged": ["t-0: \x1b[31mbad"]})}
    assert main(["doctor", "-b", "h:1"]) == Exit.DAMAGED
    out = capsys.readouterr().out
    assert "DAMAGE" in out
    assert "\x1b" not in out


def test_an_address_that_is_none_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-b", "nowhere"]) == Exit.USAGE
    assert "it has no port; write nowhere:5555" in capsys.readouterr().err
