"""`ringlog produce`: a file or standard input into a topic, one record per line.

Owns the bookkeeping of what was stored, so that the end can say where to resume. Must not know
batches: `BatchProducer` does.

Invariants:
    PR1 Exit 0 only when every record of the input was acknowledged (with --acks 0: sent).
    PR2 When it ends early, the message gives the number of the first record that is not known
        to be stored, whether it may be, and how many behind it are.
    PR3 A failure is noticed with the next record, not at the end of the input.
"""

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

import click

from ringlog.client import BatchProducer, Delivery
from ringlog.client.errors import (
    DeadlineExceeded,
    DeliveryUnknown,
    InvalidArgument,
    RinglogError,
)
from ringlog.client.partitioners import PartitionerName
from ringlog.client.producer_config import Acks
from ringlog.tools.cli.exits import Exit, exit_of, one_line
from ringlog.tools.cli.lines import records_of
from ringlog.tools.cli.options import BOOTSTRAP_TIMEOUT_MS, bootstrap_option, bytes_from
from ringlog.tools.cli.output import bar, say, without_warnings

WINDOW = 200_000
"""Deliveries looked after at once."""

MAX_RECORD_BYTES = 64 << 20

INTERRUPTED_TIMEOUT_S = 5.0
"""Longest time that Ctrl-C leaves to what is on its way."""


class Ledger:
    """What became of the records, in input order."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored = 0
        """Records at the begin of the input that are known to be stored, without a gap."""
        self.stored_behind = 0
        """Records behind the first that failed, known to be stored; complete after `finish`."""
        self.failed: RinglogError | None = None
        """What became of the first record that failed."""
        self.unknown = False
        """Whether a record that is not counted as stored may be."""
        self._open: deque[Delivery] = deque()

    def add(self, delivery: Delivery) -> None:
        """One more record was taken; account for those that ended, so that a failure shows."""
        self.sent += 1
        waiting = self._open
        waiting.append(delivery)
        while waiting and (len(waiting) >= WINDOW or waiting[0].done()):
            self._account(waiting.popleft())

    def finish(self) -> None:
        """Wait for all that is open. May be called again after an interrupt."""
        while self._open:
            self._account(self._open[0])
            self._open.popleft()

    def _account(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            if self.failed is None:
                self.stored += 1
            else:
                self.stored_behind += 1
            return
        self.unknown = self.unknown or isinstance(error, DeliveryUnknown)
        if self.failed is None:
            self.failed = error


ACKS: dict[str, Acks] = {"all": "all", "1": 1, "0": 0}


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
@click.option(
    "--partition", type=click.IntRange(min=0), help="Default: by key, without one by batch."
)
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
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
    compression: Literal["none", "lz4"],
    partitioner: PartitionerName,
    partition: int | None,
    acks: str,
    bootstrap_servers: str | None,
    *,
    quiet: bool,
) -> int:
    """Send each line of a file or of standard input as one record; bytes are kept.

    Example: ringlog produce orders --file orders.log --key-separator :
    """
    end = bytes_from(delimiter)
    separator = None if key_separator is None else bytes_from(key_separator, "--key-separator")
    ledger = Ledger()
    start = time.monotonic()
    problem: RinglogError | KeyboardInterrupt | None = None
    with (
        without_warnings(),
        _opened(path) as stream,
        BatchProducer(
            bootstrap_servers,
            client_id="ringlog-produce",
            acks=ACKS[acks],
            compression=None if compression == "none" else compression,
            partitioner=partitioner,
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
        ) as producer,
    ):
        try:
            with bar("sending", _size_of(stream)) as advance:
                for line in records_of(stream, end, MAX_RECORD_BYTES, advance):
                    key, value = _split(line, separator, ledger.sent + 1)
                    ledger.add(producer.send(topic, value, key=key, partition=partition))
                    if ledger.failed is not None:
                        break
                ledger.finish()
        except RinglogError as error:
            problem = error
            ledger.finish()
        except KeyboardInterrupt as error:
            problem = error
            # What could not be sent in time has ended then, too: with an error.
            with suppress(DeadlineExceeded):
                producer.close(INTERRUPTED_TIMEOUT_S)
            ledger.finish()
    return _report(ledger, problem, time.monotonic() - start, topic, quiet=quiet)


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        if sys.stdin is None:
            raise InvalidArgument(
                "standard input is closed", hint="name a file, or pipe records in"
            )
        yield sys.stdin.buffer
        return
    with path.open("rb") as stream:
        yield stream


def _size_of(stream: BinaryIO) -> int | None:
    """Bytes of a regular file, None for a pipe or a terminal."""
    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


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
    interrupted = isinstance(problem, KeyboardInterrupt)
    error = problem if interrupted else ledger.failed or problem
    if error is None:
        if not quiet:
            rate = ledger.stored / seconds if seconds else 0.0
            say(f"{ledger.stored} records to {topic} in {seconds:.2f} s ({rate:,.0f}/s)")
        return Exit.DONE
    if not ledger.sent and not interrupted:
        raise error
    say(f"ringlog produce: {'interrupted' if interrupted else one_line(error)}; {_where(ledger)}")
    if interrupted:
        return Exit.INTERRUPTED
    return Exit.UNKNOWN if ledger.unknown else exit_of(error)


def _where(ledger: Ledger) -> str:
    """Where to resume, and what would be stored twice then (PR2)."""
    text = f"the first {ledger.stored} records are stored; resume at record {ledger.stored + 1}"
    if ledger.unknown:
        text += ", which may be stored already, as may those behind it"
    if ledger.stored_behind:
        text += f"; {ledger.stored_behind} behind it are stored too and would be stored again"
    return text
