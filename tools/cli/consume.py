"""`ringlog consume`: records of a topic to standard output.

Owns where it starts, when it ends and how a record is printed. Must not know fetching.

Invariants:
    CO1 Unless standard output is a terminal, `--format value` writes each value as it is and one
        delimiter behind it.
    CO2 `--until-end` ends when each partition's position reaches the log end it had at the
        start; with nothing to read, at once.
    CO3 A partition that cannot go on ends the command with its error, after what the others hold.
"""

import sys
from collections.abc import Callable

import click

from ringlog.client import Consumer, Record, TopicPartition
from ringlog.client.consumer_config import OffsetReset
from ringlog.client.errors import BrokerError, CorruptRecord, InvalidArgument, RinglogError
from ringlog.tools.cli.exits import Exit
from ringlog.tools.cli.json_records import json_record
from ringlog.tools.cli.options import BOOTSTRAP_TIMEOUT_MS, bootstrap_option, bytes_from
from ringlog.tools.cli.output import bar, json_line, visible_bytes

POLL_S = 0.5
POLL_RECORDS = 500

ONE_PARTITION = (BrokerError, CorruptRecord)
"""What one partition may raise while the others go on."""

Write = Callable[[Record], bytes]


@click.command(name="consume")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start at the earliest offset, not the end.")
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition only.")
@click.option("--offset", type=click.IntRange(min=0), help="Start there; needs --partition.")
@click.option("--until-end", is_flag=True, help="End at the log end there was at the start.")
@click.option("--max-records", type=click.IntRange(min=1), help="End after so many.")
@click.option("--print-key", is_flag=True, help="Print the key and --key-separator before a value.")
@click.option("--key-separator", default=":", show_default=True, help="Goes behind a key.")
@click.option("--delimiter", default="\\n", show_default=True, help="What ends a record.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["value", "json"]),
    default="value",
    show_default=True,
    help="Values as they are, or a JSON object a line.",
)
@bootstrap_option
def command(  # noqa: PLR0913  one parameter per option
    topic: str,
    partition: int | None,
    offset: int | None,
    max_records: int | None,
    key_separator: str,
    delimiter: str,
    form: str,
    bootstrap_servers: str | None,
    *,
    from_beginning: bool,
    until_end: bool,
    print_key: bool,
) -> int:
    """Write the records of TOPIC to standard output, bytes kept.

    Example: ringlog consume orders --from-beginning --until-end > orders.log
    """
    if offset is not None and (partition is None or from_beginning):
        raise InvalidArgument(
            "--offset needs --partition and excludes --from-beginning",
            hint="for example --partition 0 --offset 100",
        )
    end = bytes_from(delimiter)
    separator = bytes_from(key_separator, "--key-separator") if print_key else None
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        client_id="ringlog-consume",
        auto_offset_reset=_reset(offset, from_beginning=from_beginning),
        bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
    ) as consumer:
        if partition is None:
            consumer.subscribe(topic)
        else:
            # Not by `subscribe`: a damaged partition beside it is no hindrance.
            consumer.assign([TopicPartition(topic, partition)])
            if offset is not None:
                consumer.seek(topic, partition, offset)
        write = _json_writer() if form == "json" else _value_writer(end, separator)
        _copy(consumer, write, max_records, until_end=until_end)
    return Exit.DONE


def _reset(offset: int | None, *, from_beginning: bool) -> OffsetReset:
    if offset is not None:
        # Whoever names an offset means that one.
        return "none"
    return "earliest" if from_beginning else "latest"


def _copy(consumer: Consumer, write: Write, max_records: int | None, *, until_end: bool) -> None:
    trouble: list[RinglogError] = []
    written = 0 if until_end else _follow(consumer, write, max_records, trouble)
    if until_end or trouble:
        most = None if max_records is None else max_records - written
        _read_to_end(consumer, write, most, trouble)
    if trouble:
        raise trouble[0]


def _read_to_end(
    consumer: Consumer, write: Write, max_records: int | None, trouble: list[RinglogError]
) -> None:
    ends = _ends(consumer, trouble)
    left = sum(max(0, end - consumer.position(*one)) for one, end in ends.items())
    most = left if max_records is None else max_records
    # A terminal shows the records themselves.
    with bar("reading", None if sys.stdout.isatty() else min(left, most)) as advance:
        # An offset behind the end is an error that `poll` raises.
        _drop_finished(consumer, ends, [one for one in ends if _is_within(consumer, one, ends)])
        while ends and (max_records is None or most > 0):
            written = 0
            room = POLL_RECORDS if max_records is None else min(POLL_RECORDS, most)
            records = _poll(consumer, room, trouble)
            for record in records:
                limit = ends.get(TopicPartition(record.topic, record.partition))
                if limit is not None and record.offset < limit:
                    sys.stdout.buffer.write(write(record))
                    written += 1
            advance(written)
            most -= written
            read = {TopicPartition(record.topic, record.partition) for record in records}
            # After a silence all are looked at: a log may have been cut below its end.
            _drop_finished(consumer, ends, list(read & ends.keys() if read else ends))
            for halted in consumer.health().halted if trouble else ():
                ends.pop(halted, None)


def _follow(
    consumer: Consumer, write: Write, max_records: int | None, trouble: list[RinglogError]
) -> int:
    """Write what comes until it is enough or a partition is in trouble; returns how many."""
    written = 0
    while not trouble and (max_records is None or written < max_records):
        left = POLL_RECORDS if max_records is None else min(POLL_RECORDS, max_records - written)
        for record in _poll(consumer, left, trouble):
            sys.stdout.buffer.write(write(record))
            written += 1
        # Somebody watches: show what came before waiting for more.
        sys.stdout.buffer.flush()
    return written


def _poll(consumer: Consumer, most: int, trouble: list[RinglogError]) -> list[Record]:
    try:
        return consumer.poll(POLL_S, most)
    except ONE_PARTITION as error:
        trouble.append(error)
        return []


def _ends(consumer: Consumer, trouble: list[RinglogError]) -> dict[TopicPartition, int]:
    """The end of each partition that has one to tell."""
    partitions = consumer.assignment
    try:
        return consumer.end_offsets(partitions)
    except ONE_PARTITION:
        # One of them; the others are asked one by one.
        ends: dict[TopicPartition, int] = {}
        for partition in sorted(partitions):
            try:
                ends.update(consumer.end_offsets([partition]))
            except ONE_PARTITION as error:
                trouble.append(error)
        return ends


def _is_within(
    consumer: Consumer, partition: TopicPartition, ends: dict[TopicPartition, int]
) -> bool:
    return consumer.position(*partition) <= ends[partition]


def _drop_finished(
    consumer: Consumer, ends: dict[TopicPartition, int], looked_at: list[TopicPartition]
) -> None:
    """Forget partitions that reached their end."""
    for partition in looked_at:
        if consumer.position(*partition) >= ends[partition]:
            consumer.pause(partition)
            del ends[partition]


def _value_writer(end: bytes, separator: bytes | None) -> Write:
    shown: Callable[[bytes], bytes] = visible_bytes if sys.stdout.isatty() else bytes

    def write(record: Record) -> bytes:
        value = shown(record.value or b"")
        if separator is None:
            return value + end
        return shown(record.key or b"") + separator + value + end

    return write


def _json_writer() -> Write:
    def write(record: Record) -> bytes:
        row: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            **json_record(record.timestamp, record.key, record.value, record.headers),
        }
        return json_line(row).encode()

    return write
