"""What the log says of partitions, and that it says it once."""

import logging

import pytest

from ringlog.broker.partition_news import PartitionNews
from ringlog.storage.segment_recovery import RecoveryReport
from ringlog.storage.types import LOG_BEGIN, Offset, Position, TopicPartition
from tests.unit.broker.core_bench import Bench, batch

WHOLE = RecoveryReport(clean=False, end=Position(Offset(4), 2), mark=LOG_BEGIN, rewritten_bytes=9)
CUT = RecoveryReport(
    clean=False, end=Position(Offset(4), 2), mark=LOG_BEGIN, cut_bytes=7, cut_reason="too short"
)
CLEAN = RecoveryReport(clean=True, end=LOG_BEGIN, mark=LOG_BEGIN, rebuilt=["x.index"])


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ringlog.broker")


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_partitions_recovered_whole_share_one_line(caplog: pytest.LogCaptureFixture) -> None:
    news = PartitionNews(lambda: 0)
    for number in range(50):
        news.opened(TopicPartition("t", number), WHOLE)
    news.opened(TopicPartition("t", 50), CLEAN)
    assert caplog.records == []
    news.started()
    news.started()
    (line,) = lines(caplog, logging.INFO)
    assert line.startswith("partitions that were not closed in order: 50;")
    assert lines(caplog, logging.WARNING) == []


def test_what_was_cut_is_warned_of_in_words(caplog: pytest.LogCaptureFixture) -> None:
    news = PartitionNews(lambda: 0)
    news.opened(TopicPartition("t", 3), CUT)
    news.started()
    assert lines(caplog, logging.INFO) == []
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith("partition t-3: cut 7 bytes and 0 own entries")
    assert line.endswith("too short; the log ends at offset 4")


def test_no_note_shows_how_python_writes_a_position() -> None:
    notes = " ".join([*WHOLE.notes(), *CUT.notes(), *CLEAN.notes()])
    assert "Position(" not in notes
    assert "flushed up to offset 0, recovered to offset 4" in notes


def test_moves_of_the_log_start_are_told_a_few_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0
    news = PartitionNews(lambda: now_ms)
    for number in range(100):
        news.log_start_moved(TopicPartition("t", number), Offset(9), was_asked=False)
    told = lines(caplog, logging.INFO)
    assert told[0] == "partition t-0: retention removed the records below offset 9"
    assert len(told) == 5
    now_ms = 60_000
    news.log_start_moved(TopicPartition("t", 7), Offset(10), was_asked=True)
    assert lines(caplog, logging.WARNING) == [
        "95 more lines about moves of the log start were left out"
    ]
    assert lines(caplog, logging.INFO)[-1].startswith("partition t-7: a request removed")


def test_a_broker_that_was_killed_says_once_that_all_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.create(partitions=8)
    bench.produce(batch())
    caplog.clear()
    after = bench.crashed()
    assert after.fetch() == [0]
    assert caplog.text.count("not closed in order: 8;") == 1
    assert lines(caplog, logging.WARNING) == []


def test_a_delete_of_records_and_retention_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(retention_check_interval_ms=1000)
    bench.create(retention_ms="60000", segment_ms="1000")
    bench.produce(batch(), batch())
    bench.delete_records(1)
    assert "partition t-0: a request removed the records below offset 1" in caplog.text
    bench.advance(600_000)
    assert "partition t-0: retention removed the records below offset 2" in caplog.text
