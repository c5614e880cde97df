"""What commands print: tables for people, JSON for programs, messages on standard error.

Owns the one rule about untrusted text: control and ANSI bytes reach a terminal escaped, and
anything else raw. Must not know brokers.

Invariants:
    O1  Standard output carries results only; progress, counts and errors go to standard error.
    O2  With `--json` standard output is one JSON value (or one per line), nothing else.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

T = TypeVar("T")


def print_json(value: object) -> None:
    """One JSON value on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table on standard output. Cells are text, never markup."""
    table = Table(title=Text(title) if title else None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(str(cell))) for cell in row))
    Console(highlight=False).print(table)


def say(text: str) -> None:
    """A line for people, on standard error."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def progress(items: Iterable[T], text: str, total: int | None = None) -> Iterator[T]:
    """Pass `items` on, with a bar on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    yield from track(items, text, total=total, console=Console(stderr=True), transient=True)


def visible(text: str) -> str:
    """`text` with control characters (ANSI sequences among them) spelled out."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def visible_bytes(data: bytes) -> bytes:
    r"""Record bytes for a terminal: UTF-8 text with control characters spelled out."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(
        character if character.isprintable() or character == "\t" else repr(character)[1:-1]
        for character in text
    ).encode()
