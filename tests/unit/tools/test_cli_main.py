"""The `ringlog` command as such: help, loading, ends."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ringlog import __version__
from ringlog.tools import cli
from ringlog.tools.cli import COMMANDS, main
from ringlog.tools.cli.exits import Exit

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "import sys; from ringlog.tools.cli import main; sys.exit(main())"


def test_help_lists_each_command_and_all_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == Exit.DONE
    out = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in out
        assert main([name, "-h"]) == Exit.DONE
    assert "Example" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == Exit.DONE
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nothing"], ["topic", "nothing"], ["topic", "create"],
                                       ["topic", "list", "--nothing"]])  # fmt: skip
def test_bad_usage_is_exit_2_and_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "Error: " in err


def ending(monkeypatch: pytest.MonkeyPatch, error: BaseException | None, result: object) -> None:
    """Make `ringlog doctor` end so."""

    @click.command(name="doctor")
    def command() -> object:
        if error is not None:
            raise error
        return result

    monkeypatch.setattr("ringlog.tools.cli.doctor.command", command)


@pytest.mark.parametrize(
    ("error", "result", "code"),
    [
        (None, None, Exit.DONE),
        (None, 6, Exit.DAMAGED),
        (KeyboardInterrupt(), None, Exit.INTERRUPTED),
        (click.Abort(), None, Exit.INTERRUPTED),
        (click.exceptions.Exit(3), None, Exit.REFUSED),
        (ZeroDivisionError("a\nb\x1b"), None, Exit.FAILED),
    ],
)
def test_how_a_command_ends_is_how_ringlog_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    result: object,
    code: Exit,
) -> None:
    monkeypatch.delenv("RINGLOG_DEBUG", raising=False)
    ending(monkeypatch, error, result)
    assert main(["doctor"]) == code
    err = capsys.readouterr().err
    if isinstance(error, ZeroDivisionError):
        assert err == "ringlog: ZeroDivisionError: a b\\x1b; RINGLOG_DEBUG=1 shows where\n"
    else:
        assert err.strip() == ""


def test_a_traceback_is_shown_for_debugging_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLOG_DEBUG", "1")
    ending(monkeypatch, ZeroDivisionError(), None)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


BUFFERED = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
BUFFERING = pytest.mark.parametrize("shell", [BUFFERED, {**BUFFERED, "PYTHONUNBUFFERED": "1"}])


def run_into(stdout: int, shell: dict[str, str], *arguments: str) -> tuple[int, bytes]:
    """Run `ringlog` with its output going there: exit code and standard error."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=stdout, stderr=subprocess.PIPE, check=False, cwd=ROOT, timeout=60, env=shell,
    )  # fmt: skip
    return process.returncode, process.stderr


@BUFFERING
def test_a_reader_that_has_gone_is_no_failure(tmp_path: Path, shell: dict[str, str]) -> None:
    (tmp_path / ("0" * 20 + ".log")).write_bytes(b"")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        for typed in (["--help"], ["topic", "--help"], ["log", "dump", str(tmp_path)]):
            assert run_into(writing, shell, *typed) == (Exit.DONE, b"")
    finally:
        os.close(writing)


@BUFFERING
def test_a_full_disk_behind_standard_output_is_a_failure(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    (tmp_path / ("0" * 20 + ".log")).write_bytes(b"")
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for typed in (["--help"], ["log", "dump", str(tmp_path)]):
            code, err = run_into(full, shell, *typed)
            assert (code, err) == (Exit.FAILED, b"ringlog: No space left on device\n")
    finally:
        os.close(full)


@BUFFERING
def test_output_comes_before_the_line_on_what_failed(tmp_path: Path, shell: dict[str, str]) -> None:
    path = tmp_path / "both"
    program = (
        "import sys, click; from ringlog.tools import cli\n"
        "@click.command()\n"
        "def command(): sys.stdout.write('output\\n'); raise ValueError('why')\n"
        "import ringlog.tools.cli.doctor as doctor; doctor.command = command\n"
        "sys.exit(cli.main(['doctor']))"
    )
    with path.open("wb") as both:
        process = subprocess.run(
            [sys.executable, "-c", program],
            stdout=both, stderr=both, check=False, cwd=ROOT, timeout=60, env=shell,
        )  # fmt: skip
    assert process.returncode == Exit.FAILED
    assert path.read_text().startswith("output\nringlog: ValueError: why")


def test_commands_are_loaded_when_called_only() -> None:
    code = "import sys, ringlog.tools.cli; print('ringlog.broker' in str(sorted(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout == "False\n"
    assert cli.cli.list_commands(click.Context(cli.cli)) == list(COMMANDS)


def test_a_warning_of_the_client_reaches_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = logging.getLogger("ringlog.client")
    monkeypatch.setattr(client, "handlers", [])

    @click.command(name="doctor")
    def command() -> None:
        client.warning("offsets %d to %d were deleted", 3, 5)

    monkeypatch.setattr("ringlog.tools.cli.doctor.command", command)
    assert main(["doctor"]) == Exit.DONE
    assert capsys.readouterr().err == "ringlog: offsets 3 to 5 were deleted\n"
