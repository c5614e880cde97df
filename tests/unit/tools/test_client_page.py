"""The page of the Python API names everything public, and its example does what it says."""

import dataclasses
import functools
import re
from pathlib import Path

import pytest

from ringlog import client
from ringlog.client import Consumer, Record
from ringlog.client.config import ClientConfig
from ringlog.client.consumer_config import ConsumerConfig
from ringlog.client.producer_config import ProducerConfig
from ringlog.tools.pages import client_page
from tests.unit.client.scripted_broker import ScriptedBroker

PAGE = client_page.client_page()


@pytest.mark.parametrize("name", ["Admin", "BatchProducer", "Consumer", "Delivery"])
def test_each_public_method_has_its_signature(name: str) -> None:
    cls = getattr(client, name)
    section = PAGE.partition(f"class {name}:")[2]
    for method, value in vars(cls).items():
        if not method.startswith("_") and method != "on_forked" and callable(value):
            assert f"\ndef {method}(" in section


@pytest.mark.parametrize("settings", [ProducerConfig, ConsumerConfig, ClientConfig])
def test_each_setting_has_its_default_and_its_meaning(settings: type) -> None:
    assert dataclasses.is_dataclass(settings)
    tables = PAGE.partition("## Settings of BatchProducer")[2]
    for field in dataclasses.fields(settings):
        name = "bootstrap_servers" if field.name == "bootstrap" else field.name
        row = re.search(rf"^\| `{name}` \| (\S+) \|.* \| (.*) \|$", tables, re.MULTILINE)
        assert row is not None, name
        assert row[1] != "``"
        assert row[2].endswith((".", ")")), name


def test_each_error_of_the_package_has_a_row() -> None:
    for name in client.__all__:
        value = getattr(client, name)
        if issubclass(value, client.RinglogError):
            assert re.search(rf"^\| (· )*`{name}` \| `{value.code}` \|", PAGE, re.MULTILINE)


def test_a_unit_is_taken_from_the_name_or_from_the_list() -> None:
    names = ("linger_ms", "batch_bytes", "batch_size", "acks")
    assert [client_page.unit_of(name) for name in names] == ["ms", "bytes", "records", ""]


class Stopped(Exception):
    """Ends the endless loop of the example."""


def test_the_example_goes_on_where_the_last_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, example = PAGE.partition("loses none:\n\n```python\n")
    code = compile(example.partition("```")[0], "example", "exec")
    seen: list[int] = []
    with ScriptedBroker({"orders": 1}) as broker:
        broker.fill("orders", 0, 10)

        def work(record: Record) -> None:
            seen.append(record.offset)
            if record.offset == 9:
                broker.fill("orders", 0, 2)
            if record.offset == 11:
                raise Stopped

        names = {"Consumer": functools.partial(Consumer, bootstrap_servers=broker.address)}
        for _run in range(2):
            with pytest.raises(Stopped):
                exec(code, {**names, "work": work})
    assert seen == [*range(12), 10, 11]
