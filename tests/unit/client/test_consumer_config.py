"""Defaults and limits of a consumer."""

import pytest

from ringlog.client.consumer_config import ConsumerConfig
from ringlog.client.errors import InvalidArgument
from ringlog.client.fetcher import FetchLimits

MIB = 1024 * 1024


def test_the_defaults_become_the_limits_of_the_fetcher() -> None:
    config = ConsumerConfig()
    assert config.auto_offset_reset == "latest"
    assert config.limits == FetchLimits(1, 500, 50 * MIB, MIB, 64 * MIB)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("auto_offset_reset", ("Earliest", "", "smallest")),
        ("fetch_min_bytes", (-1, 2**31, True)),
        ("fetch_max_wait_ms", (-1, 300_001)),
        ("fetch_max_bytes", (0, 2**31)),
        ("max_partition_fetch_bytes", (0, 2**31)),
        ("buffer_memory", (0, 2**40 + 1, 1.5)),
    ],
)
def test_what_no_consumer_can_use_is_refused_by_name(name: str, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(InvalidArgument, match=name):
            ConsumerConfig(**{name: value})  # type: ignore[arg-type]  # wrong on purpose


def test_the_ends_of_each_range_are_allowed() -> None:
    ConsumerConfig(None, "none", 0, 0, 1, 1, 1)
    ConsumerConfig(None, "earliest", 2**31 - 1, 300_000, 2**31 - 1, 2**31 - 1, 2**40)


def test_a_reset_that_is_not_known_names_those_that_are() -> None:
    with pytest.raises(InvalidArgument) as caught:
        ConsumerConfig(auto_offset_reset="middle")  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.hint == "give one of earliest, latest, none"


def test_a_group_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="groups are not built yet"):
        ConsumerConfig(group_id="g")
