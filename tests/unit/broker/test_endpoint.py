"""Addresses of listeners: what parses, who can reach them."""

import pytest

from ringlog.broker.endpoint import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:5555", Endpoint("127.0.0.1", 5555)),
        ("[::1]:5555", Endpoint("::1", 5555)),
        ("localhost:0", Endpoint("localhost", 0)),
        ("0.0.0.0:65535", Endpoint("0.0.0.0", 65535)),
    ],
)
def test_listeners_parse_and_print_the_same(text: str, expected: Endpoint) -> None:
    assert parse_endpoint(text, listener=True) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    ["", "5555", ":5555", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1",
     "::1:5555", "127.0.0.1:٣", "broker.example.org:5555", "127.0.0.1:999999999999", "[::1]"],
)  # fmt: skip
def test_what_is_no_listener_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_endpoint(text, listener=True)


def test_advertised_names_are_free_but_need_a_port() -> None:
    name = "broker.example.org:5555"
    assert parse_endpoint(name, listener=False) == Endpoint("broker.example.org", 5555)
    for bad in ("broker.example.org:0", "bro ker:5555", "bro\x1bker:5555"):
        with pytest.raises(ValueError, match=r".+"):
            parse_endpoint(bad, listener=False)


@pytest.mark.parametrize(
    ("host", "loopback", "wildcard"),
    [
        ("127.0.0.1", True, False),
        ("127.8.9.1", True, False),
        ("localhost", True, False),
        ("::1", True, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("10.0.0.1", False, False),
        ("localhost.example.org", False, False),
        ("::ffff:10.0.0.1", False, False),
    ],
)
def test_who_can_reach_a_listener(host: str, loopback: bool, wildcard: bool) -> None:
    assert Endpoint(host, 1).is_loopback is loopback
    assert Endpoint(host, 1).is_wildcard is wildcard


def test_localhost_is_listened_on_by_number() -> None:
    assert Endpoint("localhost", 1).address == "127.0.0.1"
