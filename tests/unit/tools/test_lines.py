"""A stream cut into records: nothing lost, whatever the pieces it comes in."""

import io
import tracemalloc
from collections.abc import Iterator
from typing import BinaryIO, cast

import pytest

from ringlog.client.errors import RecordTooLarge
from ringlog.tools.cli.lines import records_of


class InPieces(io.RawIOBase):
    """A stream that gives `size` bytes at a time, as a pipe may."""

    def __init__(self, content: bytes, size: int) -> None:
        self._pieces = [content[i : i + size] for i in range(0, len(content), size)]

    def read1(self, size: int) -> bytes:
        assert size > 0
        return self._pieces.pop(0) if self._pieces else b""


def cut(content: bytes, delimiter: bytes, size: int, limit: int = 1000) -> list[bytes]:
    stream = cast("BinaryIO", InPieces(content, size))
    return list(records_of(stream, delimiter, limit, lambda _: None))


CONTENTS = [
    b"",
    b"\n",
    b"a",
    b"a\n",
    b"\n\n\n",
    b"one\r\ntwo\r\n\r\nthree",
    b"aaa\xff\x00aa\naaaaa",
    b"ababaabab\nab",
    bytes(range(256)) * 2,
]


@pytest.mark.parametrize("delimiter", [b"\n", b"a", b"aa", b"ab", b"aba", b"\r\n", b"\0"])
@pytest.mark.parametrize("content", CONTENTS)
def test_records_are_those_of_one_split_in_pieces_of_any_size(
    content: bytes, delimiter: bytes
) -> None:
    expected = content.split(delimiter)
    if not expected[-1]:
        expected.pop()
    for size in range(1, len(content) + 2):
        records = cut(content, delimiter, size)
        assert records == expected, size
        joined = b"".join(record + delimiter for record in records)
        assert joined in {content, content + delimiter}


def test_a_record_over_the_limit_is_named_by_its_number() -> None:
    with pytest.raises(RecordTooLarge, match="record 3 of the input is longer than 10 bytes"):
        cut(b"a\nb\n" + b"x" * 30, b"\n", 4, 10)


def test_a_long_record_in_small_pieces_costs_no_more_than_a_few_times_its_size() -> None:
    content = b"x" * 1_000_000
    tracemalloc.start()
    try:
        assert cut(content, b"\n", 1000, 2_000_000) == [content]
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_each_piece_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Counting(bytearray):
        def find(self, sought: bytes, begin: int = 0) -> int:  # type: ignore[override]  # narrower on purpose
            seen.append(len(self) - begin)
            return super().find(sought, begin)

    monkeypatch.setattr("ringlog.tools.cli.lines.bytearray", Counting, raising=False)
    assert cut(b"x" * 1000, b"\r\n", 10, 2000) == [b"x" * 1000]
    assert sum(seen) <= 1000 + 100 * 2


def test_records_come_as_soon_as_their_delimiter_did() -> None:
    class Slow(InPieces):
        def read1(self, size: int) -> bytes:
            log.append("read")
            return super().read1(size)

    log: list[object] = []
    records: Iterator[bytes] = records_of(
        cast("BinaryIO", Slow(b"a\nb\n", 2)), b"\n", 10, log.append
    )
    for record in records:
        log += [record]
    assert log == ["read", 2, b"a", "read", 2, b"b", "read"]


def test_a_stream_without_read1_is_read_in_chunks() -> None:
    class Plain:
        def __init__(self) -> None:
            self._under = io.BytesIO(b"a\nb")

        def read(self, size: int) -> bytes:
            return self._under.read(size)

    assert list(records_of(cast("BinaryIO", Plain()), b"\n", 10, lambda _: None)) == [b"a", b"b"]
