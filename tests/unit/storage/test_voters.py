"""The body of a configuration entry."""

import pytest

from ringlog.storage.errors import WrongDirectory
from ringlog.storage.voters import decode_voters, encode_voters


def test_voters_read_back_sorted() -> None:
    assert decode_voters(encode_voters(["c", "a", "b"])) == ("a", "b", "c")
    assert decode_voters(encode_voters([])) == ()


@pytest.mark.parametrize("body", [b"", b"\x02[]"])
def test_another_format_is_refused(body: bytes) -> None:
    with pytest.raises(WrongDirectory, match="format"):
        decode_voters(body)
