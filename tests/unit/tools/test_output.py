"""What reaches a terminal: no control code of somebody else."""

import io
import json
import logging
import sys

import pytest

from ringlog.tools.cli import output

EVIL = "a\x1b[31mred\x07\r\x9b1m\u202eb"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", ["plain", "grüße €", "tab inside", ""])
def test_printable_text_stays(text: str) -> None:
    assert output.visible(text) == text


def test_control_and_direction_characters_are_spelled_out() -> None:
    assert output.visible(EVIL) == r"a\x1b[31mred\x07\r\x9b1m\u202eb"
    assert output.visible("a\nb\tc") == r"a\nb\tc"


def test_record_bytes_for_a_terminal_keep_tabs_and_utf8_only() -> None:
    assert output.visible_bytes("ü\t1".encode()) == "ü\t1".encode()
    assert output.visible_bytes(b"\xff\x1b[2J\n") == rb"\xff\x1b[2J\n"
    assert output.visible_bytes(EVIL.encode()).isascii()


def test_messages_tables_and_titles_are_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    output.say(EVIL)
    output.print_table(("name",), [(EVIL,), ("[bold]no markup[/bold]",)], title=EVIL)
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert out.count(r"\x1b[31mred") == 2
    assert "[bold]no markup[/bold]" in out


def test_json_for_a_program_is_utf8_and_for_a_terminal_ascii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = {"name": f"ü{EVIL}"}
    for stream, ascii_only in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stdout", stream)
        output.print_json(value)
        assert json.loads(stream.getvalue()) == value
        assert stream.getvalue().count("\n") == 1
        assert stream.getvalue().isascii() is ascii_only


def test_a_bar_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, total, shown in (
        (io.StringIO(), 3, False),
        (Terminal(), None, False),
        (Terminal(), 3, True),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        with output.bar("reading", total) as advance:
            advance(2)
        assert ("reading" in stream.getvalue()) is shown


def test_progress_passes_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(output.progress([3, 1, 2], "reading")) == [3, 1, 2]
    assert list(output.progress([], "reading")) == []


def test_warnings_of_the_client_are_lines_and_can_be_kept_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = logging.getLogger("ringlog.client")
    for _ in range(2):
        output.show_warnings()
    log.info("nothing for people")
    log.warning("%s\nwas %s", "a\x1b", "lost")
    assert capsys.readouterr() == ("", "ringlog: a\\x1b was lost\n")
    with output.without_warnings():
        log.warning("said by the command")
        log.error("a bug")
    assert capsys.readouterr().err == "ringlog: a bug\n"
    log.warning("again")
    assert capsys.readouterr().err == "ringlog: again\n"
