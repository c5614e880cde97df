"""The layers, library homes and the sans-IO rule, over every source file.

Each rule is also shown code that breaks it: a rule that cannot fail proves nothing.
"""

from collections.abc import Callable

import pytest

from tests.repo import layer_rules
from tests.repo.source_tree import (
    LAYERS,
    Source,
    assert_none,
    files,
    parse,
    product_sources,
    sources,
)

Rule = Callable[[Source], list[str]]


@pytest.mark.parametrize("rule", layer_rules.RULES, ids=lambda rule: rule.__name__)
def test_no_source_breaks_the_rule(rule: Rule) -> None:
    assert_none([line for source in sources() for line in rule(source)])


def test_the_rules_see_the_product() -> None:
    folders = {source.folder for source in product_sources()}
    assert {"storage", "client", "broker"} <= folders


def test_each_shell_names_a_reason_and_a_layer() -> None:
    for path, (granted, reason) in layer_rules.SHELLS.items():
        assert path.split("/")[0] in LAYERS
        assert set(granted.split()) <= {"*", *layer_rules.SHELL_MODULES}
        assert len(reason) > 5


def test_each_shell_exists() -> None:
    assert_none([path for path in layer_rules.SHELLS if path not in files()])


PLANTED = [
    (layer_rules.layer_violations, "storage/log.py", "import ringlog.broker.reactor"),
    (layer_rules.layer_violations, "storage/log.py", "from ringlog.client.wire import Header"),
    (layer_rules.layer_violations, "storage/log.py", "from ringlog import client"),
    (layer_rules.layer_violations, "client/wire.py", "from ringlog.registry import ring"),
    (layer_rules.layer_violations, "client/wire.py", "import ringlog.replication"),
    (layer_rules.layer_violations, "replication/raft.py", "from ringlog.client import wire"),
    (layer_rules.layer_violations, "registry/ring.py", "import ringlog.broker"),
    (layer_rules.layer_violations, "broker/server.py", "from ringlog.tools.cli import main"),
    (layer_rules.layer_violations, "broker/server.py", "from tests.cluster import running"),
    (layer_rules.layer_violations, "tools/cli/topic.py", "import tests"),
    (layer_rules.layer_violations, "client/wire.py", "def f():\n    import ringlog.broker"),
    (layer_rules.layer_violations, "broker/server.py", "from storage.types import Offset"),
    (layer_rules.library_violations, "registry/ring.py", "import kazoo.client"),
    (layer_rules.library_violations, "client/producer.py", "import zmq"),
    (layer_rules.library_violations, "client/producer.py", "from zmq import Context"),
    (layer_rules.library_violations, "client/batcher.py", "import lz4.frame"),
    (layer_rules.library_violations, "broker/partition.py", "from crc32c import crc32c"),
    (layer_rules.library_violations, "client/producer.py", "import rich"),
    (layer_rules.library_violations, "broker/server.py", "import click"),
    (layer_rules.file_violations, "storage/log.py", "import os\nos.fsync(3)"),
    (layer_rules.file_violations, "storage/log.py", "from os import replace"),
    (layer_rules.file_violations, "storage/log.py", "import os\nos.path.exists('x')"),
    (layer_rules.file_violations, "storage/log.py", "open('x')"),
    (layer_rules.file_violations, "broker/config.py", "from pathlib import Path"),
    (layer_rules.file_violations, "client/config.py", "import shutil"),
    (layer_rules.shell_violations, "broker/partition.py", "import time"),
    (layer_rules.shell_violations, "broker/partition.py", "from time import monotonic_ns"),
    (layer_rules.shell_violations, "client/retry.py", "import random\nrandom.randrange(3)"),
    (layer_rules.shell_violations, "client/retry.py", "from random import randrange"),
    (layer_rules.shell_violations, "storage/log.py", "import uuid\nuuid.uuid4()"),
    (layer_rules.shell_violations, "storage/log.py", "import os\nos.urandom(8)"),
    (layer_rules.shell_violations, "replication/raft.py", "import threading"),
    (layer_rules.shell_violations, "replication/raft.py", "import logging"),
    (layer_rules.shell_violations, "broker/dispatch.py", "import time"),
    (layer_rules.forbidden_violations, "tools/cli/topic.py", "import pickle"),
    (layer_rules.forbidden_violations, "tools/cli/topic.py", "eval('1')"),
    (layer_rules.forbidden_violations, "tests/unit/x.py", "from marshal import loads"),
    (layer_rules.forbidden_violations, "storage/log.py", "yaml.load(text)"),
    (layer_rules.forbidden_violations, "client/wire.py", "importlib.import_module('x')"),
]


@pytest.mark.parametrize(
    ("rule", "path", "text"), PLANTED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_planted_violation_is_found(rule: Rule, path: str, text: str) -> None:
    assert rule(parse(path, text)) != []


REACTOR = """
import os, time, zmq
from ringlog.client import wire
os.eventfd_write(1, 1)
"""
RETRY = """
import random
from ringlog.storage.types import Offset
def backoff(rng: random.Random) -> float:
    return rng.random()
"""
ALLOWED = [
    ("storage/files.py", "import os\nos.fsync(3)"),
    ("broker/reactor.py", REACTOR),
    ("client/config.py", "import os\nos.environ.get('X')"),
    ("client/retry.py", RETRY),
    ("client/retry.py", "from random import Random"),
    ("tools/cli/topic.py", "import click, time\nfrom ringlog.client import Admin\nopen('x')"),
    ("tests/unit/broker/test_x.py", "import tests, zmq\nfrom ringlog.broker import dispatch"),
]


@pytest.mark.parametrize(("path", "text"), ALLOWED)
def test_what_is_allowed_passes(path: str, text: str) -> None:
    assert [line for rule in layer_rules.RULES for line in rule(parse(path, text))] == []
