"""What produce says of what was stored, and with which exit code."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self, cast

import pytest

from ringlog.client import Delivery
from ringlog.client.errors import (
    DeadlineExceeded,
    DeliveryUnknown,
    DiskFull,
    NoBrokerReachable,
    RinglogError,
    UnknownTopic,
)
from ringlog.tools.cli import main, produce
from ringlog.tools.cli.exits import Exit
from ringlog.tools.cli.produce import Ledger

Send = Callable[..., tuple[int, str]]
"""(content, *options) -> exit code and standard error."""

FULL = DiskFull("the disk is full")
UNKNOWN = DeliveryUnknown("no answer")


class Outcome:
    """A delivery that ends when it is told to, or when somebody waits for it."""

    def __init__(self, error: RinglogError | None = None, *, ended: bool = True) -> None:
        self.error = error
        self.ended = ended
        self.waited = False

    def done(self) -> bool:
        return self.ended

    def exception(self) -> RinglogError | None:
        self.waited = self.waited or not self.ended
        return self.error


def ledger_of(*outcomes: Outcome) -> Ledger:
    ledger = Ledger()
    for outcome in outcomes:
        ledger.add(cast("Delivery", outcome))
    return ledger


def test_what_ended_is_counted_with_the_next_record_and_nothing_is_waited_for() -> None:
    outcomes = [Outcome(), Outcome(), Outcome(ended=False), Outcome()]
    ledger = ledger_of(*outcomes)
    assert (ledger.sent, ledger.stored) == (4, 2)
    assert not any(outcome.waited for outcome in outcomes)
    ledger.finish()
    assert ledger.stored == 4
    assert ledger.failed is None


def test_a_failure_shows_with_the_next_record() -> None:
    first = Outcome(FULL, ended=False)
    ledger = ledger_of(Outcome(), first)
    first.ended = True
    ledger.add(cast("Delivery", Outcome(ended=False)))
    assert ledger.failed is FULL
    assert ledger.stored == 1


def test_stored_counts_without_a_gap_and_the_rest_apart() -> None:
    ledger = ledger_of(Outcome(), Outcome(FULL), Outcome(), Outcome(FULL), Outcome())
    ledger.finish()
    assert (ledger.stored, ledger.stored_behind) == (1, 2)
    assert ledger.failed is FULL
    assert ledger.unknown is False


@pytest.mark.parametrize("outcomes", [(UNKNOWN, None), (UNKNOWN, FULL), (FULL, None, UNKNOWN)])
def test_one_unknown_outcome_leaves_doubt(outcomes: tuple[RinglogError | None, ...]) -> None:
    ledger = ledger_of(Outcome(), *map(Outcome, outcomes))
    ledger.finish()
    assert ledger.unknown is True
    assert ledger.failed is outcomes[0]


def test_a_window_bounds_what_is_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "WINDOW", 3)
    outcomes = [Outcome(ended=False) for _ in range(5)]
    ledger_of(*outcomes)
    assert [outcome.waited for outcome in outcomes] == [True, True, True, False, False]


def test_an_interrupt_while_waiting_loses_no_count() -> None:
    class Interrupted(Outcome):
        def exception(self) -> RinglogError | None:
            if not self.waited:
                self.waited = True
                raise KeyboardInterrupt
            return None

    ledger = ledger_of(Interrupted(ended=False), Outcome())
    with pytest.raises(KeyboardInterrupt):
        ledger.finish()
    ledger.finish()
    assert ledger.stored == 2


class Producer:
    """Takes the place of `BatchProducer`: outcomes by record, errors raised by `send`."""

    made: ClassVar[list["Producer"]] = []
    outcomes: ClassVar[dict[bytes, RinglogError | None]] = {}
    raises: ClassVar[dict[bytes, BaseException]] = {}
    ended: ClassVar[bool] = True

    def __init__(self, servers: str | None, **settings: object) -> None:
        self.settings = settings
        self.sent: list[tuple[str, bytes, bytes | None, int | None]] = []
        self.closed_within: list[float | None] = []
        Producer.made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def send(
        self, topic: str, value: bytes, *, key: bytes | None, partition: int | None
    ) -> Outcome:
        if value in self.raises:
            raise self.raises[value]
        self.sent.append((topic, value, key, partition))
        return Outcome(self.outcomes.get(value), ended=self.ended)

    def close(self, timeout: float | None = None) -> None:
        self.closed_within.append(timeout)
        if len(self.closed_within) == 1 and timeout is not None:
            raise DeadlineExceeded("some were open")


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> type[Producer]:
    monkeypatch.setattr(produce, "BatchProducer", Producer)
    Producer.made, Producer.outcomes, Producer.raises, Producer.ended = [], {}, {}, True
    return Producer


@pytest.fixture
def send(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Send:
    def run(content: bytes, *options: str) -> tuple[int, str]:
        path = tmp_path / "input"
        path.write_bytes(content)
        code = main(["produce", "orders", "--file", str(path), *options])
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") <= 1
        return code, err

    return run


def test_lines_become_records(producer: type[Producer], send: Send) -> None:
    code, err = send(b"a\nb\r\n\nc")
    assert code == Exit.DONE
    assert err.startswith("4 records to orders in ")
    (made,) = producer.made
    assert made.sent == [("orders", value, None, None) for value in (b"a", b"b\r", b"", b"c")]
    assert made.settings["acks"] == "all"
    assert made.settings["compression"] is None


def test_options_reach_the_producer(producer: type[Producer], send: Send) -> None:
    options = ("--acks", "1", "--compression", "lz4", "--partitioner", "murmur2", "--quiet")
    more = ("--partition", "3", "--key-separator", ":", "--delimiter", r"\0")
    assert send(b"k:v:w\0:x", *options, *more) == (Exit.DONE, "")
    (made,) = producer.made
    assert made.sent == [("orders", b"v:w", b"k", 3), ("orders", b"x", b"", 3)]
    chosen = {name: made.settings[name] for name in ("acks", "compression", "partitioner")}
    assert chosen == {"acks": 1, "compression": "lz4", "partitioner": "murmur2"}


def test_a_failure_ends_it_at_once_and_says_where_to_resume(
    producer: type[Producer], send: Send
) -> None:
    producer.outcomes = {b"b": FULL}
    code, err = send(b"a\nb\nc\nd\n")
    assert code == Exit.FAILED
    assert err == (
        "ringlog produce: the disk is full; the first 1 records are stored; resume at record 2\n"
    )


def test_what_is_stored_behind_a_failure_would_come_twice(
    producer: type[Producer], send: Send
) -> None:
    producer.outcomes, producer.ended = {b"b": FULL}, False
    code, err = send(b"a\nb\nc\nd\n")
    assert code == Exit.FAILED
    assert err.endswith(
        "resume at record 2; 2 behind it are stored too and would be stored again\n"
    )


def test_an_unknown_outcome_is_exit_5(producer: type[Producer], send: Send) -> None:
    producer.outcomes = {b"b": UNKNOWN}
    code, err = send(b"a\nb\n")
    assert code == Exit.UNKNOWN
    assert "resume at record 2, which may be stored already" in err


def test_a_failure_with_unknown_outcomes_behind_it_is_exit_5(
    producer: type[Producer], send: Send
) -> None:
    producer.outcomes, producer.ended = {b"b": FULL, b"c": UNKNOWN}, False
    code, err = send(b"a\nb\nc\n")
    assert code == Exit.UNKNOWN
    assert "the disk is full" in err
    assert "resume at record 2, which may be stored already, as may those behind it" in err


def test_a_line_without_key_is_named(producer: type[Producer], send: Send) -> None:
    code, err = send(b"k:v\nnone\nk:w\n", "--key-separator", ":")
    assert code == Exit.USAGE
    assert "record 2 of the input has no b':'" in err
    assert "the first 1 records are stored; resume at record 2" in err


def test_an_error_of_send_ends_it_and_what_was_sent_is_counted(
    producer: type[Producer], send: Send
) -> None:
    producer.raises = {b"c": NoBrokerReachable("nobody")}
    code, err = send(b"a\nb\nc\n")
    assert code == Exit.UNREACHABLE
    assert "nobody; the first 2 records are stored; resume at record 3" in err


def test_nothing_sent_is_a_plain_error(producer: type[Producer], send: Send) -> None:
    producer.raises = {b"a": UnknownTopic("no topic 'orders'", hint="make it")}
    assert send(b"a\n") == (Exit.REFUSED, "ringlog: no topic 'orders'; make it\n")


def test_ctrl_c_gives_what_is_on_its_way_a_moment_and_says_where_to_resume(
    producer: type[Producer], send: Send
) -> None:
    producer.raises = {b"c": KeyboardInterrupt()}
    code, err = send(b"a\nb\nc\n")
    assert code == Exit.INTERRUPTED
    assert err == (
        "ringlog produce: interrupted; the first 2 records are stored; resume at record 3\n"
    )
    assert producer.made[0].closed_within[0] == produce.INTERRUPTED_TIMEOUT_S


def test_standard_input_is_read_without_a_file(
    producer: type[Producer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x\ny\n")
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(path.open("rb"))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        assert main(["produce", "orders", "--quiet"]) == Exit.DONE
    assert [value for _topic, value, *_ in producer.made[0].sent] == [b"x", b"y"]


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ((), Exit.USAGE, "Missing argument 'TOPIC'"),
        (("t", "--acks", "2"), Exit.USAGE, "Invalid value for '--acks'"),
        (("t", "--partition", "-1"), Exit.USAGE, "Invalid value for '--partition'"),
        (("t", "--compression", "zip"), Exit.USAGE, "Invalid value for '--compression'"),
        (("t", "--delimiter", ""), Exit.USAGE, "--delimiter is empty"),
        (("t", "--delimiter", r"\q"), Exit.USAGE, "is no escape"),
        (("t", "--file", "/nowhere/at/all"), Exit.REFUSED, "/nowhere/at/all: No such file"),
    ],
)
def test_usage(
    options: tuple[str, ...], code: Exit, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", *options]) == code
    assert text in capsys.readouterr().err
