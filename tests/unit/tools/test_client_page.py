"""The page of the Python API names everything public, and its example does what it says."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringlog import client
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


BEFORE = """
from ringlog.client import Consumer

def work(record):
    print(record.offset)
    if record.offset == 599:
        raise SystemExit
"""


def test_the_example_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    _, _, example = PAGE.partition("loses none:\n\n```python\n")
    code = BEFORE + example.partition("```")[0]
    runs: list[list[int]] = []
    kept: list[int] = []
    with ScriptedBroker({"orders": 1}) as broker:
        # More than one poll gives: the first is kept when the last record ends the run.
        broker.fill("orders", 0, 600)
        for _run in range(2):
            done = subprocess.run(
                [sys.executable, "-c", code],
                cwd=tmp_path,
                env={**os.environ, "RINGLOG_BOOTSTRAP_SERVERS": broker.address},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            runs.append([int(line) for line in done.stdout.split()])
            kept.append(json.loads((tmp_path / "orders.offsets").read_text())["0"])
    assert 0 < kept[0] < 600
    assert runs == [list(range(600)), list(range(kept[0], 600))]
