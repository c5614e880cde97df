"""Bodies of own entries."""

import pytest

from ringlog.replication.entries import decode_log_start, encode_log_start
from ringlog.storage.errors import WrongDirectory
from ringlog.storage.types import Offset


@pytest.mark.parametrize("offset", [0, 1, 2**63 - 1])
def test_a_log_start_comes_back(offset: int) -> None:
    assert decode_log_start(encode_log_start(Offset(offset))) == offset


def test_the_bytes_are_those_documented() -> None:
    assert encode_log_start(Offset(258)) == bytes.fromhex("01" + "0000000000000102")


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x02" + bytes(8), b"\x01" + bytes(9)])
def test_another_format_is_refused_with_the_way_out(body: bytes) -> None:
    with pytest.raises(WrongDirectory) as caught:
        decode_log_start(body)
    assert "newer" in caught.value.hint
