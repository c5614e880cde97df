"""Where settings come from: precedence, unknown names, conversions."""

import pytest

from ringlog.broker.config import BrokerConfig, ConfigError
from ringlog.broker.config_sources import build_config


def build(
    toml: str = "",
    environment: dict[str, str] | None = None,
    flags: dict[str, object] | None = None,
) -> BrokerConfig:
    return build_config(
        toml=toml, toml_name="b.toml", environment=environment or {}, flags=flags or {}
    )


def test_without_any_source_the_defaults_hold() -> None:
    assert build(environment={"PATH": "/bin", "HOME": "/"}) == BrokerConfig()


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    toml = 'max_topics = 1\nmax_partitions = 1\nrack = "file"'
    environment = {"RINGLOG_MAX_TOPICS": "2", "RINGLOG_RACK": "environment"}
    config = build(toml, environment, {"rack": "flag", "broker_id": None})
    assert (config.max_partitions, config.max_topics, config.rack) == (1, 2, "flag")
    assert config.broker_id == 0


@pytest.mark.parametrize(
    ("toml", "environment", "flags", "place"),
    [
        ("max_topic = 1", {}, {}, "max_topic in b.toml"),
        ("", {"RINGLOG_MAX_TOPIC": "1"}, {}, "environment variable RINGLOG_MAX_TOPIC"),
        ("", {}, {"max_topic": 1}, "flag --max-topic"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    toml: str, environment: dict[str, str], flags: dict[str, object], place: str
) -> None:
    with pytest.raises(ConfigError, match=f"{place} is no setting") as caught:
        build(toml, environment, flags)
    assert caught.value.hint.lower().endswith("max_topics?")


def test_a_name_near_nothing_points_to_the_page() -> None:
    with pytest.raises(ConfigError) as caught:
        build("xyzzy = 1")
    assert "docs/settings.md" in caught.value.hint


def test_the_client_s_variable_is_left_alone() -> None:
    assert build(environment={"RINGLOG_BOOTSTRAP_SERVERS": "a:1"}) == BrokerConfig()


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("ON", True), ("0", False), ("no", False)]
)
def test_booleans_of_the_environment(text: str, value: bool) -> None:
    assert build(environment={"RINGLOG_AUTO_CREATE_TOPICS": text}).auto_create_topics is value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("RINGLOG_INSECURE", "maybe", "neither true nor false"),
        ("RINGLOG_MAX_TOPICS", "many", "no whole number"),
        ("RINGLOG_MAX_TOPICS", "1.5", "no whole number"),
        ("RINGLOG_MAX_TOPICS", "9" * 5000, "no whole number"),
        ("RINGLOG_MAX_TOPICS", "0", "outside 1 to"),
    ],
)
def test_environment_values_that_do_not_fit_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(environment={name: text})


def test_toml_values_keep_their_type() -> None:
    with pytest.raises(ConfigError, match="max_topics = '7' is a text"):
        build('max_topics = "7"')


@pytest.mark.parametrize("toml", ["=", "a = [", "[table]\nx = 1", "a = " + "[" * 5000])
def test_broken_or_nested_toml_is_refused_with_the_file_s_name(toml: str) -> None:
    with pytest.raises(ConfigError, match=r"b\.toml"):
        build(toml)
