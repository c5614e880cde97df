"""What bad input gets from `ringlog`: one line with cause and next step, and an exit code."""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cli_process import (
    PATIENCE_S,
    ROOT,
    CliBroker,
    Result,
    command,
    environment,
    ringlog,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliBroker]:
    with CliBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def refused(result: Result, code: int, *texts: str) -> str:
    """Check an end without output and with one line of error; gives the line."""
    line = result.stderr.decode()
    assert (result.returncode, result.stdout) == (code, b""), line
    assert line.count("\n") == 1, line
    assert line.startswith("ringlog"), line
    for text in texts:
        assert text in line
    return line


@pytest.mark.parametrize(
    ("redirection", "arguments", "text"),
    [
        (">&-", "topic list", "standard output is closed; send it to a file"),
        (">&-", "broker", "standard output is closed; send it to a file"),
        ("<&-", "produce t", "standard input is closed; name a file"),
    ],
)
def test_a_closed_standard_stream_is_named(
    broker: CliBroker, redirection: str, arguments: str, text: str
) -> None:
    words = command(*arguments.split())
    if arguments != "broker":
        words += ["-b", broker.address]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *words],
        capture_output=True,
        env=environment(),
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=False,
    )
    refused(done, 2, text)


def silent_addresses() -> Iterator[tuple[str, str]]:
    """Two loopback addresses: nobody listens at one, the other never answers."""
    with socket.socket() as closed, socket.socket() as mute:
        closed.bind(("127.0.0.1", 0))
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        yield (
            f"127.0.0.1:{closed.getsockname()[1]}",
            f"127.0.0.1:{mute.getsockname()[1]}",
        )


COMMANDS = (
    ("topic", "list"),
    ("produce", "orders"),
    ("consume", "orders", "--until-end"),
)


@pytest.mark.parametrize("typed", COMMANDS)
def test_no_broker_each_address_was_tried_and_why_it_failed(typed: tuple[str, ...]) -> None:
    for closed, mute in silent_addresses():
        result = ringlog(*typed, "-b", f"{closed},{mute},no-such-host.invalid:1", stdin=b"x\n")
        line = refused(result, 4, f"{closed}: connection refused", f"{mute}: ")
        assert re.search(r"no-such-host\.invalid:1: \S", line)


def test_the_addresses_may_come_from_the_environment() -> None:
    for closed, _mute in silent_addresses():
        shell = environment(RINGLOG_BOOTSTRAP_SERVERS=closed)
        refused(ringlog("topic", "list", shell=shell), 4, f"{closed}: connection refused")


@pytest.mark.parametrize("address", ["nowhere", "host:port", "tcp://127.0.0.1:1", ":1", ""])
def test_an_address_that_is_none_is_bad_usage(address: str) -> None:
    refused(ringlog("topic", "list", "-b", address), 2)


@pytest.mark.parametrize(
    "typed",
    [
        ("topic", "describe", "missing"),
        ("topic", "delete", "missing"),
        ("topic", "alter", "missing", "--config", "retention.ms=1"),
        ("topic", "add-partitions", "missing", "3"),
        ("topic", "delete-records", "missing", "--partition", "0", "--before-offset", "1"),
        ("produce", "missing"),
        ("consume", "missing", "--until-end"),
        ("consume", "missing", "--partition", "0", "--until-end"),
    ],
    ids=" ".join,
)
def test_an_unknown_topic_is_not_made_on_the_way(broker: CliBroker, typed: tuple[str, ...]) -> None:
    line = refused(broker.run(*typed, stdin=b"x\n"), 3, "missing")
    assert "ringlog topic create missing" in line
    assert broker.output_of("topic", "list") == b""


@pytest.mark.parametrize("name", ["a b", "..", "é", "x" * 250, "a/b", "$(x)", "a\x1b[31m"])
def test_a_bad_topic_name_is_refused_and_shown_safely(broker: CliBroker, name: str) -> None:
    line = refused(broker.run("topic", "create", name), 3, "topic name")
    assert "\x1b" not in line


