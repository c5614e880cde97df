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


@pytest.mark.parametrize(("refused", "expected"), [(None, 4096), (ValueError("not allowed"), 1024)])
def test_the_limit_is_raised_as_far_as_allowed(
    monkeypatch: pytest.MonkeyPatch, refused: Exception | None, expected: int
) -> None:
    asked = []

    def set_limit(_which: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if refused is not None:
            raise refused

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert raise_file_limit() == expected
    assert asked == [(4096, 4096)]


def test_a_limit_that_is_at_its_highest_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (4096, 4096))
    monkeypatch.setattr(resource, "setrlimit", None)
    assert raise_file_limit() == 4096
