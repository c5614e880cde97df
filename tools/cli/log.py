"""`ringlog log`: look into log files, check a data directory, mend a damaged one.

Owns arguments and what is printed. Must not know formats: `segment_dump` and `log_check` do.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from ringlog.storage.errors import CorruptBatch, StorageError
from ringlog.storage.files import Directory
from ringlog.storage.findings import Finding, PartitionVerdict, Severity
from ringlog.tools.cli import log_check, segment_dump
from ringlog.tools.cli.exits import Exit
from ringlog.tools.cli.options import json_option
from ringlog.tools.cli.output import print_json, progress, say, visible


@click.group(name="log")
def command() -> None:
    """Look into log files, check a data directory, mend a damaged one."""


@command.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--records", is_flag=True, help="Show records, not batches.")
@json_option
def dump(path: Path, *, records: bool, as_json: bool) -> int:
    """Show the batches of a segment, or of all segments of a partition or data directory.

    Reads only; a broker may be running, then the last batch may be half written. With --json
    one object per line.

    Example: ringlog log dump ringlog-data/orders-0 --records
    """
    damaged = False
    for file in segment_dump.segment_files(path):
        try:
            for line in _lines_of(file, records=records, as_json=as_json):
                sys.stdout.write(f"{line}\n")
        except StorageError as error:
            sys.stdout.flush()
            place = f" at byte {error.position}" if isinstance(error, CorruptBatch) else ""
            say(f"ringlog log dump: {file}{place}: {error}")
            damaged = True
    return Exit.DAMAGED if damaged else Exit.DONE


def _lines_of(file: Path, *, records: bool, as_json: bool) -> Iterable[str]:
    if not as_json:
        yield visible(str(file))
        if not records:
            yield segment_dump.BATCH_TITLE
    for batch in segment_dump.batches_of(file):
        if not records:
            row = (
                segment_dump.batch_json(file, batch) if as_json else segment_dump.batch_line(batch)
            )
            yield row
            continue
        for record in segment_dump.records_of_batch(batch):
            if as_json:
                yield segment_dump.record_json(file, record)
            else:
                yield segment_dump.record_line(record)


@command.command()
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option("--repair", is_flag=True, help="Cut damaged partitions back to what is whole.")
@click.option(
    "--dry-run", is_flag=True, help="With --repair: say what it would do, change nothing."
)
@json_option
def verify(data_dir: Path, *, repair: bool, dry_run: bool, as_json: bool) -> int:
    """Read every byte of a data directory that no broker has open, and say what is wrong.

    A repair keeps a partition up to its first damage and drops all behind it; what it drops is
    copied first. Exit code 6: damage was found, or is left.

    Example: ringlog log verify ringlog-data --repair --dry-run
    """
    if dry_run and not repair:
        raise click.UsageError("--dry-run belongs to --repair")
    with log_check.claimed(data_dir) as root:
        verdicts = _verify_all(root)
        if not as_json:
            _show(verdicts)
        plans: list[dict[str, object]] = []
        if repair and not dry_run and any(verdict.is_damaged for verdict in verdicts):
            log_check.check_owner(data_dir)
        if repair:
            plans = _repair_all(root, verdicts, dry_run=dry_run, quiet=as_json)
    damaged = any(verdict.is_damaged for verdict in verdicts)
    if as_json:
        rows = [_verdict_json(verdict) for verdict in verdicts]
        print_json({"damaged": damaged, "verdicts": rows, "repairs": plans})
    return Exit.DAMAGED if damaged else Exit.DONE


def _verify_all(root: Directory) -> list[PartitionVerdict]:
    """Verdict on the directory itself, then one for each partition."""
    marks = log_check.open_marks(root)
    names = log_check.partition_names(root)
    return [
        log_check.verify_root(root),
        *(log_check.verdict_of(root, name, marks) for name in progress(names, "verifying")),
    ]


def _repair_all(
    root: Directory, verdicts: list[PartitionVerdict], *, dry_run: bool, quiet: bool
) -> list[dict[str, object]]:
    """Plan, and unless it is a dry run mend; repaired partitions get their new verdict."""
    plans: list[dict[str, object]] = []
    marks = log_check.open_marks(root)
    for place, verdict in enumerate(verdicts[1:], start=1):
        name = Path(verdict.path).name
        plan = log_check.plan_of(root, name, marks) if verdict.is_damaged else None
        if plan is None:
            continue
        done = not dry_run and not plan.refusal
        if done:
            verdicts[place] = log_check.repair(root, name, plan)
        plans.append({"path": plan.path, "done": done, "plan": plan.lines()})
        if not quiet:
            click.echo(f"{'repaired' if done else 'not repaired'}:")
            for line in plan.lines():
                click.echo(f"  {visible(line)}")
    verdicts[0] = log_check.verify_root(root)
    return plans


def _show(verdicts: list[PartitionVerdict]) -> None:
    for verdict in verdicts:
        for finding in verdict.findings:
            click.echo(visible(f"{finding.severity.value}: {_place_of(verdict, finding)}"))
    partitions = verdicts[1:]
    damaged = sum(verdict.is_damaged for verdict in verdicts)
    click.echo(
        f"{len(partitions)} partitions, "
        f"{sum(verdict.batch_count for verdict in partitions)} batches, "
        f"{sum(verdict.record_count for verdict in partitions)} records, "
        f"{sum(verdict.size_bytes for verdict in partitions)} bytes read: "
        + (f"damage in {damaged}" if damaged else "no damage")
    )


def _place_of(verdict: PartitionVerdict, finding: Finding) -> str:
    # A partition's mark is in a file beside its directory.
    path = os.path.normpath(f"{verdict.path}/{finding.path}")
    return f"{path}{_finding_text(finding)}"


def _finding_text(finding: Finding) -> str:
    costs = finding.end_offset > finding.first_offset
    place = f" at byte {finding.position}" if costs or finding.position else ""
    text = f"{place}: {finding.text}"
    if costs:
        lost = "are lost" if finding.severity is Severity.DAMAGE else "were never acknowledged"
        text += f"; offsets {finding.first_offset} to {finding.end_offset} (exclusive) {lost}"
    return text


def _verdict_json(verdict: PartitionVerdict) -> dict[str, object]:
    return {
        "path": verdict.path,
        "damaged": verdict.is_damaged,
        "log_start": verdict.log_start,
        "end_offset": verdict.end.offset,
        "batches": verdict.batch_count,
        "records": verdict.record_count,
        "size_bytes": verdict.size_bytes,
        "findings": [
            {
                "severity": finding.severity.value,
                "file": finding.path,
                "position": finding.position,
                "text": finding.text,
                "first_offset": finding.first_offset,
                "end_offset": finding.end_offset,
            }
            for finding in verdict.findings
        ],
    }
