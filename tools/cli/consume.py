"""`ringlog consume`: records of a topic to standard output.

Owns where it starts, when it ends and how a record is printed. Must not know fetching.

Invariants:
    CO1 Unless standard output is a terminal, `--format value` writes each value as it is and one
        delimiter behind it.
    CO2 `--until-end` ends when each partition's position reaches the log end it had at the
        start; with nothing to read, at once.
"""

import sys
from collections.abc import Callable

import click

from ringlog.client import Consumer, Record, TopicPartition
from ringlog.client.errors import InvalidArgument
from ringlog.tools.cli.exits import Exit
from ringlog.tools.cli.json_records import json_record
from ringlog.tools.cli.options import BOOTSTRAP_TIMEOUT_MS, bootstrap_option, bytes_from
from ringlog.tools.cli.output import bar, json_line, visible_bytes

POLL_S = 0.5
POLL_RECORDS = 500

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
        auto_offset_reset="earliest" if from_beginning or offset is not None else "latest",
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


def _copy(consumer: Consumer, write: Write, max_records: int | None, *, until_end: bool) -> None:
    if not until_end:
        _follow(consumer, write, max_records)
        return
    ends = consumer.end_offsets(consumer.assignment)
    left = sum(max(0, end - consumer.position(*one)) for one, end in ends.items())
    most = left if max_records is None else max_records
    # A terminal shows the records themselves.
    with bar("reading", None if sys.stdout.isatty() else min(left, most)) as advance:
        _drop_finished(consumer, ends, list(ends))
        while ends and most:
            written = 0
            records = consumer.poll(POLL_S, min(POLL_RECORDS, most))
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


def _follow(consumer: Consumer, write: Write, max_records: int | None) -> None:
    written = 0
    while max_records is None or written < max_records:
        left = POLL_RECORDS if max_records is None else min(POLL_RECORDS, max_records - written)
        for record in consumer.poll(POLL_S, left):
            sys.stdout.buffer.write(write(record))
            written += 1
        # Somebody watches: show what came before waiting for more.
        sys.stdout.buffer.flush()


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
