"""Settings: types, limits, what settings demand of one another, the generated page."""

import dataclasses
from typing import Any

import pytest

from ringlog.broker.config import BrokerConfig, ConfigError, setting_types, settings_page

FIELDS = dataclasses.fields(BrokerConfig)
NUMBERS = [field for field in FIELDS if field.metadata["limits"] is not None]


def build(**values: object) -> BrokerConfig:
    return BrokerConfig(**values)  # type: ignore[arg-type]  # BrokerConfig checks each type


def test_defaults_are_valid_and_listen_on_loopback_only() -> None:
    config = BrokerConfig()
    assert config.listen_endpoint.is_loopback
    assert config.advertise_endpoint is None


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_setting_has_a_text_and_every_number_has_limits(
    field: "dataclasses.Field[Any]",
) -> None:
    assert field.metadata["text"].endswith(".")
    assert (field.metadata["limits"] is not None) == (type(field.default) is int)


@pytest.mark.parametrize("field", NUMBERS, ids=lambda field: field.name)
def test_numbers_outside_their_limits_are_refused(field: "dataclasses.Field[Any]") -> None:
    low, high = field.metadata["limits"]
    for value in (low - 1, high + 1, -(2**63), 2**63):
        with pytest.raises(ConfigError, match=rf"{field.name} = {value} is outside"):
            build(**{field.name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_topics", True), ("max_topics", "7"), ("max_topics", 7.0), ("insecure", 1),
     ("listen", 5555), ("data_dir", None)],
)  # fmt: skip
def test_wrong_types_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"{name} = .* must be"):
        build(**{name: value})


def test_choices_are_checked() -> None:
    with pytest.raises(ConfigError, match="log_level = 'loud' is none of debug, info"):
        build(log_level="loud")


def test_a_listener_others_can_reach_needs_insecure() -> None:
    with pytest.raises(ConfigError, match="can be reached by other machines") as caught:
        build(listen="10.1.2.3:5555")
    assert "--insecure" in caught.value.hint
    assert build(listen="10.1.2.3:5555", insecure=True).insecure


@pytest.mark.parametrize("listen", ["0.0.0.0:5555", "[::]:5555"])
def test_a_wildcard_listener_needs_an_advertised_address(listen: str) -> None:
    with pytest.raises(ConfigError, match="no address that clients can dial") as caught:
        build(listen=listen, insecure=True)
    assert "--advertise HOST:5555" in caught.value.hint
    assert build(listen=listen, insecure=True, advertise="b1.example.org:5555").advertise
    with pytest.raises(ConfigError, match=r"advertise = 0\.0\.0\.0:5555"):
        build(listen=listen, insecure=True, advertise="0.0.0.0:5555")


@pytest.mark.parametrize(("name", "value"), [("listen", "nowhere"), ("advertise", "b1")])
def test_addresses_that_do_not_parse_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: .*is not HOST:PORT"):
        build(**{name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"max_session_bytes": 64 << 10},
        {"max_request_bytes": 64 << 10},
        {"max_session_outbound_bytes": 64 << 10},
    ],
)
def test_limits_that_contradict_one_another_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is below"):
        build(**values)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerConfig().listen = "0.0.0.0:1"  # type: ignore[misc]  # the point of the test


def test_the_page_has_every_setting_with_default_and_limits() -> None:
    page = settings_page()
    for name in setting_types():
        assert f"| `{name}` |" in page
    assert "| `max_topics` | `10000` | 1 to 1000000 |" in page
    assert "| `log_level` | `info` | debug, info, warning, error |" in page
