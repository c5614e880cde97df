"""`host:port` addresses of listeners: parsing, and who can reach them.

Owns the spelling (`127.0.0.1:5555`, `[::1]:5555`, `localhost:5555`). Must not know sockets.

Invariants:
    N1  A listener's host is an IP address or `localhost`; a name belongs into `advertise`.
    N2  What is not certainly loopback counts as reachable from outside.
"""

import ipaddress
from typing import NamedTuple


class Endpoint(NamedTuple):
    """Where something listens. `port` 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """`host:port`, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """The host as an IP address; `localhost` is 127.0.0.1."""
        return "127.0.0.1" if self.host == "localhost" else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it; False for names (N2)."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every address of this machine, so that no client can dial it."""
        try:
            return ipaddress.ip_address(self.address).is_unspecified
        except ValueError:
            return False


def parse_endpoint(text: str, *, listener: bool) -> Endpoint:
    """Parse `host:port`. A `listener` needs an address (N1) and may have port 0.

    Raises:
        ValueError: with a text that says what is wrong.
    """
    host, colon, port_text = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{text!r} is not HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: put an IPv6 address in brackets, as in [::1]:5555")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5):
        raise ValueError(f"{text!r}: {port_text!r} is no port number")
    port = int(port_text)
    if port > 65_535 or (port == 0 and not listener):
        raise ValueError(f"{text!r}: the port is outside {0 if listener else 1} to 65535")
    endpoint = Endpoint(host, port)
    if listener:
        try:
            ipaddress.ip_address(endpoint.address)
        except ValueError as error:
            raise ValueError(
                f"{text!r}: a listener needs an IP address or localhost; "
                f"the name clients dial goes into advertise"
            ) from error
    elif not host.isprintable() or any(character.isspace() for character in host):
        raise ValueError(f"{text!r}: the host name has unprintable characters")
    return endpoint
