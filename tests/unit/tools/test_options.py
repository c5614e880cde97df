"""What people type becomes bytes and settings, or a named error."""

import pytest

from ringlog.client.errors import InvalidArgument
from ringlog.tools.cli.options import bytes_from, settings_from


@pytest.mark.parametrize(
    ("typed", "data"),
    [
        (r"\n", b"\n"),
        (r"\r\n", b"\r\n"),
        (r"\t", b"\t"),
        (r"\0", b"\0"),
        (r"\x00\xFf", b"\x00\xff"),
        (r"\\", b"\\"),
        (r"\\n", b"\\n"),
        (":", b":"),
        ("--", b"--"),
        ("é€", "é€".encode()),
        (r"€\n", "€\n".encode()),
        ("\udcff", b"\xff"),  # a byte that is no UTF-8, as the interpreter hands it over
        ("\n", b"\n"),
    ],
)
def test_escapes_and_everything_else_as_typed(typed: str, data: bytes) -> None:
    assert bytes_from(typed) == data


@pytest.mark.parametrize("typed", ["\\", r"\q", r"\x", r"\x1", r"\xzz", r"\u0041", "a\\"])
def test_another_escape_is_refused_and_those_there_are_are_named(typed: str) -> None:
    with pytest.raises(InvalidArgument, match=r"--key-separator: .* is no escape") as caught:
        bytes_from(typed, "--key-separator")
    assert r"\xNN" in caught.value.hint


def test_nothing_is_no_delimiter() -> None:
    with pytest.raises(InvalidArgument, match="--delimiter is empty"):
        bytes_from("")


def test_settings_may_hold_equals_signs_and_be_empty() -> None:
    assert settings_from(("a=1", "b=x=y", "c=")) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("pair", ["retention.ms", "=5", ""])
def test_a_setting_without_name_or_value_is_refused(pair: str) -> None:
    with pytest.raises(InvalidArgument, match="is not NAME=VALUE"):
        settings_from((pair,))


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"gives a twice: '1' and '2'.*each setting once"):
        settings_from(("a=1", "b=1", "a=2"))
