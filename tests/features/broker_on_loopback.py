"""A whole broker of this process, for the rows of features.md that are about the server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ringlog.broker.config import BrokerConfig
from ringlog.broker.endpoint import Endpoint
from ringlog.broker.server import EXIT_OK, Server


@contextlib.contextmanager
def broker_on_loopback(directory: Path, **settings: object) -> Iterator[Endpoint]:
    """Serve on a free port of `localhost` within the block; a graceful stop must end well."""
    values: dict[str, object] = {
        "listen": "localhost:0",
        "data_dir": str(directory / "data"),
        **settings,
    }
    server = Server(BrokerConfig(**values))  # type: ignore[arg-type]  # BrokerConfig checks them
    try:
        yield server.start()
    finally:
        assert server.stop() == EXIT_OK, server.failure
