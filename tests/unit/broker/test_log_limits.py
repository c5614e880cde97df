"""Log lines that peers can cause: budget, count of what was left out, escaping."""

import logging

import pytest

from ringlog.broker.log_limits import MAX_TEXT, LimitedLog, escaped

LOGGER = logging.getLogger("ringlog.broker.test")


def test_lines_of_a_kind_are_bounded_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = LimitedLog(LOGGER, burst=2, interval_ms=100)
    for _ in range(10):
        log.log("noise", logging.WARNING, 0, "noise from %s", "peer")
    log.log("other", logging.WARNING, 0, "another kind")
    assert [record.getMessage() for record in caplog.records] == [
        "noise from peer",
        "noise from peer",
        "another kind",
    ]
    caplog.clear()
    log.log("noise", logging.WARNING, 100, "noise again")
    assert [record.getMessage() for record in caplog.records] == [
        "8 more lines about noise were left out",
        "noise again",
    ]


def test_tracebacks_share_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    log = LimitedLog(LOGGER, burst=1, interval_ms=100)
    for _ in range(3):
        log.failure("bugs", ValueError("planted"), 0, "it failed")
    assert caplog.text.count("planted") == 1


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "\u202eabc", "\x00", "ü"])
def test_untrusted_text_cannot_write_lines_or_control_codes(text: str) -> None:
    assert escaped(text).isascii()
    assert escaped(text).isprintable()


def test_long_text_is_cut() -> None:
    assert len(escaped("x" * 100_000)) <= MAX_TEXT + 3
