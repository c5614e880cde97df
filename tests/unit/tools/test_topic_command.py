"""`ringlog topic` as it is typed: what reaches `Admin`, what is printed."""

import json
from typing import ClassVar, Self

import pytest

from ringlog.client.admin import PartitionInfo, TopicInfo
from ringlog.client.errors import PartitionDamaged, UnknownTopic
from ringlog.tools.cli import main, topic
from ringlog.tools.cli.exits import Exit

ORDERS = TopicInfo(
    "orders",
    bytes(16),
    "online",
    1,
    {"retention.ms": "60000", "flush.policy": "majority"},
    ("retention.ms",),
    (
        PartitionInfo(0, 0, 3, (0,), 5, 10, 10, 2000),
        PartitionInfo(1, -1, 3, (0,), 0, 0, 0, 0, PartitionDamaged("orders-1 is damaged")),
    ),
)


class Admin:
    """Takes the place of the real one: keeps calls, knows one topic."""

    calls: ClassVar[list[tuple[object, ...]]] = []

    def __init__(self, servers: str | None, **settings: object) -> None:
        self.calls.append(("Admin", servers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def list_topics(self) -> list[str]:
        return ["a", "orders"]

    def describe_topic(self, name: str) -> TopicInfo:
        if name != "orders":
            raise UnknownTopic(f"no topic {name!r}", hint=f"ringlog topic create {name}")
        return ORDERS

    def delete_records(self, name: str, partition: int, before_offset: int) -> int:
        self.calls.append(("delete_records", name, partition, before_offset))
        return 42

    def create_topic(self, *arguments: object) -> None:
        self.calls.append(("create_topic", *arguments))

    def alter_topic(self, *arguments: object) -> None:
        self.calls.append(("alter_topic", *arguments))

    def delete_topic(self, *arguments: object) -> None:
        self.calls.append(("delete_topic", *arguments))

    def add_partitions(self, *arguments: object) -> None:
        self.calls.append(("add_partitions", *arguments))


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> type[Admin]:
    monkeypatch.setattr(topic, "Admin", Admin)
    monkeypatch.setenv("COLUMNS", "200")
    Admin.calls = []
    return Admin


@pytest.mark.parametrize(
    ("typed", "call", "said"),
    [
        (
            "create orders",
            ("create_topic", "orders", 1, None, {}),
            "created orders with 1 partition",
        ),
        (
            "create o --partitions 6 --replication-factor 1 --config a.b=1 --config c==x",
            ("create_topic", "o", 6, 1, {"a.b": "1", "c": "=x"}),
            "created o with 6 partitions",
        ),
        (
            "alter orders --config retention.ms=1 --default retention.bytes",
            ("alter_topic", "orders", {"retention.ms": "1", "retention.bytes": None}),
            "altered orders",
        ),
        ("delete orders", ("delete_topic", "orders"), "deleted orders"),
        ("add-partitions orders 8", ("add_partitions", "orders", 8), "orders has 8 partitions"),
        (
            "delete-records orders --partition 1 --before-offset -1",
            ("delete_records", "orders", 1, -1),
            "orders-1 now starts at offset 42",
        ),
    ],
)
def test_a_change_reaches_admin_and_is_confirmed_on_standard_error(
    admin: type[Admin],
    capsys: pytest.CaptureFixture[str],
    typed: str,
    call: tuple[object, ...],
    said: str,
) -> None:
    assert main(["topic", *typed.split(), "-b", "h:1"]) == Exit.DONE
    assert admin.calls == [("Admin", "h:1"), call]
    assert capsys.readouterr() == ("", f"{said}\n")


def test_list_is_a_name_per_line_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list"]) == Exit.DONE
    assert capsys.readouterr().out == "a\norders\n"
    assert main(["topic", "list", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out) == ["a", "orders"]


def test_describe_shows_partitions_trouble_and_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topic", "describe", "orders"]) == Exit.DONE
    out = capsys.readouterr().out
    assert "orders: online, replication factor 1" in out
    assert "orders-1 is damaged" in out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    assert ["0", "0", "3", "5", "10", "2000", ""] in rows
    assert ["retention.ms", "60000", "hand"] in rows
    assert ["flush.policy", "majority", "default"] in rows


def test_describe_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "describe", "orders", "--json"]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["overrides"] == ["retention.ms"]
    assert found["topic_uuid"] == "00" * 16
    assert [row["error"] for row in found["partitions"]] == [None, "orders-1 is damaged"]
    assert found["partitions"][0]["high_watermark"] == 10


def test_an_unknown_topic_is_one_line_and_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "describe", "x"]) == Exit.REFUSED
    assert capsys.readouterr() == ("", "ringlog: no topic 'x'; ringlog topic create x\n")


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("create", "Missing argument 'NAME'"),
        ("create orders --partitions many", "Invalid value for '--partitions'"),
        ("create orders --config nothing", "is not NAME=VALUE"),
        ("alter orders", "nothing to change"),
        ("add-partitions orders", "Missing argument 'TOTAL'"),
        ("delete-records orders", "Missing option '--partition'"),
    ],
)
def test_usage(
    admin: type[Admin], capsys: pytest.CaptureFixture[str], typed: str, text: str
) -> None:
    assert main(["topic", *typed.split()]) == Exit.USAGE
    assert text in capsys.readouterr().err
    assert admin.calls == []
