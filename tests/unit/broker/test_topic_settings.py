"""Topic settings: every row parses, has limits, and refuses what is beyond them."""

import pytest

from ringlog.broker.topic_settings import (
    FIXED_AT_CREATION,
    SETTINGS,
    check_alteration,
    parse_settings,
    settings_table,
    weakness,
)
from ringlog.client.errors import InvalidConfig
from ringlog.storage.log_config import LogConfig


def test_the_defaults_are_those_of_a_log() -> None:
    settings = parse_settings({}, replication_factor=1)
    assert settings.log == LogConfig()
    assert not settings.in_memory
    assert not settings.is_weak
    assert set(settings.values) == set(SETTINGS)


@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if s.limits])
def test_numbers_are_taken_up_to_their_limits_and_not_beyond(name: str) -> None:
    limits = SETTINGS[name].limits
    assert limits is not None
    for value in limits:
        assert parse_settings({name: str(value)}, replication_factor=1).values[name] == str(value)
    for value in (limits[0] - 1, limits[1] + 1):
        with pytest.raises(InvalidConfig, match=f"{name}={value} is outside"):
            parse_settings({name: str(value)}, replication_factor=1)
    for text in ("", "x", "1.5", "1e3"):
        with pytest.raises(InvalidConfig, match="no whole number"):
            parse_settings({name: text}, replication_factor=1)


@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if s.choices])
def test_choices_are_taken_and_nothing_else(name: str) -> None:
    for choice in SETTINGS[name].choices:
        assert parse_settings({name: choice}, replication_factor=1).values[name] == choice
    with pytest.raises(InvalidConfig, match="none of"):
        parse_settings({name: "compact"}, replication_factor=1)


def test_each_number_reaches_its_field() -> None:
    values = {
        "retention.ms": 1001,
        "retention.bytes": 1002,
        "segment.bytes": 20_003,
        "segment.ms": 1004,
        "max.message.bytes": 1025,
        "flush.interval.ms": 1006,
    }
    overrides = {name: str(value) for name, value in values.items()}
    log = parse_settings({**overrides, "flush.policy": "os"}, replication_factor=1).log
    assert (log.retention_ms, log.retention_size_bytes) == (1001, 1002)
    assert (log.segment_size_bytes, log.segment_age_ms) == (20_003, 1004)
    assert (log.max_batch_bytes, log.flush_interval_ms) == (1025, 1006)
    assert log.flush_policy == "os"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("retention_ms", "retention.ms"), ("max.mesage.bytes", "max.message.bytes"), ("x", "")],
)
def test_an_unknown_name_gets_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(InvalidConfig, match=f"nearest is {right}"):
        parse_settings({wrong: "1"}, replication_factor=1)


@pytest.mark.parametrize(
    "overrides", [{"flush.policy": "interval"}, {"flush.policy": "os"}, {"storage": "memory"}]
)
def test_weak_topics_need_one_replica_and_say_what_they_may_lose(
    overrides: dict[str, str],
) -> None:
    settings = parse_settings(overrides, replication_factor=1)
    assert settings.is_weak
    assert "los" in weakness("t", settings)
    with pytest.raises(InvalidConfig, match="needs replication factor 1"):
        parse_settings(overrides, replication_factor=3)
    assert weakness("t", parse_settings({}, replication_factor=3)) == ""


def test_an_alteration_takes_settings_back_with_none() -> None:
    present = {"retention.ms": "5", "segment.ms": "5000"}
    after = check_alteration(present, {"retention.ms": None}, replication_factor=1)
    assert after.log.retention_ms == LogConfig().retention_ms
    assert after.log.segment_age_ms == 5000


@pytest.mark.parametrize("name", sorted(FIXED_AT_CREATION))
def test_what_is_fixed_can_be_named_but_not_changed(name: str) -> None:
    default = SETTINGS[name].default
    (other,) = set(SETTINGS[name].choices) - {default}
    check_alteration({}, {name: default}, replication_factor=1)
    check_alteration({name: other}, {name: other}, replication_factor=1)
    with pytest.raises(InvalidConfig, match="fixed"):
        check_alteration({}, {name: other}, replication_factor=1)
    with pytest.raises(InvalidConfig, match="fixed"):
        check_alteration({name: other}, {name: None}, replication_factor=1)
    with pytest.raises(InvalidConfig, match="fixed"):
        check_alteration({}, {name: None}, replication_factor=1)


def test_the_table_has_a_row_for_each_setting() -> None:
    rows = settings_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(SETTINGS)
    assert all(row.count("|") == 5 for row in rows)
