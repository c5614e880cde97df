"""Settings every client object shares, checked once, and the grammar of addresses.

Owns defaults and limits of connections and retries; the producer's and the consumer's own
settings live beside them. Must not know sockets, and reads no environment: it is passed in.

Invariants:
    G1  A `ClientConfig` that exists is valid: bad values raise `InvalidArgument` with the name
        of the setting, the value and what is allowed.
    G2  An address is `host:port` in one spelling, so that equal addresses compare equal.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from ringlog.client.errors import InvalidArgument

DEFAULT_PORT = 5555
DEFAULT_BOOTSTRAP = f"127.0.0.1:{DEFAULT_PORT}"
BOOTSTRAP_VARIABLE = "RINGLOG_BOOTSTRAP_SERVERS"

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})")
_MAX_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What connections and retries need to know: settings that all three client classes share.

    Each is an argument of `Admin`, `BatchProducer` or `Consumer`, whose own defaults count.
    """

    bootstrap: tuple[str, ...]
    """Addresses `host:port` to find the cluster by; at least one."""
    client_id: str = "ringlog"
    """Name shown in broker logs; never an identity."""
    bootstrap_timeout_ms: int = 10_000
    """The first call gives up after this when no address has answered."""
    request_timeout_ms: int = 30_000
    """One attempt of one request; also the whole time of an `Admin` call."""
    connect_timeout_ms: int = 5_000
    """Name resolution, TCP connect and the first answer of one attempt to connect."""
    retry_backoff_ms: int = 50
    """First pause before a retry; doubles each time, with jitter."""
    retry_backoff_max_ms: int = 1_000
    """Longest pause before a retry."""
    metadata_max_age_ms: int = 300_000
    """Metadata of topics in use is asked for again after this."""

    def __post_init__(self) -> None:
        """Check every number and name. Raises InvalidArgument."""
        if not self.bootstrap:
            raise InvalidArgument("bootstrap_servers names no address", hint="write host:port")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_ms"):
                check_number(field.name, value, 1, _MAX_MS)
        check_text("client_id", self.client_id)


def check_text(name: str, value: object, hint: str = "") -> str:
    """Return `value` when it is a text that can travel (UTF-8). Raises InvalidArgument."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} {value!r} is not a text", hint=hint)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{name} {value!r} is no valid Unicode text: {error.reason}", hint=hint
        ) from None
    return value


def check_number(name: str, value: object, low: int, high: int) -> int:
    """Return `value` when it is an integer in [low, high]. Raises InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} is {value!r}, not an integer")
    if not low <= value <= high:
        raise InvalidArgument(f"{name} is {value}, allowed is {low} to {high}")
    return value


def bootstrap_addresses(
    servers: str | Sequence[str] | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Addresses to start from: the argument, else the environment, else the loopback default.

    Args:
        servers: a list of `host:port`, or one string with commas.
        environment: where `RINGLOG_BOOTSTRAP_SERVERS` is looked up.

    Raises:
        InvalidArgument: an address that does not parse, or none at all.
    """
    origin = "bootstrap_servers"
    if servers is None:
        servers = environment.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        if BOOTSTRAP_VARIABLE in environment:
            origin = BOOTSTRAP_VARIABLE
    if isinstance(servers, str):
        servers = servers.split(",")
    elif not _are_texts(servers):
        raise InvalidArgument(
            f"{origin} is {servers!r}, neither a text nor a list of texts",
            hint=f'write "host:port", such as "{DEFAULT_BOOTSTRAP}"',
        )
    addresses = [parse_address(text.strip(), origin) for text in servers if text.strip()]
    if not addresses:
        raise InvalidArgument(f"{origin} names no address", hint="write host:port")
    return tuple(dict.fromkeys(addresses))


def parse_address(text: str, origin: str = "address") -> str:
    """Check `host:port` (IPv6 in brackets) and return its one spelling.

    Raises:
        InvalidArgument: naming `origin`, the text and what is wrong with it.
    """
    if "://" in text:
        raise _bad(origin, text, "it has a scheme", "write host:port only")
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise _bad(origin, text, "it has no port", f"write {text or 'host'}:{DEFAULT_PORT}")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise _bad(origin, text, f"port {port!r} is not a number from 1 to 65535", "")
    if host.startswith("[") and host.endswith("]"):
        try:
            host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        except ValueError:
            raise _bad(origin, text, "the brackets hold no IPv6 address", "") from None
    elif ":" in host:
        raise _bad(origin, text, "an IPv6 address needs brackets", f"write [{host}]:{port}")
    elif not _HOST.fullmatch(host):
        raise _bad(origin, text, f"host {host!r} is no name and no IPv4 address", "")
    return f"{host.lower()}:{int(port)}"


def split_address(address: str) -> tuple[str, int]:
    """Host (without brackets) and port of an address in the one spelling."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _are_texts(servers: object) -> bool:
    """Whether callers without a type checker gave what the annotation asks for."""
    return isinstance(servers, Sequence) and all(isinstance(one, str) for one in servers)


def _bad(origin: str, text: str, why: str, hint: str) -> InvalidArgument:
    return InvalidArgument(f"{origin}: {text!r} is not an address: {why}", hint=hint)
