"""What consume writes, where it begins and when it ends."""

import io
import json
import sys
from collections.abc import Iterable
from typing import ClassVar, Self

import pytest

from ringlog.client import Record, TopicPartition
from ringlog.client.errors import PartitionDamaged, RinglogError
from ringlog.tools.cli import consume, main
from ringlog.tools.cli.exits import Exit


class Output(io.TextIOWrapper):
    """A standard output that is a terminal, or not."""

    def __init__(self, *, terminal: bool) -> None:
        self.raw_bytes = io.BytesIO()
        self.terminal = terminal
        super().__init__(self.raw_bytes, encoding="utf-8")

    def isatty(self) -> bool:
        return self.terminal


def record(
    offset: int, value: bytes | None, partition: int = 0, key: bytes | None = None
) -> Record:
    return Record(
        topic="t", partition=partition, offset=offset, timestamp=7, key=key, value=value, headers=()
    )


class Log:
    """Takes the place of `Consumer`: partitions in memory; some records come late."""

    made: ClassVar[list["Log"]] = []
    partitions: ClassVar[dict[int, list[Record]]] = {}
    late: ClassVar[list[Record]] = []
    """Appended to their partitions once `end_offsets` was asked."""
    error: ClassVar[RinglogError | None] = None
    """Raised by the first poll that finds nothing."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings
        self.at: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.polls = 0
        Log.made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def subscribe(self, topic: str) -> None:
        self.assign(TopicPartition(topic, number) for number in self.partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        latest = self.settings["auto_offset_reset"] == "latest"
        self.at = {one: len(self.partitions[one.partition]) if latest else 0 for one in partitions}

    @property
    def assignment(self) -> set[TopicPartition]:
        return set(self.at)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.at[TopicPartition(topic, partition)] = offset

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        ends = {one: len(self.partitions[one.partition]) for one in partitions}
        for late in self.late:
            self.partitions[late.partition].append(late)
        return ends

    def position(self, topic: str, partition: int) -> int:
        return self.at[TopicPartition(topic, partition)]

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)

    def poll(self, timeout: float, max_records: int) -> list[Record]:
        assert max_records >= 1
        self.polls += 1
        assert self.polls < 100, "it does not end"
        found: list[Record] = []
        for one, begin in self.at.items():
            if one not in self.paused:
                some = self.partitions[one.partition][begin : begin + max_records - len(found)]
                self.at[one] += len(some)
                found += some
        if not found:
            raise self.error if self.error is not None else KeyboardInterrupt
        return found


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> type[Log]:
    monkeypatch.setattr(consume, "Consumer", Log)
    Log.made, Log.late, Log.error = [], [], None
    Log.partitions = {
        0: [record(i, b"a%d" % i) for i in range(5)],
        1: [],
        2: [record(i, b"c%d" % i, 2) for i in range(3)],
    }
    return Log


class Captured:
    """Standard output so far, in bytes."""

    def __init__(self, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
        self._capsys = capsysbinary
        self._read = b""

    @property
    def written(self) -> bytes:
        self._read += self._capsys.readouterr().out
        return self._read


@pytest.fixture
def output(capsysbinary: pytest.CaptureFixture[bytes]) -> Captured:
    return Captured(capsysbinary)


ALL = ("consume", "t", "--from-beginning", "--until-end")


def test_until_end_is_the_end_there_was_at_the_start(log: type[Log], output: Captured) -> None:
    log.late = [record(5, b"late"), record(0, b"late", 1), record(3, b"late", 2)]
    assert main(ALL) == Exit.DONE
    assert output.written == b"a0\na1\na2\na3\na4\nc0\nc1\nc2\n"


def test_a_partition_at_its_end_is_paused_so_that_late_records_hold_nobody_up(
    log: type[Log], output: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "POLL_RECORDS", 1)
    log.late = [record(5 + i, b"late") for i in range(50)]
    assert main(ALL) == Exit.DONE
    assert output.written.count(b"\n") == 8
    assert log.made[0].polls == 8
    assert len(log.made[0].paused) == 3


def test_nothing_to_read_ends_at_once(log: type[Log], output: Captured) -> None:
    log.partitions = {0: [], 1: []}
    assert main(ALL) == Exit.DONE
    assert main(("consume", "t", "--until-end")) == Exit.DONE
    assert output.written == b""
    assert [made.polls for made in log.made] == [0, 0]


@pytest.mark.parametrize(("most", "count"), [(1, 1), (5, 5), (8, 8), (100, 8)])
def test_max_records_with_until_end(
    log: type[Log], output: Captured, most: int, count: int
) -> None:
    assert main((*ALL, "--max-records", str(most))) == Exit.DONE
    assert output.written.count(b"\n") == count


def test_max_records_without_end_and_ctrl_c(log: type[Log], output: Captured) -> None:
    assert main(("consume", "t", "--from-beginning", "--max-records", "7")) == Exit.DONE
    assert output.written.count(b"\n") == 7
    assert main(("consume", "t", "--from-beginning")) == Exit.INTERRUPTED
    assert output.written.count(b"\n") == 7 + 8


def test_it_starts_at_the_end_unless_told_otherwise(log: type[Log], output: Captured) -> None:
    assert main(("consume", "t")) == Exit.INTERRUPTED
    assert main(("consume", "t", "--partition", "2", "--offset", "1", "--until-end")) == Exit.DONE
    assert main((*ALL, "--partition", "0")) == Exit.DONE
    assert output.written == b"c1\nc2\na0\na1\na2\na3\na4\n"


def test_what_was_read_before_an_error_is_written(log: type[Log], output: Captured) -> None:
    log.error = PartitionDamaged("t-0 is damaged", hint="verify it")
    assert main(("consume", "t", "--from-beginning")) == Exit.DAMAGED
    assert output.written.count(b"\n") == 8


def test_keys_and_delimiters_as_asked_for(log: type[Log], output: Captured) -> None:
    log.partitions = {0: [record(0, b"v\n", key=b"k"), record(1, None), record(2, b"", key=b"")]}
    assert main((*ALL, "--delimiter", r"\0", "--print-key", "--key-separator", "=")) == Exit.DONE
    assert output.written == b"k=v\n\0=\0=\0"


def test_bytes_are_raw_unless_it_is_a_terminal(
    log: type[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.partitions = {0: [record(0, b"\x1b[2J\xff\n", key=b"\x07")]}
    for terminal, expected in (
        (False, b"\x07:\x1b[2J\xff\n\n"),
        (True, rb"\x07:\x1b[2J\xff\n" + b"\n"),
    ):
        stream = Output(terminal=terminal)
        monkeypatch.setattr(sys, "stdout", stream)
        assert main((*ALL, "--print-key")) == Exit.DONE
        assert stream.raw_bytes.getvalue() == expected


def test_json_is_an_object_per_line(log: type[Log], output: Captured) -> None:
    log.partitions = {0: [record(0, b"\xff", key=b"k"), record(1, b"a\nb")]}
    assert main((*ALL, "--format", "json")) == Exit.DONE
    first, second = map(json.loads, output.written.splitlines())
    assert first == {"topic": "t", "partition": 0, "offset": 0, "timestamp": 7, "key": "k",
                     "value_base64": "/w==", "headers": []}  # fmt: skip
    assert (second["key"], second["value"]) == (None, "a\nb")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--offset", "5"), "--offset needs --partition"),
        (("--offset", "5", "--partition", "0", "--from-beginning"), "excludes --from-beginning"),
        (("--offset", "-1", "--partition", "0"), "Invalid value for '--offset'"),
        (("--partition", "-1"), "Invalid value for '--partition'"),
        (("--max-records", "0"), "Invalid value for '--max-records'"),
        (("--format", "xml"), "Invalid value for '--format'"),
        (("--delimiter", ""), "--delimiter is empty"),
        (("--print-key", "--key-separator", r"\q"), "--key-separator: "),
    ],
)
def test_usage(
    log: type[Log], options: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("consume", "t", *options)) == Exit.USAGE
    assert text in capsys.readouterr().err
    assert log.made == []
