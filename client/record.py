"""The record a consumer hands out.

Owns its shape. Must not know fetching, positions or how a batch is decoded.
"""

from typing import Any

import msgspec


class Record(msgspec.Struct, gc=False, frozen=True):
    """One record as an application sees it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1: none."""
    key: Any
    """bytes or None, or what `key_deserializer` made of it."""
    value: Any
    """bytes or None, or what `value_deserializer` made of it."""
    headers: tuple[tuple[str, bytes | None], ...]
    """(name, value) pairs in the order sent; a name may come twice."""
    attempt: int = 1
    """1 on the first delivery. Without a group there is no other."""