def test_a_topic_there_is_a_setting_there_is_not_and_numbers_that_cannot_be(
    broker: CliBroker,
) -> None:
    broker.output_of("topic", "create", "taken")
    try:
        refused(broker.run("topic", "create", "taken"), 3, "taken")
        wrong = ("--config", "retention.msec=1")
        refused(broker.run("topic", "create", "other", *wrong), 3, "retention.ms")
        refused(broker.run("topic", "create", "other", "--partitions", "0"), 2, "partitions is 0")
        refused(broker.run("topic", "create", "other", "--replication-factor", "3"), 3, "3")
        refused(broker.run("topic", "add-partitions", "taken", "1"), 3, "1")
        partition = ("--partition", "5")
        refused(broker.run("produce", "taken", *partition, stdin=b"x\n"), 3, "no partition 5")
        refused(broker.run("consume", "taken", *partition, "--until-end"), 3, "5")
        assert broker.output_of("topic", "list") == b"taken\n"
    finally:
        broker.output_of("topic", "delete", "taken")


def test_a_record_over_the_limit_is_named_and_those_before_it_are_stored(
    broker: CliBroker,
) -> None:
    limit = ("--config", "max.message.bytes=2000")
    broker.output_of("topic", "create", "limited", *limit)
    try:
        good = b"".join(b"%04d" % i + b"x" * 100 + b"\n" for i in range(100))
        result = broker.run("produce", "limited", stdin=good + b"y" * 5000 + b"\nafter\n")
        line = refused(result, 3, "2000")
        assert "the first 100 records are stored; resume at record 101" in line
        # The line behind it may have left before the refusal came back; then that is said.
        came = broker.everything_in("limited")
        assert came == good + (b"after\n" if "1 behind it are stored too" in line else b"")
        huge = broker.run("produce", "limited", stdin=b"z" * (11 << 20))
        refused(huge, 1, "max.message.bytes")
    finally:
        broker.output_of("topic", "delete", "limited")


@pytest.mark.parametrize(
    ("options", "settings", "text"),
    [
        ((), {"RINGLOG_LISEN": "127.0.0.1:0"}, "did you mean RINGLOG_LISTEN?"),
        ((), {"RINGLOG_MAX_TOPICS": "many"}, "'many' is no whole number"),
        (("--listen", "192.0.2.1:5555"), {}, "--insecure"),
        (("--listen", "0.0.0.0:0", "--insecure"), {}, "--advertise"),
        (("--listen", "127.0.0.1"), {}, "127.0.0.1"),
    ],
)
def test_a_broker_that_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path, options: tuple[str, ...], settings: dict[str, str], text: str
) -> None:
    data = tmp_path / "data"
    shell = environment(**settings)
    refused(ringlog("broker", "--data-dir", data, *options, shell=shell), 3, text)
    assert not data.exists()


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("disk_reserve_byte = 1\n")
    result = ringlog("broker", "--config", path, "--data-dir", tmp_path / "data")
    refused(result, 3, f"disk_reserve_byte in {path}", "did you mean disk_reserve_bytes?")


def test_a_second_broker_on_the_directory_names_the_first(broker: CliBroker) -> None:
    result = ringlog("broker", "--listen", "127.0.0.1:0", "--data-dir", broker.data)
    refused(result, 1, f"in use by process {broker.pid}")
    assert broker.output_of("topic", "list") == b""


def test_a_second_broker_at_the_address_names_it(broker: CliBroker, tmp_path: Path) -> None:
    result = ringlog("broker", "--listen", broker.address, "--data-dir", tmp_path / "other")
    assert result.returncode == 1
    line = result.stderr.decode().splitlines()[-1]
    assert broker.address in line
    assert "in use" in line


def test_a_directory_that_holds_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    result = ringlog("broker", "--listen", "127.0.0.1:0", "--data-dir", tmp_path)
    refused(result, 1, "thesis.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
