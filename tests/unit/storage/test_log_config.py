"""Settings of a log and their limits."""

import dataclasses
from collections.abc import Callable
from typing import cast

import pytest

from ringlog.storage.log_config import LogConfig


def test_the_defaults_are_valid_and_cannot_be_changed() -> None:
    config = LogConfig()
    assert config.segment_size_bytes == 256 << 20
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, "retention_ms", 1)  # noqa: B010 - mypy refuses the plain form, as it should


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment_size_bytes", 0),
        ("segment_size_bytes", 2**31),
        ("segment_age_ms", 0),
        ("retention_ms", -2),
        ("retention_size_bytes", -2),
        ("max_batch_bytes", 60),
        ("index_interval_bytes", 0),
        ("flush_interval_ms", 0),
        ("flush_policy", "sometimes"),
    ],
)
def test_a_setting_outside_its_limits_is_refused_by_name(name: str, value: int | str) -> None:
    make = cast("Callable[..., LogConfig]", LogConfig)
    with pytest.raises(ValueError, match=name):
        make(**{name: value})


@pytest.mark.parametrize(
    ("age_ms", "retention_ms", "expected"),
    [(100, -1, 100), (100, 40, 40), (40, 100, 40), (9, 0, 1)],
)
def test_a_segment_is_closed_before_its_records_may_go(
    age_ms: int, retention_ms: int, expected: int
) -> None:
    assert LogConfig(segment_age_ms=age_ms, retention_ms=retention_ms).roll_age_ms == expected
