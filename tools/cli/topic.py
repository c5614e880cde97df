"""`ringlog topic`: make, show, change and delete topics.

Owns the commands' arguments and what they print. Must not know the wire: `client.admin` does.
"""

import click
import msgspec

from ringlog.client import Admin
from ringlog.client.admin import TopicInfo
from ringlog.tools.cli.options import (
    BOOTSTRAP_TIMEOUT_MS,
    bootstrap_option,
    json_option,
    settings_from,
)
from ringlog.tools.cli.output import print_json, print_table, say, visible


def _admin(bootstrap_servers: str | None) -> Admin:
    return Admin(bootstrap_servers, bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS)


@click.group(name="topic")
def command() -> None:
    """Make, show, change and delete topics."""


@command.command()
@click.argument("name")
@click.option("--partitions", type=int, default=1, show_default=True, help="How many logs.")
@click.option(
    "--replication-factor", type=int, help="Default: 3, or all brokers where there are fewer."
)
@click.option("--config", "pairs", multiple=True, metavar="NAME=VALUE", help="A topic setting.")
@bootstrap_option
def create(
    name: str,
    partitions: int,
    replication_factor: int | None,
    pairs: tuple[str, ...],
    bootstrap_servers: str | None,
) -> None:
    """Create the topic NAME; returns once it is online.

    Example: ringlog topic create orders --partitions 6 --config retention.ms=86400000
    """
    settings = settings_from(pairs)
    with _admin(bootstrap_servers) as admin:
        admin.create_topic(name, partitions, replication_factor, settings)
    say(f"created {name} with {partitions} partition{'s' if partitions != 1 else ''}")


@command.command(name="list")
@bootstrap_option
@json_option
def list_topics(bootstrap_servers: str | None, *, as_json: bool) -> None:
    """List all topics but internal ones."""
    with _admin(bootstrap_servers) as admin:
        names = admin.list_topics()
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(visible(name))


@command.command()
@click.argument("name")
@bootstrap_option
@json_option
def describe(name: str, bootstrap_servers: str | None, *, as_json: bool) -> None:
    """Show partitions and settings of the topic NAME."""
    with _admin(bootstrap_servers) as admin:
        topic = admin.describe_topic(name)
    if as_json:
        print_json(_as_json(topic))
        return
    print_table(
        ("partition", "leader", "epoch", "log start", "high watermark", "bytes", "trouble"),
        [
            (
                row.partition,
                row.leader,
                row.leader_epoch,
                row.log_start,
                row.high_watermark,
                row.size_bytes,
                row.error.cause if row.error else "",
            )
            for row in topic.partitions
        ],
        title=f"{topic.name}: {topic.state}, replication factor {topic.replication_factor}",
    )
    print_table(
        ("setting", "value", "set by"),
        [
            (key, value, "hand" if key in topic.overrides else "default")
            for key, value in sorted(topic.config.items())
        ],
    )


@command.command()
@click.argument("name")
@click.option("--config", "pairs", multiple=True, metavar="NAME=VALUE", help="Set a setting.")
@click.option("--default", "defaults", multiple=True, metavar="NAME", help="Back to its default.")
@bootstrap_option
def alter(
    name: str, pairs: tuple[str, ...], defaults: tuple[str, ...], bootstrap_servers: str | None
) -> None:
    """Change settings of the topic NAME.

    Example: ringlog topic alter orders --config retention.ms=60000 --default retention.bytes
    """
    if not pairs and not defaults:
        raise click.UsageError("nothing to change; give --config NAME=VALUE or --default NAME")
    changes: dict[str, str | None] = {**settings_from(pairs)}
    for setting in defaults:
        if setting in changes:
            raise click.UsageError(f"{setting} is given twice; give each setting once")
        changes[setting] = None
    with _admin(bootstrap_servers) as admin:
        admin.alter_topic(name, changes)
    say(f"altered {name}")


@command.command()
@click.argument("name")
@bootstrap_option
def delete(name: str, bootstrap_servers: str | None) -> None:
    """Delete the topic NAME and all its records."""
    with _admin(bootstrap_servers) as admin:
        admin.delete_topic(name)
    say(f"deleted {name}")


@command.command(name="add-partitions")
@click.argument("name")
@click.argument("total", type=int)
@bootstrap_option
def add_partitions(name: str, total: int, bootstrap_servers: str | None) -> None:
    """Give the topic NAME partitions up to TOTAL. Keys may then map to other partitions."""
    with _admin(bootstrap_servers) as admin:
        admin.add_partitions(name, total)
    say(f"{name} has {total} partitions")


@command.command(name="delete-records")
@click.argument("name")
@click.option("--partition", type=int, required=True, help="Number of the partition.")
@click.option("--before-offset", type=int, required=True, help="Exclusive; -1: all there is.")
@bootstrap_option
def delete_records(
    name: str, partition: int, before_offset: int, bootstrap_servers: str | None
) -> None:
    """Delete the records of one partition below an offset."""
    with _admin(bootstrap_servers) as admin:
        log_start = admin.delete_records(name, partition, before_offset)
    say(f"{name}-{partition} now starts at offset {log_start}")


def _as_json(topic: TopicInfo) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_uuid": topic.topic_uuid.hex(),
        "state": topic.state,
        "replication_factor": topic.replication_factor,
        "config": dict(topic.config),
        "overrides": list(topic.overrides),
        "partitions": [
            {
                **{
                    name: msgspec.to_builtins(getattr(row, name))
                    for name in row.__struct_fields__
                    if name != "error"
                },
                "error": row.error.cause if row.error else None,
            }
            for row in topic.partitions
        ],
    }
