"""`ringlog` as a person runs it: commands and brokers in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ringlog.broker.config_sources import PREFIX

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
_PROGRAM = "import sys; from ringlog.tools.cli import main; sys.exit(main())"

Result = subprocess.CompletedProcess[bytes]


def command(*arguments: str | Path) -> list[str]:
    """The words that run `ringlog` with `arguments`."""
    return [sys.executable, "-c", _PROGRAM, *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without any of ringlog's variables, and with `variables`.

    Nor does it say that output is not to be buffered, as that of some test runners does.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONUNBUFFERED" and not name.startswith(PREFIX)
    }
    return {**kept, **variables}


def ringlog(
    *arguments: str | Path, stdin: bytes = b"", shell: Mapping[str, str] | None = None
) -> Result:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env=shell if shell is not None else environment(),
        timeout=PATIENCE_S,
        check=False,
    )


class CliBroker:
    """`ringlog broker` on one data directory; may be killed and started again."""

    def __init__(self, folder: Path, *options: str, **settings: str) -> None:
        """`options` of the command line; `settings` by environment variable."""
        self.folder = folder
        self._options = options
        self._settings = settings
        self.data = folder / "data"
        self.address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.stop()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Run it until it serves; a second start listens where the first did."""
        assert self._process is None
        listen = self.address or "127.0.0.1:0"
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                command("broker", "--listen", listen, "--data-dir", self.data, *self._options),
                cwd=ROOT,
                env=environment(**self._settings),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"listening on "):
                self.address = line.split()[2].decode()
                return
        self._end(signal.SIGKILL)
        raise AssertionError(f"the broker ended: {self.log()}")

    def log(self) -> str:
        """All it has written to standard error."""
        return (self.folder / "broker.log").read_text()

    def kill(self) -> None:
        """Kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        assert self._end(signal.SIGTERM) == 0, self.log()

    def run(self, *arguments: str | Path, stdin: bytes = b"") -> Result:
        """Run a command against this broker to its end."""
        return ringlog(*arguments, "-b", self.address, stdin=stdin)

    def output_of(self, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        """Standard output of a command that must succeed."""
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout

    def everything_in(self, topic: str, *options: str) -> bytes:
        """What `ringlog consume` writes of a topic."""
        return self.output_of("consume", topic, "--from-beginning", "--until-end", *options)

    def _end(self, number: int) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            process.communicate(timeout=PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return process.returncode


@contextmanager
def running(
    *arguments: str | Path, stdin: int | None = None, shell: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that is still running; it is killed if the block leaves it so."""
    process = subprocess.Popen(
        command(*arguments),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=shell if shell is not None else environment(),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
