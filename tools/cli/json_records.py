"""A record as a JSON object, the same in every command.

Owns the names of its fields and what becomes of bytes that are no text. Must not know where a
record comes from.

Invariants:
    JR1 Bytes survive: what is not UTF-8 is base64, under a name that says so.
"""

import base64
from collections.abc import Sequence


def json_record(
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> dict[str, object]:
    """What a record holds, without its place."""
    return {
        "timestamp": timestamp_ms,
        **_field("key", key),
        **_field("value", value),
        "headers": [{"name": name, **_field("value", content)} for name, content in headers],
    }


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
