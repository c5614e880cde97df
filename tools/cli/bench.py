"""`ringlog bench`: how fast, beside a raw loop in the same run.

Owns arguments and what is printed. The methods are in `tools.bench`.
"""

import platform
from pathlib import Path

import click
import msgspec
import zmq

from ringlog import __version__
from ringlog.tools.bench import latency as latency_bench
from ringlog.tools.bench import produce as produce_bench
from ringlog.tools.bench.spread import Spread
from ringlog.tools.cli.options import json_option
from ringlog.tools.cli.output import print_json, print_table

_data_dir = click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the data of the run goes, and is removed after it. Default: the temporary folder.",
)


@click.group(name="bench")
def command() -> None:
    """Measure beside a raw loop, in turns; quote the ratios, machines differ."""


@command.command()
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Records per run.",
)
@click.option(
    "--value-bytes",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Size of each value.",
)
@click.option(
    "--batch-records",
    type=click.IntRange(1, 65_536),
    default=1024,
    show_default=True,
    help="Records per batch.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Runs of each side, in turns; medians count.",
)
@_data_dir
@json_option
def produce(
    records: int,
    value_bytes: int,
    batch_records: int,
    runs: int,
    data_dir: Path | None,
    *,
    as_json: bool,
) -> None:
    """BatchProducer, deliveries kept, flushed before ack, beside the raw loop."""
    figures = produce_bench.measure(
        data_dir,
        records=records,
        value_bytes=value_bytes,
        batch_records=batch_records,
        runs=runs,
    )
    if as_json:
        print_json({**_versions(), **msgspec.to_builtins(figures)})
        return
    print_table(
        ("", "lowest", "median", "highest"),
        [
            ("ringlog, records/s", *_whole(figures.ringlog)),
            ("raw loop, records/s", *_whole(figures.raw_loop)),
            ("ratio, pair by pair", *(f"{value:.2f}" for value in figures.ratio)),
        ],
        title=f"{figures.runs} runs of {figures.records:,} records of {value_bytes} bytes, "
        f"batches of {batch_records}, one partition",
    )


@command.command()
@click.option(
    "--blocks",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Blocks of each side, in turns.",
)
@_data_dir
@json_option
def latency(blocks: int, data_dir: Path | None, *, as_json: bool) -> None:
    """A lone send().result(), flushed, beside a raw round trip plus fdatasync."""
    figures = latency_bench.measure(data_dir, blocks=blocks)
    if as_json:
        print_json({**_versions(), **msgspec.to_builtins(figures)})
        return
    print_table(
        ("", "lowest", "median", "highest"),
        [
            ("ringlog p50, us", *_whole(figures.p50)),
            ("ringlog p99, us", *_whole(figures.p99)),
            ("raw round trip p50, us", *_whole(figures.round_trip_p50)),
            ("fdatasync p50, us", *_whole(figures.fdatasync_p50)),
            ("ratio of p50 to the sum", *(f"{value:.2f}" for value in figures.ratio)),
        ],
        title=f"{figures.records} lone records, {blocks} blocks of {latency_bench.BLOCK}",
    )


def _whole(values: Spread) -> tuple[str, ...]:
    return tuple(f"{value:,.0f}" for value in values)


def _versions() -> dict[str, str]:
    return {
        "ringlog_version": __version__,
        "python": platform.python_version(),
        "libzmq": zmq.zmq_version(),
        "kernel": platform.release(),
    }
