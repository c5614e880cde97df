"""What the README tells a stranger to type does what it says, on a broker of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Run by other means: the environment has ringlog already, and these run themselves.
NOT_RUN = {
    "tools/quickstart",
    "tools/test",
    "python3 -m venv .venv && . .venv/bin/activate",
    "pip install .",
}


def blocks(kind: str) -> list[str]:
    """The code blocks of that kind in the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [body for name, body in BLOCK.findall(text) if name == kind]


def commands() -> list[str]:
    """What stands behind the prompts of the console blocks."""
    lines = [line for body in blocks("console") for line in body.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def free_address() -> str:
    """A loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def environment(address: str) -> dict[str, str]:
    """The shell of somebody who has activated the environment and works at `address`."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RINGLOG_LISTEN": address,
        "RINGLOG_BOOTSTRAP_SERVERS": address,
    }


@contextmanager
def broker_from(command: str, folder: Path, shell: Mapping[str, str]) -> Iterator[None]:
    """Run the README's broker command until the block is left."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env=shell, stderr=subprocess.PIPE, text=True
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=30)
    assert process.returncode == 0, complaints


def test_the_commands_of_the_readme_do_what_it_says(tmp_path: Path) -> None:
    shell = environment(free_address())
    typed = [command for command in commands() if command not in NOT_RUN]
    assert typed[0] == "ringlog broker &"
    outputs = []
    with broker_from("ringlog broker", tmp_path, shell):
        for command in typed[1:]:
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=shell, capture_output=True, check=False
            )
            assert done.returncode == 0, (command, done.stderr.decode())
            outputs.append(done.stdout)
    assert sorted(outputs[-1].splitlines()) == [b"anna:1 book", b"bert:2 pens"]
    assert (tmp_path / "ringlog-data").is_dir()


def test_the_python_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    address = free_address()
    (code,) = blocks("python")
    assert code.count("127.0.0.1:5555") == 3
    with broker_from("ringlog broker", tmp_path, environment(address)):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code.replace("127.0.0.1:5555", address)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    stored, read = done.stdout.splitlines()
    assert re.fullmatch(r"payments \d 0", stored)
    assert read == f"{stored.split()[1]} 0 b'anna' b'12.50' (('trace_id', b'abc'),)"


@pytest.mark.parametrize("last_byte", [b"\n", b"x"])
def test_quickstart_sends_a_file_and_compares_what_comes_back(
    tmp_path: Path, last_byte: bytes
) -> None:
    sent = bytes(range(256)) * 50 + b"\r\n\n" + last_byte
    (tmp_path / "file").write_bytes(sent)
    shell = {**os.environ, "RINGLOG_VENV": sys.prefix, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [ROOT / "tools/quickstart", "file"],
        cwd=tmp_path,
        env=shell,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    back = sent if sent.endswith(b"\n") else sent + b"\n"
    records = back.count(b"\n")
    assert f"{records} records, {len(back)} bytes" in done.stdout
    assert list((tmp_path / "cache").rglob("quickstart.*")) == []


def test_quickstart_keeps_the_broker_when_asked(tmp_path: Path) -> None:
    shell = {**os.environ, "RINGLOG_VENV": sys.prefix, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [str(ROOT / "tools/quickstart"), "--keep"]
    done = subprocess.run(
        command, cwd=tmp_path, env=shell, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (pid,) = re.findall(r"kill (\d+)$", done.stdout, re.MULTILINE)
    (again,) = re.findall(r"read again: +(.*)$", done.stdout, re.MULTILINE)
    try:
        read = subprocess.run(["bash", "-c", again], capture_output=True, check=True).stdout
        assert read == (ROOT / "README.md").read_bytes()
        assert (tmp_path / "ringlog-data").is_dir()
    finally:
        os.kill(int(pid), signal.SIGTERM)
