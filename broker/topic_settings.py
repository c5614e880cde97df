"""A topic's dotted settings: names, defaults, limits, and what they mean for its logs.

Owns the one table of topic settings; `docs/settings.md` and INVALID_CONFIG texts come from it.
Must not know where a topic's settings are kept, nor the broker's own settings.

Invariants:
    O1  Only settings that `parse_settings` accepts reach the registry, so that a topic that
        exists can always be opened.
    O2  Policies that answer before the flush, and `storage=memory`, need replication factor 1:
        under Raft a power loss would let them rewrite committed offsets.

Source: Kafka's topic settings, names and meanings; `flush.policy` and `storage` are ringlog's.
"""

import dataclasses
from collections.abc import Mapping
from difflib import get_close_matches

from ringlog.client.errors import InvalidConfig
from ringlog.storage.log_config import FlushPolicy, LogConfig

_DAY_MS = 86_400_000
_LARGEST = 2**63 - 1
_FLUSH_POLICIES: dict[str, FlushPolicy] = {
    "majority": "majority",
    "interval": "interval",
    "os": "os",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. Either `limits` (inclusive, a whole number) or `choices`."""

    default: str
    text: str
    limits: tuple[int, int] | None = None
    choices: tuple[str, ...] = ()


SETTINGS: dict[str, Setting] = {
    "retention.ms": Setting(
        str(7 * _DAY_MS),
        "Closed segments whose newest record is older are removed; -1 keeps them for ever.",
        limits=(-1, _LARGEST),
    ),
    "retention.bytes": Setting(
        "-1",
        "Oldest segments of a partition beyond this size are removed; -1: no limit.",
        limits=(-1, _LARGEST),
    ),
    "segment.bytes": Setting(
        str(256 << 20),
        "A segment is closed before a batch would take it over this size.",
        limits=(16 << 10, 2**31 - 1),
    ),
    "segment.ms": Setting(
        str(7 * _DAY_MS), "A segment is closed at this age.", limits=(1000, _LARGEST)
    ),
    "max.message.bytes": Setting(
        str(10 << 20),
        "Largest record batch. The broker's `max_message_bytes` must let it through.",
        limits=(1 << 10, 1 << 30),
    ),
    "flush.policy": Setting(
        "majority",
        "`majority`: acknowledged once flushed on a majority. `interval` and `os`: acknowledged "
        "from the page cache, flushed every `flush.interval.ms` or when the kernel likes; "
        "replication factor 1 only, and a power loss loses acknowledged records.",
        choices=tuple(_FLUSH_POLICIES),
    ),
    "flush.interval.ms": Setting(
        "1000",
        "With `flush.policy=interval`: longest time between two flushes.",
        limits=(10, 3_600_000),
    ),
    "storage": Setting(
        "wal",
        "`wal`: files. `memory`: nothing survives the broker process; replication factor 1 only. "
        "Fixed when the topic is created.",
        choices=("wal", "memory"),
    ),
    "cleanup.policy": Setting(
        "delete", "What happens to old records: `delete` removes them.", choices=("delete",)
    ),
}
"""Every topic setting, by name."""

FIXED_AT_CREATION = frozenset({"storage"})
"""Settings that cannot be altered."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's settings in force. Made by `parse_settings` only."""

    values: Mapping[str, str]
    """Every setting by its dotted name, in canonical spelling."""
    log: LogConfig
    in_memory: bool

    @property
    def is_weak(self) -> bool:
        """Whether an acknowledged record can be lost by a power loss of one machine."""
        return self.in_memory or self.log.flush_policy != "majority"


def parse_settings(overrides: Mapping[str, str], *, replication_factor: int) -> TopicSettings:
    """Check what was set by hand and fill in the defaults.

    Raises:
        InvalidConfig: an unknown name (the text gives the nearest), a value outside its limits,
            or a policy that does not go with the replication factor.
    """
    for name in overrides:
        if name not in SETTINGS:
            raise _unknown(name)
    values = {
        name: _canonical(name, setting, overrides.get(name, setting.default))
        for name, setting in SETTINGS.items()
    }
    settings = TopicSettings(values, _log_config(values), values["storage"] == "memory")
    if settings.is_weak and replication_factor != 1:
        name = "storage" if settings.in_memory else "flush.policy"
        raise InvalidConfig(
            f"{name}={values[name]} needs replication factor 1, the topic has {replication_factor}:"
            f" a power loss would let it rewrite committed offsets",
            hint="use flush.policy=majority and storage=wal, or replication factor 1",
        )
    return settings


def check_alteration(
    present: Mapping[str, str], changes: Mapping[str, str | None], *, replication_factor: int
) -> TopicSettings:
    """Return the settings in force after `changes` (None: back to the default).

    Raises:
        InvalidConfig: as `parse_settings`, or a setting that is fixed at creation changes.
    """
    for name in changes:
        if name not in SETTINGS:
            raise _unknown(name)
    merged = {name: value for name, value in present.items() if name not in changes}
    merged.update((name, value) for name, value in changes.items() if value is not None)
    before = parse_settings(present, replication_factor=replication_factor)
    after = parse_settings(merged, replication_factor=replication_factor)
    for name in sorted(FIXED_AT_CREATION & changes.keys()):
        if changes[name] is None or before.values[name] != after.values[name]:
            raise InvalidConfig(
                f"{name} is fixed when a topic is created, here {before.values[name]}",
                hint="create another topic with the setting you want and copy the records",
            )
    return after


def weakness(name: str, settings: TopicSettings) -> str:
    """Return a sentence that says what a weak topic may lose; empty for the others."""
    if settings.in_memory:
        return f"topic {name}: storage=memory; all its records are lost when this broker stops"
    policy = settings.log.flush_policy
    if policy == "interval":
        return (
            f"topic {name}: flush.policy=interval; a power loss may lose the acknowledged records "
            f"of the last {settings.log.flush_interval_ms} ms"
        )
    if policy == "os":
        return f"topic {name}: flush.policy=os; a power loss may lose acknowledged records"
    return ""


def settings_table() -> str:
    """Return the documentation of all topic settings, as a Markdown table."""
    lines = ["| setting | default | limits | meaning |", "|---|---|---|---|"]
    for name, setting in SETTINGS.items():
        if setting.limits is None:
            limits = ", ".join(setting.choices)
        elif setting.limits[1] == _LARGEST:
            limits = f"{setting.limits[0]} or more"
        else:
            limits = f"{setting.limits[0]} to {setting.limits[1]}"
        lines.append(f"| `{name}` | `{setting.default}` | {limits} | {setting.text} |")
    return "\n".join(lines) + "\n"


def _unknown(name: str) -> InvalidConfig:
    nearest = get_close_matches(name, SETTINGS, n=1, cutoff=0.0)
    return InvalidConfig(
        f"there is no topic setting {name!r}",
        hint=f"the nearest is {nearest[0]}; settings: {', '.join(SETTINGS)}",
    )


def _canonical(name: str, setting: Setting, value: str) -> str:
    if setting.limits is None:
        if value not in setting.choices:
            raise InvalidConfig(
                f"{name}={value} is none of {', '.join(setting.choices)}",
                hint=f"the default is {setting.default}",
            )
        return value
    low, high = setting.limits
    try:
        number = int(value)
    except ValueError:
        raise InvalidConfig(
            f"{name}={value} is no whole number", hint=f"the default is {setting.default}"
        ) from None
    if not low <= number <= high:
        raise InvalidConfig(
            f"{name}={value} is outside {low} to {high}", hint=f"the default is {setting.default}"
        )
    return str(number)


def _log_config(values: Mapping[str, str]) -> LogConfig:
    return LogConfig(
        segment_size_bytes=int(values["segment.bytes"]),
        segment_age_ms=int(values["segment.ms"]),
        retention_ms=int(values["retention.ms"]),
        retention_size_bytes=int(values["retention.bytes"]),
        max_batch_bytes=int(values["max.message.bytes"]),
        flush_policy=_FLUSH_POLICIES[values["flush.policy"]],
        flush_interval_ms=int(values["flush.interval.ms"]),
    )
