"""A broker as a process: signals, exit codes, what it prints."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ringlog.broker.endpoint import parse_endpoint
from ringlog.client import messages as m
from ringlog.client.errors import ErrorCode
from ringlog.client.wire import ResponseHeader
from ringlog.storage.record_codec import encode_batch
from tests.cluster.core_client import CoreClient

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30

PROGRAM = """
import json, os, sys
from ringlog.broker.config import BrokerConfig
from ringlog.broker import server
if "HANG_STOP" in os.environ:
    from ringlog.broker.core import BrokerCore
    BrokerCore.stop = lambda self, on_done: None
if "BREAK_SYNC" in os.environ:
    from ringlog.storage.errors import LogDirFailed
    from ringlog.storage.real_files import RealFile
    def sync(self, real=RealFile.sync):
        if self.name.endswith(".log") and os.path.exists(os.environ["BREAK_SYNC"]):
            raise LogDirFailed(f"{self.name}: planted EIO", hint="look at the disk")
        real(self)
    RealFile.sync = sync
sys.exit(server.run(BrokerConfig(**json.loads(sys.argv[1]))))
"""


class BrokerProcess:
    """`server.run` in a process of its own."""

    def __init__(self, directory: Path, *, environment: dict[str, str] | None = None,
                 **settings: object) -> None:  # fmt: skip
        values = {"listen": "127.0.0.1:0", "data_dir": str(directory / "data"), **settings}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(values)],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def endpoint(self) -> str:
        """Wait until it serves; the address it printed."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        raise AssertionError(f"it ended: {self.end()}")

    def end(self) -> tuple[int, str]:
        """Wait for its end: (exit code, standard error)."""
        try:
            _, stderr = self.process.communicate(timeout=PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
        return self.process.returncode, stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully_with_exit_code_0(tmp_path: Path, number: int) -> None:
    broker = BrokerProcess(tmp_path)
    with CoreClient(broker.endpoint()) as client:
        client.create_topic("orders")
        broker.process.send_signal(number)
        code, stderr = broker.end()
    assert code == 0, stderr
    assert "Traceback" not in stderr
    # Nothing but the log's own lines: no error line of ours.
    assert "ringlog broker:" not in stderr


def test_what_it_prints_at_start(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    assert broker.process.stdout is not None
    lines = [broker.process.stdout.readline().strip() for _ in range(3)]
    assert lines[0] == f"data directory {tmp_path / 'data'}"
    assert "flush policy majority" in lines[1]
    endpoint = parse_endpoint(lines[2].removeprefix("listening on "), listener=True)
    assert endpoint.host == "127.0.0.1"
    broker.process.terminate()
    assert broker.end()[0] == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, environment={"HANG_STOP": "1"})
    broker.endpoint()
    broker.process.terminate()
    assert broker.process.stderr is not None
    for line in broker.process.stderr:
        if line.endswith("stopping\n"):
            break
    broker.process.send_signal(signal.SIGINT)
    assert broker.end()[0] == 128 + signal.SIGINT


def test_a_failed_flush_ends_it_with_1_and_one_line_that_says_why(tmp_path: Path) -> None:
    broken_from_now_on = tmp_path / "broken"
    broker = BrokerProcess(tmp_path, environment={"BREAK_SYNC": str(broken_from_now_on)})
    with CoreClient(broker.endpoint()) as client:
        client.create_topic("orders")
        broken_from_now_on.touch()
        request = m.ProduceRequest(-1, 10_000, [m.ProducePartition("orders", b"", 0)])
        client.send(m.ApiKey.PRODUCE, request, [batch()])
        header, _ = client.receive()
        code, stderr = broker.end()
    assert answer_code(header) == ErrorCode.STORAGE_FAILED
    assert code == 1
    last = stderr.strip().splitlines()[-1]
    assert last.startswith("ringlog broker: ")
    assert "planted EIO" in last
    assert "look at the disk" in last


def answer_code(header: ResponseHeader) -> int:
    """The code a produce of one batch was answered with, as a whole or for its batch."""
    if header.error is not None:
        return header.error.code
    (result,) = msgspec.msgpack.decode(header.body, type=m.ProduceResponse).results
    assert result.error is not None
    return result.error.code


def batch() -> bytes:
    return encode_batch([b"x"], timestamps=time.time_ns() // 1_000_000)


def test_a_failed_start_is_one_line_with_a_way_out(tmp_path: Path) -> None:
    # An address set aside for documentation: never this machine's.
    code, stderr = BrokerProcess(tmp_path, listen="192.0.2.1:5555", insecure=True).end()
    assert code == 1
    (line,) = stderr.strip().splitlines()
    assert "cannot listen on 192.0.2.1:5555" in line
    assert "; " in line


def test_two_processes_never_share_a_directory(tmp_path: Path) -> None:
    first = BrokerProcess(tmp_path)
    first.endpoint()
    code, stderr = BrokerProcess(tmp_path).end()
    assert code == 1
    assert str(first.process.pid) in stderr
    first.process.kill()
    first.end()
    # A killed broker leaves no lock behind.
    second = BrokerProcess(tmp_path)
    second.endpoint()
    second.process.terminate()
    assert second.end()[0] == 0
