"""Connections get what the limit on open files leaves, and never all of it."""

import resource

import pytest

from ringlog.broker.config import BrokerConfig, ConfigError
from ringlog.broker.process_limits import RESERVED_FILES, connection_cap, raise_file_limit


def test_a_high_limit_allows_what_is_configured() -> None:
    config = BrokerConfig(max_connections=1000, max_open_files=512)
    assert connection_cap(config, 1000 + 512 + RESERVED_FILES) == 1000
    assert connection_cap(config, resource.RLIM_INFINITY) == 1000


def test_a_low_limit_lowers_the_cap_and_keeps_the_reserve() -> None:
    config = BrokerConfig(max_connections=1000, max_open_files=512)
    assert connection_cap(config, 1024) == 1024 - 512 - RESERVED_FILES
    assert connection_cap(config, 512 + RESERVED_FILES + 1) == 1


def test_a_limit_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="640 open files") as caught:
        connection_cap(BrokerConfig(max_open_files=512), 512 + RESERVED_FILES)
    assert "ulimit -n" in caught.value.hint


def test_raising_the_limit_gives_the_one_in_force() -> None:
    assert raise_file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
