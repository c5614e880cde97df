"""What commands print: tables for people, JSON for programs, messages and bars elsewhere.

Owns the one rule about untrusted text: control and ANSI bytes reach a terminal escaped, and
anything else raw. Must not know brokers.

Invariants:
    O1  Standard output carries results only; progress, counts and errors go to standard error.
    O2  With `--json` standard output is one JSON value (or one per line), nothing else.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

T = TypeVar("T")


def print_json(value: object) -> None:
    """One JSON value on standard output, as one line."""
    sys.stdout.write(json_line(value))


def json_line(value: object) -> str:
    """`value` as a line. For a terminal in ASCII: JSON alone lets some control codes through."""
    return json.dumps(value, ensure_ascii=sys.stdout.isatty()) + "\n"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table on standard output. Cells are text, never markup."""
    table = Table(title=Text(visible(title)) if title else None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(str(cell))) for cell in row))
    Console(highlight=False).print(table)


def say(text: str) -> None:
    """A line for people, on standard error."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


@contextmanager
def bar(text: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """A bar on standard error where that is a terminal and `total` is known.

    Yields what is to be called with each step forward.
    """
    if total is None or not sys.stderr.isatty():
        yield _no_step
        return
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(text, total=total)
        yield lambda count: shown.advance(task, count)


def progress(items: Sequence[T], text: str) -> Iterator[T]:
    """Pass `items` on, with a bar."""
    with bar(text, len(items)) as advance:
        for item in items:
            yield item
            advance(1)


def _no_step(count: int) -> None:
    """A step where no bar is shown."""


class _Lines(logging.Handler):
    """Log records as lines for people."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"ringlog: {' '.join(record.getMessage().split())}")


_CLIENT = logging.getLogger("ringlog.client")
_lines = _Lines(logging.WARNING)


def show_warnings() -> None:
    """Let warnings of the client library reach people, one line each, escaped."""
    _CLIENT.addHandler(_lines)  # a second time does nothing


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep them back: the command itself says how each record ended."""
    before = _CLIENT.level
    _CLIENT.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _CLIENT.setLevel(before)


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
