"""Addresses and settings: what is taken, and what is said about the rest."""

import pytest

from ringlog.client.config import (
    ClientConfig,
    bootstrap_addresses,
    check_number,
    parse_address,
    split_address,
)
from ringlog.client.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5555", "127.0.0.1:5555"),
        ("Broker-1.Example.com:09", "broker-1.example.com:9"),
        ("[::1]:5555", "[::1]:5555"),
        ("[0:0:0:0:0:0:0:1]:1", "[::1]:1"),
        ("my_host:65535", "my_host:65535"),
    ],
)
def test_addresses_have_one_spelling(text: str, address: str) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no port"),
        ("localhost", "no port"),
        (":5555", "no port"),
        ("tcp://localhost:1", "scheme"),
        ("localhost:0", "1 to 65535"),
        ("localhost:65536", "1 to 65535"),
        ("localhost:http", "1 to 65535"),
        ("localhost:٣", "1 to 65535"),
        ("::1:5555", "brackets"),
        ("[nope]:5555", "no IPv6 address"),
        ("a b:1", "no name"),
        ("-x:1", "no name"),
    ],
)
def test_bad_addresses_say_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why) as caught:
        parse_address(text, "bootstrap_servers")
    assert "bootstrap_servers" in caught.value.cause
    assert isinstance(caught.value, ValueError)


def test_split_takes_the_brackets_off() -> None:
    assert split_address("[::1]:5555") == ("::1", 5555)
    assert split_address("host:1") == ("host", 1)


def test_bootstrap_comes_from_the_argument_then_the_environment_then_loopback() -> None:
    variable = {"RINGLOG_BOOTSTRAP_SERVERS": "env:1, env:2"}
    assert bootstrap_addresses("a:1,b:2,a:1", variable) == ("a:1", "b:2")
    assert bootstrap_addresses(["a:1"], variable) == ("a:1",)
    assert bootstrap_addresses(None, variable) == ("env:1", "env:2")
    assert bootstrap_addresses(None, {}) == ("127.0.0.1:5555",)


@pytest.mark.parametrize("servers", ["", " , ", []])
def test_no_address_at_all_is_refused(servers: str | list[str]) -> None:
    with pytest.raises(InvalidArgument, match="names no address"):
        bootstrap_addresses(servers, {})


def test_an_error_names_the_variable_it_came_from() -> None:
    with pytest.raises(InvalidArgument, match="RINGLOG_BOOTSTRAP_SERVERS"):
        bootstrap_addresses(None, {"RINGLOG_BOOTSTRAP_SERVERS": "nonsense"})


@pytest.mark.parametrize(
    "field",
    ["bootstrap_timeout_ms", "request_timeout_ms", "connect_timeout_ms", "retry_backoff_ms",
     "retry_backoff_max_ms", "metadata_max_age_ms"],
)  # fmt: skip
def test_numbers_are_checked_by_name(field: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        ClientConfig(("a:1",), **{field: 0})  # type: ignore[arg-type]  # by name


def test_a_config_needs_an_address() -> None:
    with pytest.raises(InvalidArgument):
        ClientConfig(())


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 11])
def test_check_number(value: object) -> None:
    with pytest.raises(InvalidArgument):
        check_number("n", value, 1, 10)
    assert check_number("n", 10, 1, 10) == 10


@pytest.mark.parametrize("name", ["\udcff", b"x", 7])
def test_a_client_id_that_cannot_travel_is_refused(name: object) -> None:
    with pytest.raises(InvalidArgument, match="client_id"):
        ClientConfig(("a:1",), client_id=name)  # type: ignore[arg-type]  # no text on purpose
