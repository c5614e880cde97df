"""The limit on open files, and how many connections fit below it.

Owns the arithmetic and the one call that raises the limit. Must not know sockets or logs.

Invariants:
    PL1 Log files, threads and the broker's own sockets always find a descriptor: connections
        get what is left, never all.
"""

import resource

from ringlog.broker.config import BrokerConfig, ConfigError

RESERVED_FILES = 128
"""Descriptors for sockets, pipes, directories, state files and connections not yet counted."""


def raise_file_limit() -> int:
    """Raise this process's limit on open files as far as allowed; gives the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return soft  # not allowed here: the cap on connections follows the lower limit
    return hard


def open_files_limit() -> int:
    """The limit on open files in force."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connection_cap(config: BrokerConfig, open_files_limit: int) -> int:
    """Connections this broker keeps: `max_connections`, or what the file limit leaves.

    Raises:
        ConfigError: the limit leaves none.
    """
    left = open_files_limit - config.max_open_files - RESERVED_FILES
    if open_files_limit == resource.RLIM_INFINITY or left >= config.max_connections:
        return config.max_connections
    if left < 1:
        raise ConfigError(
            f"the limit of {open_files_limit} open files leaves no room for connections beside "
            f"max_open_files = {config.max_open_files}",
            hint="raise it (ulimit -n 4096), or lower max_open_files",
        )
    return left
