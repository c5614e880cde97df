"""cli: the `ringlog` command.

Owns the list of commands and the end of every one of them: exit code and error line. A command
lives in the module of its name and is loaded when it is called.

Invariants:
    CL1 Only commands that exist are listed.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ringlog import __version__
from ringlog.client.errors import InvalidArgument
from ringlog.tools.cli.exits import Exit, exit_of, one_line
from ringlog.tools.cli.output import show_warnings

COMMANDS = {
    "broker": "broker",
    "topic": "topic",
    "produce": "produce",
    "consume": "consume",
    "log": "log",
    "doctor": "doctor",
    "bench": "bench",
}
"""Command name -> module of this package, which holds a click command named `command`."""


class _Lazy(click.Group):
    """A group whose commands are imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ringlog.tools.cli.{COMMANDS[cmd_name]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ringlog")
@click.pass_context
def cli(context: click.Context) -> None:
    """A log-structured message broker: durable by default, replayable, honest."""
    if context.invoked_subcommand != "broker":  # which has a log of its own
        show_warnings()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code. Console scripts pass it to `sys.exit`."""
    if sys.stderr is None:  # closed by whoever started us: nobody wants to be told
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  open to the end
    code: int = Exit.DONE
    problem: BaseException | None = None
    try:
        code = _run(arguments)
    # The end of every command: any error becomes one line and a code.
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("RINGLOG_DEBUG") and not isinstance(error, KeyboardInterrupt):
            raise
        problem = error
    unwritten = _flush_stdout()  # first: what was written comes before the line on what failed
    problem = problem or unwritten
    if problem is None or isinstance(problem, BrokenPipeError):
        # The reader has seen enough (`| head`): nothing to report, nobody to report to.
        return code
    if not isinstance(problem, KeyboardInterrupt):
        sys.stderr.write(f"ringlog: {one_line(problem)}\n")
    return exit_of(problem)


def _run(arguments: Sequence[str] | None) -> int:
    if sys.stdout is None:
        raise InvalidArgument(
            "standard output is closed", hint="send it to a file, or to /dev/null"
        )
    try:
        code = cli.main(args=arguments, prog_name="ringlog", standalone_mode=False)
    except click.exceptions.Abort:
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except SystemExit:
        # So click ends when it meets a closed pipe.
        raise BrokenPipeError from None
    return code if isinstance(code, int) else Exit.DONE


def _flush_stdout() -> OSError | None:
    """Write what waits. What cannot be written is dropped: the interpreter would try it again."""
    stdout = sys.__stdout__
    if stdout is None:
        return None
    try:
        stdout.flush()
    except OSError as error:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stdout.fileno())
        os.close(nothing)
        return error
    return None
