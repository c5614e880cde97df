"""A broker in a process of its own, for benchmarks.

Owns start and stop. Must not know what is measured.

Invariants:
    BP1 The process this module started is stopped before the context ends.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringlog.client import Admin

START_TIMEOUT_MS = 15_000
STOP_TIMEOUT_S = 20

_COMMAND = "import sys; from ringlog.tools.cli import main; sys.exit(main())"


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """Start a broker with its data in `folder`; yield its address."""
    ready = folder / "ready"
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", _COMMAND, "broker", "--listen", "127.0.0.1:0"),
                *("--data-dir", str(folder / "data"), "--ready-file", str(ready)),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield _address(process, ready)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: "subprocess.Popen[bytes]", ready: Path) -> str:
    for _ in range(START_TIMEOUT_MS // 20):
        if ready.exists() and (address := ready.read_text().strip()):
            with Admin(address) as admin:
                admin.describe_cluster()
            return address
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"the broker did not start; see {ready.parent / 'broker.log'}")
