"""Every command and option of `ringlog` says what it does."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from ringlog.tools.cli import cli


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below `command`, groups included, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from commands(found, (*path, name))


ALL = dict(commands(cli))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_ends_well_and_says_what_the_command_does(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage:" in shown.output
    text = (ALL[path].help or "").strip()
    assert len(text) > 10, f"ringlog {' '.join(path)} has no help"


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_says_what_it_does(path: tuple[str, ...]) -> None:
    silent = [
        option.opts[0]
        for option in ALL[path].params
        if isinstance(option, click.Option) and not (option.help or "").strip()
    ]
    assert silent == []


def test_whoever_talks_to_a_broker_takes_its_address() -> None:
    for path in [("topic", "list"), ("topic", "create"), ("produce",), ("consume",)]:
        options = {name for option in ALL[path].params for name in option.opts}
        assert {"-b", "--bootstrap-servers"} <= options, path
