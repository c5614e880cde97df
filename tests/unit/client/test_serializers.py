"""Values, keys and headers to bytes."""

import pytest

from ringlog.client.errors import InvalidArgument, SerializationFailed
from ringlog.client.serializers import to_bytes, to_headers


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (b"x", b"x"),
        ("ü", b"\xc3\xbc"),
        (None, None),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
    ],
)
def test_bytes_text_and_none_need_no_serializer(value: object, raw: bytes | None) -> None:
    result = to_bytes("value", value, None)
    assert result == raw
    assert result is None or type(result) is bytes


def test_anything_else_needs_one() -> None:
    with pytest.raises(InvalidArgument, match="the key is a dict") as caught:
        to_bytes("key", {}, None)
    assert "key_serializer" in caught.value.hint


def test_a_serializer_sees_every_value_none_too() -> None:
    assert to_bytes("value", None, repr) == b"None"
    assert to_bytes("value", 3, lambda _: None) is None


def test_what_it_raises_becomes_the_cause() -> None:
    def bad(_value: object) -> bytes:
        raise KeyError("id")

    with pytest.raises(SerializationFailed, match="KeyError") as caught:
        to_bytes("value", 3, bad)
    assert isinstance(caught.value.__cause__, KeyError)


def test_what_it_returns_is_checked() -> None:
    with pytest.raises(InvalidArgument):
        to_bytes("value", 3, lambda _: 3)  # type: ignore[arg-type,return-value]  # on purpose


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no valid Unicode"):
        to_bytes("value", "\udc80", None)
    with pytest.raises(InvalidArgument, match="no valid Unicode"):
        to_headers({"\udc80": b""})


def test_headers_from_a_mapping_or_pairs() -> None:
    wanted = (("a", b"1"), ("b", b"\xc3\xbc"), ("c", None))
    assert to_headers({"a": b"1", "b": "ü", "c": None}) == wanted
    assert to_headers([("a", b"1"), ("b", "ü"), ("c", None)]) == wanted
    assert to_headers([("a", b"1"), ("a", b"2")]) == (("a", b"1"), ("a", b"2"))


@pytest.mark.parametrize("bad", [3, [3], [("a", 1)], {b"a": b"b"}, [("a", b"b", b"c")], {"a": 1}])
def test_bad_headers(bad: object) -> None:
    with pytest.raises(InvalidArgument):
        to_headers(bad)  # type: ignore[arg-type]  # on purpose
