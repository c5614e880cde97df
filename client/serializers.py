"""Values, keys and headers as users give them, to bytes.

Owns the rule: bytes go through, text becomes UTF-8, None stays None (a tombstone), anything else
needs a serializer. Must not know topics or batches.

Invariants:
    Z1  What comes out is bytes or None; everything else raises before a record exists.
    Z2  An exception of a serializer becomes `SerializationFailed` with it as the cause.
"""

from collections.abc import Callable, Iterable, Mapping

from ringlog.client.errors import InvalidArgument, SerializationFailed

Serializer = Callable[[object], bytes | str | None]

HeaderValue = bytes | str | None
HeadersLike = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]
Headers = tuple[tuple[str, bytes | None], ...]


def to_bytes(what: str, value: object, serializer: Serializer | None) -> bytes | None:
    """`value` as bytes. `what` ("value" or "key") goes into the error's text.

    Raises:
        SerializationFailed: the serializer raised.
        InvalidArgument: neither bytes, text nor None.
    """
    if serializer is not None:
        try:
            value = serializer(value)
        except Exception as error:
            raise SerializationFailed(
                f"the {what} serializer raised {type(error).__name__}: {error}",
                hint="the record was not sent",
            ) from error
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, str):
        return _utf8(what, value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(
        f"the {what} is a {type(value).__name__}",
        hint=f"give bytes, text or None, or set {what}_serializer",
    )


def to_headers(headers: HeadersLike) -> Headers:
    """Headers as a tuple of (name, bytes or None) pairs, in the order given.

    Raises:
        InvalidArgument: a name that is no text, or a value that is neither bytes, text nor None.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple([(_name(name), _header_value(name, value)) for name, value in pairs])
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(
            f"headers are {headers!r}", hint="give a mapping or (name, value) pairs"
        ) from error


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"header name {name!r} is not a text")
    _utf8("header name", name)
    return name


def _header_value(name: object, value: object) -> bytes | None:
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, str):
        return _utf8(f"header {name!r}", value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(
        f"header {name!r} is a {type(value).__name__}", hint="give bytes, text or None"
    )


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"the {what} is no valid Unicode text: {error.reason}") from error
