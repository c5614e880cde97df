"""Options that many commands share.

Owns their names, defaults and help texts. Must not know what a command does with them.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import click

from ringlog.client.errors import InvalidArgument

P = ParamSpec("P")
R = TypeVar("R")

_ESCAPE = re.compile(r"(\\(?:x[0-9A-Fa-f]{2}|.|$))", re.DOTALL)
_ESCAPES = {r"\n": b"\n", r"\r": b"\r", r"\t": b"\t", r"\0": b"\0", "\\\\": b"\\"}

BOOTSTRAP_TIMEOUT_MS = 5_000
"""How long a command looks for a broker before it says that there is none."""


def bootstrap_option(command: Callable[P, R]) -> Callable[P, R]:
    """`-b/--bootstrap-servers`; without it the environment, then 127.0.0.1:5555."""
    return click.option(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT[,...]",
        help="Brokers to ask first. Default: $RINGLOG_BOOTSTRAP_SERVERS, then 127.0.0.1:5555.",
    )(command)


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def settings_from(pairs: Sequence[str]) -> dict[str, str]:
    """`("retention.ms=1", ...)` as a mapping. Raises InvalidArgument."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidArgument(
                f"--config {pair!r} is not NAME=VALUE",
                hint="for example --config retention.ms=60000",
            )
        if name in settings:
            raise InvalidArgument(
                f"--config gives {name} twice: {settings[name]!r} and {value!r}",
                hint="give each setting once",
            )
        settings[name] = value
    return settings


def bytes_from(text: str, name: str = "--delimiter") -> bytes:
    r"""Bytes of a separator typed by a person: `\n \r \t \0 \\ \xNN`, the rest as typed.

    Raises:
        InvalidArgument: nothing, or another escape.
    """
    pieces = _ESCAPE.split(text)
    # `split` gives plain text and escapes by turns; the shell's own bytes come back unchanged.
    data = b"".join(
        _escaped(piece, name) if place % 2 else os.fsencode(piece)
        for place, piece in enumerate(pieces)
    )
    if not data:
        raise InvalidArgument(f"{name} is empty", hint=r"for example '\n' or ':'")
    return data


def _escaped(escape: str, name: str) -> bytes:
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if len(escape) == 4:
        return bytes.fromhex(escape[2:])
    raise InvalidArgument(
        f"{name}: {escape!r} is no escape",
        hint=r"known are \n \r \t \0 \xNN, and \\ for a backslash",
    )
