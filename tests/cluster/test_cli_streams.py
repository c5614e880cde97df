"""`ringlog produce` and `consume` in a shell: pipes, signals, a broker that dies meanwhile."""

import os
import pty
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringlog.client import Admin
from tests.cluster.cli_process import PATIENCE_S, CliBroker, command, environment, running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[CliBroker]:
    with CliBroker(tmp_path) as serving:
        serving.output_of("topic", "create", "lines")
        yield serving


def until_stored(broker: CliBroker, records: int) -> None:
    """Wait until `lines` holds so many records."""
    deadline = time.monotonic() + PATIENCE_S
    with Admin(broker.address) as admin:
        while admin.describe_topic("lines").partitions[0].high_watermark < records:
            assert time.monotonic() < deadline, "the records did not arrive"


def finish(process: "subprocess.Popen[bytes]") -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def test_lines_of_a_slow_pipe_are_sent_as_they_come(broker: CliBroker) -> None:
    typed = ("produce", "lines", "-b", broker.address)
    with running(*typed, stdin=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        for number in range(1, 4):
            producing.stdin.write(b"line %d\n" % number)
            producing.stdin.flush()
            until_stored(broker, number)
        assert finish(producing)[0] == 0


def test_ctrl_c_ends_a_producer_with_130_and_says_where_to_resume(broker: CliBroker) -> None:
    typed = ("produce", "lines", "-b", broker.address)
    with running(*typed, stdin=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"one\ntwo\nthr")
        producing.stdin.flush()
        until_stored(broker, 2)
        producing.send_signal(signal.SIGINT)
        producing.wait(PATIENCE_S)
        code, out, err = finish(producing)
    assert (code, out) == (130, b"")
    assert b"interrupted; the first 2 records are stored; resume at record 3" in err
    assert b"Traceback" not in err
    assert broker.everything_in("lines") == b"one\ntwo\n"


def test_ctrl_c_ends_a_producer_soon_even_without_its_broker(broker: CliBroker) -> None:
    typed = ("produce", "lines", "-b", broker.address)
    with running(*typed, stdin=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"one\n")
        producing.stdin.flush()
        until_stored(broker, 1)
        broker.kill()
        producing.stdin.write(b"two\n")
        producing.stdin.flush()
        producing.send_signal(signal.SIGINT)
        begin = time.monotonic()
        code, _out, err = finish(producing)
        assert time.monotonic() - begin < 30
    assert code == 130
    assert b"the first 1 records are stored; resume at record 2" in err
    broker.start()


def test_ctrl_c_ends_a_consumer_with_130(broker: CliBroker) -> None:
    broker.output_of("produce", "lines", stdin=b"one\ntwo\n")
    with running("consume", "lines", "--from-beginning", "-b", broker.address) as consuming:
        assert consuming.stdout is not None
        assert [consuming.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        consuming.send_signal(signal.SIGINT)
        code, out, err = finish(consuming)
    assert (code, out, err.strip()) == (130, b"", b"")


def test_a_consumer_shows_records_as_they_come(broker: CliBroker) -> None:
    broker.output_of("produce", "lines", stdin=b"old\n")
    typed = ("consume", "lines", "--from-beginning", "--max-records", "3", "-b", broker.address)
    with running(*typed) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"old\n"
        for line in (b"new\n", b"newer\n"):
            broker.output_of("produce", "lines", stdin=line)
            assert consuming.stdout.readline() == line
        assert finish(consuming)[0] == 0


def test_a_reader_that_has_seen_enough_is_no_failure(broker: CliBroker) -> None:
    broker.output_of("produce", "lines", stdin=b"".join(b"%d\n" % i for i in range(200_000)))
    for option in ((), ("--until-end",), ("--format", "json")):
        typed = ("consume", "lines", "--from-beginning", *option, "-b", broker.address)
        with running(*typed) as consuming:
            assert consuming.stdout is not None
            consuming.stdout.readline()
            consuming.stdout.close()
            assert consuming.stderr is not None
            assert consuming.stderr.read() == b""
            assert consuming.wait(PATIENCE_S) == 0
    with running("log", "dump", "--records", broker.data) as dumping:
        assert dumping.stdout is not None
        dumping.stdout.readline()
        dumping.stdout.close()
        assert dumping.stderr is not None
        assert dumping.stderr.read() == b""
        assert dumping.wait(PATIENCE_S) == 0


def test_a_broker_killed_meanwhile_costs_and_doubles_no_record(broker: CliBroker) -> None:
    lines = [b"%06d %b\n" % (i, b"x" * (i % 300)) for i in range(20_000)]
    half = len(lines) // 2
    typed = ("produce", "lines", "-b", broker.address)
    with running(*typed, stdin=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"".join(lines[:half]))
        producing.stdin.flush()
        until_stored(broker, 1)
        broker.kill()
        writer = threading.Thread(
            target=producing.stdin.write, args=(b"".join(lines[half:]),), daemon=True
        )
        writer.start()
        broker.start()
        writer.join(PATIENCE_S)
        code, _out, err = finish(producing)
    assert code == 0, err
    assert b"20000 records to lines" in err
    assert broker.everything_in("lines") == b"".join(lines)


def test_a_waiting_client_that_leaves_is_no_warning_of_the_broker(broker: CliBroker) -> None:
    broker.output_of("produce", "lines", stdin=b"one\n")
    with running("consume", "lines", "--from-beginning", "-b", broker.address) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"one\n"
        # It has asked for more: the next record is there at once.
        broker.output_of("produce", "lines", stdin=b"two\n")
        assert consuming.stdout.readline() == b"two\n"
        consuming.send_signal(signal.SIGINT)
        assert finish(consuming)[0] == 130
    broker.output_of("produce", "lines", stdin=b"three\n")
    assert "WARNING" not in broker.log(), broker.log()


def on_a_terminal(*typed: str) -> tuple[int, bytes, bytes]:
    """Run a command whose error output is a terminal: code, standard output, what is shown."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            command(*typed), stdout=subprocess.PIPE, stderr=theirs, env=environment(TERM="xterm")
        )
        os.close(theirs)
        assert process.stdout is not None
        shown, out = b"", b""
        open_streams = {ours, process.stdout.fileno()}
        while open_streams:
            ready, _, _ = select.select(open_streams, [], [], PATIENCE_S)
            assert ready, "it does not end"
            for stream in ready:
                try:
                    data = os.read(stream, 65536)
                except OSError:  # the other side of a terminal has closed
                    data = b""
                if not data:
                    open_streams.discard(stream)
                elif stream == ours:
                    shown += data
                else:
                    out += data
        process.stdout.close()
        return process.wait(PATIENCE_S), out, shown
    finally:
        os.close(ours)


def test_bars_are_shown_on_a_terminal_only_and_never_in_the_output(
    broker: CliBroker, tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"".join(b"%d\n" % i for i in range(100_000)))
    typed = ("produce", "lines", "--file", str(path), "-b", broker.address)
    code, out, shown = on_a_terminal(*typed)
    assert (code, out) == (0, b"")
    assert b"sending" in shown
    assert b"100000 records to lines" in shown
    read = ("consume", "lines", "--from-beginning", "--until-end")
    code, out, shown = on_a_terminal(*read, "-b", broker.address)
    assert (code, out) == (0, path.read_bytes())
    assert b"reading" in shown
    assert broker.run(*read).stderr == b""
    broker.stop()
    code, out, shown = on_a_terminal("log", "verify", str(broker.data))
    assert code == 0
    assert b"verifying" in shown
    assert out.endswith(b"no damage\n")
    broker.start()
