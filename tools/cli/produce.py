"""`ringlog produce`: a file or standard input into a topic, one record per line.

Owns the bookkeeping of what was stored, so that the end can say where to resume. Must not know
batches: `BatchProducer` does.

Invariants:
    PR1 Exit 0 only when every record of the input was acknowledged (with --acks 0: sent).
    PR2 When it ends early, the message gives the number of the first record that is not known
        to be stored, and whether it may be.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from ringlog.client import BatchProducer, Delivery
from ringlog.client.errors import DeliveryUnknown, InvalidArgument, RinglogError
from ringlog.tools.cli.exits import Exit, exit_of, one_line
from ringlog.tools.cli.lines import records_of
from ringlog.tools.cli.options import BOOTSTRAP_TIMEOUT_MS, bootstrap_option, delimiter_from
from ringlog.tools.cli.output import say

WINDOW = 200_000
"""Deliveries looked after at once."""

MAX_RECORD_BYTES = 64 << 20


class Ledger:
    """Which records are known to be stored, in input order."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored = 0
        self.failed: RinglogError | None = None
        """First error; what was sent behind it is looked at no more."""
        self.unknown = False
        self._open: deque[Delivery] = deque()

    def add(self, delivery: Delivery) -> None:
        """One more record was taken."""
        self.sent += 1
        self._open.append(delivery)
        if len(self._open) >= WINDOW:
            self.settle(everything=False)

    def settle(self, *, everything: bool) -> None:
        """Account for ended deliveries; with `everything` wait for all, else for the oldest."""
        waiting = self._open
        while waiting and self.failed is None:
            if not everything and len(waiting) < WINDOW and not waiting[0].done():
                return
            error = waiting.popleft().exception()
            if error is None:
                self.stored += 1
            else:
                self.failed = error
        # One unknown outcome among the rest makes the whole rest unknown.
        self.unknown = any(
            isinstance(error, DeliveryUnknown)
            for error in (self.failed, *(one.exception() for one in waiting if everything))
        )


@click.command(name="produce")
@click.argument("topic")
@click.option("--file", "path", type=click.Path(path_type=Path), help="Default: standard input.")
@click.option("--delimiter", default="\\n", show_default=True, help="What ends a record.")
@click.option("--key-separator", help="The key of a line ends at the first one.")
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4"]),
    default="none",
    show_default=True,
    help="How batches travel and are stored.",
)
@click.option(
    "--partitioner",
    type=click.Choice(["crc32", "murmur2", "md5"]),
    default="crc32",
    show_default=True,
    help="How a key chooses its partition: as librdkafka, as Java, or by MD5.",
)
@click.option("--partition", type=int, help="Default: by key, without one by batch.")
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Acknowledged when: flushed on a majority, flushed on the leader, never.",
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
@bootstrap_option
def command(  # noqa: PLR0913  one parameter per option
    topic: str,
    path: Path | None,
    delimiter: str,
    key_separator: str | None,
    compression: str,
    partitioner: str,
    partition: int | None,
    acks: str,
    bootstrap_servers: str | None,
    *,
    quiet: bool,
) -> int:
    """Send each line of a file or of standard input as one record; bytes are kept.

    Example: ringlog produce orders --file orders.log --key-separator :
    """
    end = delimiter_from(delimiter)
    separator = None if key_separator is None else delimiter_from(key_separator, "--key-separator")
    ledger = Ledger()
    start = time.monotonic()
    problem: RinglogError | KeyboardInterrupt | None = None
    with (
        _opened(path) as stream,
        BatchProducer(
            bootstrap_servers,
            client_id="ringlog-produce",
            acks=acks if acks == "all" else int(acks),
            compression=None if compression == "none" else compression,
            partitioner=partitioner,
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
        ) as producer,
    ):
        try:
            for line in records_of(stream, end, MAX_RECORD_BYTES):
                key, value = _split(line, separator, ledger.sent + 1)
                ledger.add(producer.send(topic, value, key=key, partition=partition))
                if ledger.failed is not None:
                    break
        except (RinglogError, KeyboardInterrupt) as error:
            problem = error
        if not isinstance(problem, KeyboardInterrupt):
            ledger.settle(everything=True)
    return _report(ledger, problem, time.monotonic() - start, topic, quiet=quiet)


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdin.buffer
        return
    with path.open("rb") as stream:
        yield stream


def _split(line: bytes, separator: bytes | None, number: int) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidArgument(
            f"record {number} of the input has no {separator!r}",
            hint="every record needs a key with --key-separator",
        )
    return key, value


def _report(
    ledger: Ledger,
    problem: RinglogError | KeyboardInterrupt | None,
    seconds: float,
    topic: str,
    *,
    quiet: bool,
) -> int:
    error = ledger.failed or problem
    if error is None:
        if not quiet:
            rate = ledger.stored / seconds if seconds else 0.0
            say(f"{ledger.stored} records to {topic} in {seconds:.2f} s ({rate:,.0f}/s)")
        return Exit.DONE
    resume = f"{ledger.stored} records are stored; resume at record {ledger.stored + 1}"
    if isinstance(error, KeyboardInterrupt):
        say(f"ringlog produce: interrupted; {resume}, which may be stored already")
        return Exit.INTERRUPTED
    doubt = ", which may be stored already" if ledger.unknown else ""
    say(f"ringlog produce: {one_line(error)}; {resume}{doubt}")
    return Exit.UNKNOWN if ledger.unknown else exit_of(error)
