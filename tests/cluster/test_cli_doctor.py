"""`ringlog doctor` and `ringlog bench` against real brokers."""

import json
import socket
from pathlib import Path

from tests.cluster.cli_process import CliBroker, Result, ringlog


def rows_of(result: Result) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["where"], row["what"]): row for row in json.loads(result.stdout)}


def test_a_healthy_broker_gets_exit_0_and_its_facts(tmp_path: Path) -> None:
    with CliBroker(tmp_path) as broker:
        examined = broker.run("doctor", "--json")
        assert examined.returncode == 0, examined.stdout
        rows = rows_of(examined)
        assert examined.stderr == b""
        assert {what for _where, what in rows} == {
            *("dial", "advertised", "version", "clock", "space", "files", "flush", "partitions")
        }
        assert str(broker.data) in rows[broker.address, "space"]["text"]
        broker.output_of("topic", "create", "weak", "--config", "flush.policy=os")
        examined = broker.run("doctor", "--json")
        assert examined.returncode == 0
        flush = rows_of(examined)[broker.address, "flush"]
        assert flush["level"] == "note"
        assert "weak" in flush["text"]


def test_an_advertised_address_that_nobody_answers_is_found(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        wrong = f"127.0.0.1:{closed.getsockname()[1]}"
        with CliBroker(tmp_path, "--advertise", wrong) as broker:
            examined = broker.run("doctor", "--json")
    assert examined.returncode == 1, examined.stdout
    row = rows_of(examined)[wrong, "advertised"]
    assert row["level"] == "WRONG"
    assert "connection refused; set advertise" in row["text"]


def test_space_below_the_reserve_is_found(tmp_path: Path) -> None:
    with CliBroker(tmp_path, RINGLOG_DISK_RESERVE_BYTES=str(1 << 40)) as broker:
        address = broker.address
        examined = broker.run("doctor", "--json")
    assert examined.returncode == 1, examined.stdout
    assert rows_of(examined)[address, "space"]["level"] == "WRONG"


def test_nobody_there_is_exit_4() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        examined = ringlog("doctor", "--json", "-b", address)
    assert examined.returncode == 4
    assert rows_of(examined)[address, "dial"]["text"] == "connection refused"


def test_benchmarks_run_and_clean_up(tmp_path: Path) -> None:
    small = ("--records", "4096", "--runs", "1", "--json", "--data-dir", tmp_path)
    measured = ringlog("bench", "produce", *small)
    assert measured.returncode == 0, measured.stderr
    figures = json.loads(measured.stdout)
    assert figures["records"] == 4096
    assert 0 < figures["ratio"][1] < 100
    measured = ringlog("bench", "latency", "--blocks", "1", "--json", "--data-dir", tmp_path)
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["records"] == 100
    assert list(tmp_path.iterdir()) == []
