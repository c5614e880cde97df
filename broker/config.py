"""The broker's settings: one frozen, validated dataclass.

Owns every setting's name, default, limits and meaning; `docs/settings.md` is generated from
here. Must not know where values come from (`broker.config_sources`), and reads no file.

Invariants:
    CF1 A value that exists as a `BrokerConfig` is within its limits; nothing checks it again.
    CF2 Each field has a text and, if it is a number, inclusive limits.
    CF3 A listener that others can reach exists only with `insecure`; one on a wildcard address
        only with `advertise`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ringlog.broker.endpoint import Endpoint, parse_endpoint
from ringlog.client.errors import RinglogError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


class ConfigError(RinglogError):
    """A setting that cannot be used. The text names the setting, the value and the limit."""

    code = "INVALID_SETTING"


def setting(
    default: Any,  # noqa: ANN401  the field's own annotation carries the type
    text: str,
    *,
    limits: tuple[int, int] | None = None,
    choices: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401  as dataclasses.field, whose result takes the field's type
    """Declare a field with its documentation. `limits` are inclusive."""
    return dataclasses.field(
        default=default, metadata={"text": text, "limits": limits, "choices": choices}
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class BrokerConfig:
    """All settings of one broker. Sizes are bytes, times milliseconds."""

    # Where it is.
    listen: str = setting("127.0.0.1:5555", "Address clients connect to; port 0 takes a free one.")
    advertise: str = setting("", "Address told to clients; empty: the same as `listen`.")
    data_dir: str = setting("ringlog-data", "Directory of all data; made when absent.")
    broker_id: int = setting(0, "Number of this broker in its cluster.", limits=(0, 2**31 - 1))
    rack: str = setting("", "Failure domain of this broker; empty: unknown.")
    insecure: bool = setting(
        False,  # noqa: FBT003  the default of a boolean field
        "Allow a listener that other machines can reach, without keys.",
    )
    ready_file: str = setting("", "File that gets `HOST:PORT` once requests are served.")
    log_level: str = setting(
        "info", "Least severe log lines shown.", choices=("debug", "info", "warning", "error")
    )

    # Connections.
    max_connections: int = setting(
        1000,
        "Connections kept; further ones are closed. Lowered to fit the limit on open files.",
        limits=(1, 100_000),
    )
    max_message_bytes: int = setting(
        10 * MIB + 64 * KIB,
        "Largest frame accepted; a topic's `max.message.bytes` must fit. Unread requests take at "
        "most max_connections x receive_queue x this.",
        limits=(64 * KIB, GIB),
    )
    receive_queue: int = setting(
        4, "Requests of one connection read ahead (ZMQ_RCVHWM).", limits=(1, 1000)
    )
    send_queue: int = setting(
        8, "Replies of one connection handed to ZeroMQ at once (ZMQ_SNDHWM).", limits=(1, 1000)
    )
    handshake_timeout_ms: int = setting(
        3000, "A connection that has not finished its handshake is closed.", limits=(100, 60_000)
    )
    heartbeat_interval_ms: int = setting(
        5000,
        "Silent connections are asked for a sign of life; three missed end the connection.",
        limits=(100, 600_000),
    )

    # What one peer, and all together, may hold.
    max_session_requests: int = setting(
        256, "Unanswered requests of one connection; more get BUSY.", limits=(1, 100_000)
    )
    max_session_bytes: int = setting(
        64 * MIB,
        "Bytes of unanswered requests of one connection; more get BUSY. Also the largest request.",
        limits=(64 * KIB, 2 * GIB),
    )
    max_request_bytes: int = setting(
        256 * MIB,
        "Bytes of unanswered requests of all connections; more get BUSY.",
        limits=(64 * KIB, 64 * GIB),
    )
    max_session_outbound_bytes: int = setting(
        64 * MIB,
        "Bytes of replies waiting for one slow connection. At the cap new requests get BUSY, and "
        "a reply that does not fit is dropped and counted.",
        limits=(64 * KIB, 2 * GIB),
    )
    max_outbound_bytes: int = setting(
        512 * MIB,
        "Bytes of replies waiting for all slow connections; at the cap new requests get BUSY.",
        limits=(64 * KIB, 64 * GIB),
    )
    max_unflushed_bytes: int = setting(
        256 * MIB,
        "Bytes of produced batches not yet flushed; more get BUSY.",
        limits=(MIB, 64 * GIB),
    )
    max_waiting_fetches: int = setting(
        10_000, "Fetches that wait for records; more get BUSY.", limits=(1, 1_000_000)
    )
    fetch_max_bytes: int = setting(
        50 * MIB, "Most bytes one fetch answers with (one batch always fits).", limits=(MIB, GIB)
    )
    fetch_max_wait_ms: int = setting(
        30_000, "Longest a fetch waits, whatever it asks for.", limits=(0, 600_000)
    )

    # Topics.
    max_topics: int = setting(10_000, "Topics of this broker.", limits=(1, 1_000_000))
    max_partitions: int = setting(
        10_000, "Partitions of this broker, over all topics.", limits=(1, 1_000_000)
    )
    auto_create_topics: bool = setting(
        False,  # noqa: FBT003  the default of a boolean field
        "Create a topic when a client first asks for it.",
    )
    default_partitions: int = setting(
        1, "Partitions of a topic that is created on first use.", limits=(1, 10_000)
    )

    # Disk.
    max_memory_topic_bytes: int = setting(
        256 * MIB,
        "Memory of all topics with `storage=memory` together; beyond it produce is refused with "
        "DISK_FULL.",
        limits=(MIB, 64 * GIB),
    )
    disk_reserve_bytes: int = setting(
        512 * MIB,
        "Free space below which produce is refused with DISK_FULL. What is kept lets retention, "
        "deletes and a stop still write what frees space; with 0 a full disk can refuse those too.",
        limits=(0, 1024 * GIB),
    )
    disk_check_interval_ms: int = setting(
        1000, "How often free space is looked up.", limits=(10, 600_000)
    )
    retention_check_interval_ms: int = setting(
        60_000, "How often old segments are looked for.", limits=(10, 86_400_000)
    )
    max_open_files: int = setting(
        512, "Descriptors of log files kept open.", limits=(16, 1_000_000)
    )
    sync_threads: int = setting(
        3, "Threads that flush the files of one group side by side.", limits=(1, 64)
    )
    worker_threads: int = setting(
        4, "Threads for cold reads, opening and removing.", limits=(1, 64)
    )
    stop_timeout_ms: int = setting(
        20_000, "A graceful stop that takes longer ends at once.", limits=(100, 600_000)
    )

    def __post_init__(self) -> None:
        """Check every field and what fields demand of one another. Raises ConfigError."""
        for field in dataclasses.fields(self):
            _check_field(field, getattr(self, field.name))
        self._check_listener()
        if self.max_session_bytes < self.max_message_bytes:
            raise ConfigError(
                f"max_session_bytes = {self.max_session_bytes} is below max_message_bytes = "
                f"{self.max_message_bytes}: the largest frame would never fit",
                hint="raise max_session_bytes or lower max_message_bytes",
            )
        if self.max_request_bytes < self.max_session_bytes:
            raise ConfigError(
                f"max_request_bytes = {self.max_request_bytes} is below max_session_bytes = "
                f"{self.max_session_bytes}: one connection could never use its share",
                hint="raise max_request_bytes or lower max_session_bytes",
            )
        if self.max_session_outbound_bytes < self.max_message_bytes:
            raise ConfigError(
                f"max_session_outbound_bytes = {self.max_session_outbound_bytes} is below "
                f"max_message_bytes = {self.max_message_bytes}: a batch could never be fetched",
                hint="raise max_session_outbound_bytes or lower max_message_bytes",
            )

    @property
    def listen_endpoint(self) -> Endpoint:
        """`listen`, parsed."""
        return parse_endpoint(self.listen, listener=True)

    @property
    def advertise_endpoint(self) -> Endpoint | None:
        """`advertise`, parsed; None: the address that `listen` got."""
        return parse_endpoint(self.advertise, listener=False) if self.advertise else None

    def _check_listener(self) -> None:
        try:
            listen = self.listen_endpoint
        except ValueError as error:
            raise ConfigError(f"listen: {error}", hint="for example 127.0.0.1:5555") from error
        try:
            advertise = self.advertise_endpoint
        except ValueError as error:
            raise ConfigError(
                f"advertise: {error}", hint="for example broker1.example.org:5555"
            ) from error
        if not listen.is_loopback and not self.insecure:
            raise ConfigError(
                f"listen = {self.listen} can be reached by other machines, and nothing would ask "
                f"them who they are",
                hint="listen on 127.0.0.1, or set insecure (--insecure) if the network is trusted",
            )
        if listen.is_wildcard and advertise is None:
            raise ConfigError(
                f"listen = {self.listen} is no address that clients can dial",
                hint=f"set advertise (--advertise HOST:{listen.port}) to this machine's name",
            )
        if advertise is not None and advertise.is_wildcard:
            raise ConfigError(
                f"advertise = {self.advertise} is no address that clients can dial",
                hint="set advertise to this machine's name or address",
            )


def setting_names() -> list[str]:
    """Names of all settings, in the order of the page."""
    return [field.name for field in dataclasses.fields(BrokerConfig)]


def setting_types() -> Mapping[str, type]:
    """Type of each setting: `str`, `int` or `bool`."""
    return {field.name: _type_of(field) for field in dataclasses.fields(BrokerConfig)}


def settings_page() -> str:
    """`docs/settings.md`: every setting with default, limits and meaning."""
    lines = [
        "# Broker settings",
        "",
        "<!-- Generated from broker/config.py; a test fails when this page is stale. -->",
        "",
        "A TOML file (`--config FILE`), then the environment, then flags; the last one wins.",
        "In the environment a setting is called `RINGLOG_` and its name in capitals",
        "(`RINGLOG_DATA_DIR`). A name that is not in this table is refused. Sizes are bytes,",
        "times milliseconds.",
        "",
        "| setting | default | limits | meaning |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(BrokerConfig):
        default = _spelled(field.default)
        lines.append(
            f"| `{field.name}` | {default} | {_limits_text(field)} | {field.metadata['text']} |"
        )
    return "\n".join(lines) + "\n"


def _type_of(field: "dataclasses.Field[Any]") -> type:
    return type(field.default)


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "(empty)"


def _limits_text(field: "dataclasses.Field[Any]") -> str:
    if field.metadata["limits"] is not None:
        low, high = field.metadata["limits"]
        return f"{low} to {high}"
    return ", ".join(field.metadata["choices"])


def _check_field(field: "dataclasses.Field[Any]", value: object) -> None:
    expected = _type_of(field)
    # bool is an int to Python; `max_topics = true` is a mistake all the same.
    if type(value) is not expected:
        raise ConfigError(
            f"{field.name} = {value!r} is {_kind(type(value))}; it must be {_kind(expected)}",
            hint=f"the default is {field.default!r}",
        )
    limits = field.metadata["limits"]
    if limits is not None and isinstance(value, int) and not limits[0] <= value <= limits[1]:
        raise ConfigError(
            f"{field.name} = {value} is outside {limits[0]} to {limits[1]}",
            hint=f"the default is {field.default!r}",
        )
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise ConfigError(f"{field.name} = {value!r} is none of {', '.join(choices)}")


def _kind(kind: type) -> str:
    names = {bool: "true or false", int: "a whole number", str: "a text"}
    return names.get(kind, f"of type {kind.__name__}")
