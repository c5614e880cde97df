"""A record as JSON loses no byte."""

import base64
import json

from ringlog.tools.cli.json_records import json_record


def test_text_is_text_and_other_bytes_are_base64() -> None:
    row = json_record(5, b"k", bytes(range(256)), [("h", b"\xff"), ("n", None), ("t", b"x")])
    assert json.loads(json.dumps(row)) == {
        "timestamp": 5,
        "key": "k",
        "value_base64": base64.b64encode(bytes(range(256))).decode(),
        "headers": [
            {"name": "h", "value_base64": "/w=="},
            {"name": "n", "value": None},
            {"name": "t", "value": "x"},
        ],
    }


def test_what_is_not_there_is_null_and_what_is_empty_is_empty() -> None:
    row = json_record(-1, None, b"", [])
    assert row == {"timestamp": -1, "key": None, "value": "", "headers": []}
