"""The log in memory: positions, rolling, retention, log start."""

import dataclasses

import pytest

from ringlog.storage.errors import OffsetOutOfRange
from ringlog.storage.log_config import LogConfig
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import LeaderEpoch, Offset, Position
from tests.crash.log_harness import CONFIG, Harness, replay


def started(config: LogConfig = CONFIG) -> Harness:
    harness = Harness(SimulatedDisk(), config)
    harness.start()
    harness.append_own()
    harness.flush()
    return harness


def bases(harness: Harness) -> list[int]:
    return [segment.base_offset for segment in harness.log._segments]


def test_a_topic_starts_at_offset_0_and_an_election_makes_no_gap() -> None:
    harness = started()
    harness.append(2, None, 1)
    harness.append_own()
    harness.append(1, None, 1)
    assert harness.log.end == Position(Offset(3), 2)


def test_positions_move_when_a_job_is_written_and_when_it_is_flushed() -> None:
    harness = started()
    harness.append(2, None, 1)
    log = harness.log
    assert (log.end.offset, log.written.offset, log.durable.offset) == (2, 0, 0)
    job = log.take_job()
    assert job is not None
    assert log.take_job() is None  # one at a time
    job.write()
    assert log.written.offset == 0
    job.sync()
    job.mark()
    log.on_job_done(job)
    assert (log.written.offset, log.durable.offset) == (2, 2)
    assert log.take_job() is None  # nothing pending


def test_a_job_taken_before_a_truncation_moves_nothing() -> None:
    harness = started()
    harness.append(1, None, 1)
    harness.append(1, None, 1)
    log = harness.log
    job = log.take_job()
    assert job is not None
    log.truncate(Position(Offset(1), 1))
    job.write()
    job.sync()
    job.mark()
    log.on_job_done(job)
    assert log.durable == log.written == Position(Offset(0), 1)
    harness.flush()
    assert log.durable == log.end == Position(Offset(1), 1)


def test_a_segment_is_closed_by_size_and_by_age_but_never_empty() -> None:
    harness = started(dataclasses.replace(CONFIG, segment_size_bytes=300, segment_age_ms=1000))
    harness.append(1, None, 1, 400)  # larger than a segment: alone
    harness.append(1, None, 1)
    assert bases(harness) == [0, 1]
    harness.now_ms += 1000
    harness.log.roll_if_old(harness.now_ms)
    assert bases(harness) == [0, 1, 2]
    harness.now_ms += 1000
    harness.log.roll_if_old(harness.now_ms)
    assert bases(harness) == [0, 1, 2]
    harness.append(1, None, 1)
    harness.now_ms += 1000
    harness.append(1, None, 1)
    assert bases(harness) == [0, 1, 2, 3]


def test_the_age_of_a_segment_outlives_a_clean_restart() -> None:
    harness = started(dataclasses.replace(CONFIG, segment_age_ms=1000))
    harness.append(1, None, 1)
    harness.now_ms += 900
    harness.restart_cleanly()
    harness.now_ms += 200
    harness.log.roll_if_old(harness.now_ms)
    assert bases(harness) == [0, 1]


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "after_ms", "expected"),
    [
        (-1, -1, 10**9, None),
        (5_000, -1, 4_999, None),
        (5_000, -1, 5_000, 3),  # the active segment stays
        (-1, 10**6, 0, None),
        (-1, 1200, 0, 1),
        (-1, 600, 0, 2),
        (-1, 0, 0, 3),
    ],
)
def test_retention_drops_whole_closed_segments_oldest_first(
    retention_ms: int, retention_bytes: int, after_ms: int, expected: int | None
) -> None:
    harness = started(dataclasses.replace(CONFIG, segment_size_bytes=500, segment_age_ms=10**8))
    for _i in range(4):
        harness.append(1, None, 1, 500)
    log = harness.log
    log.config = dataclasses.replace(
        CONFIG, retention_ms=retention_ms, retention_size_bytes=retention_bytes
    )
    assert bases(harness) == [0, 1, 2, 3]
    assert log.proposed_log_start(harness.now_ms + after_ms) == expected


def test_retention_counts_from_the_later_of_record_time_and_close() -> None:
    harness = started(dataclasses.replace(CONFIG, segment_size_bytes=100, retention_ms=1000))
    harness.append(1, None, harness.now_ms + 700)
    harness.append(1, None, 0)
    harness.append(1, None, 0)
    log, now_ms = harness.log, harness.now_ms
    assert log.proposed_log_start(now_ms + 1699) is None  # the newest record is younger
    assert log.proposed_log_start(now_ms + 1700) == 2


def test_the_log_start_moves_at_once_and_the_base_with_whole_segments() -> None:
    harness = started(dataclasses.replace(CONFIG, segment_size_bytes=100))
    for _i in range(4):
        harness.append(2, None, 1)
    harness.append_own()
    harness.append(2, None, 1)
    harness.flush()
    log = harness.log
    log.move_log_start(Offset(5))
    assert (log.log_start, log.base) == (5, Position(Offset(4), 1))
    assert not log.start_state
    with pytest.raises(OffsetOutOfRange):
        log.read(Offset(4), 100, end=log.end.offset)
    assert log.read(Offset(4), 100, end=log.end.offset, from_base=True) is not None
    harness.flush()
    start = log.start_state
    assert start is not None
    assert (start.base, start.log_start, start.term_before) == (Position(Offset(4), 1), 5, 1)
    log.move_log_start(Offset(3))
    assert log.log_start == 5
    assert log.take_job() is None


def test_an_idempotent_batch_is_known_after_a_truncation_far_back() -> None:
    harness = started()
    for i in range(12):
        harness.append(1, i % 2, 1, 150)
    harness.restart_cleanly()  # memory reaches back to here only
    harness.truncate(Position(Offset(3), 1))
    harness.append(1, 1, 1)
    with pytest.raises(AssertionError, match="replayed"):
        _ = harness.log.producers
    harness.flush()
    assert harness.log.producers.snapshot() == replay(harness.model.origin, harness.model.entries)


def test_a_batch_carries_the_term_of_the_last_own_entry() -> None:
    harness = started()
    harness.term = LeaderEpoch(harness.term + 1)
    with pytest.raises(AssertionError, match="L3"):
        harness.append(1, None, 1)


def test_changes_and_truncations_count_what_readers_and_jobs_must_know() -> None:
    harness = started()
    for _i in range(3):
        harness.append(1, None, 1)
    harness.flush()
    log = harness.log
    assert (log.changes, log.truncations) == (0, 0)
    log.move_log_start(Offset(1))
    assert (log.changes, log.truncations) == (1, 0)
    log.truncate(Position(Offset(2), 1))
    assert (log.changes, log.truncations) == (2, 1)
    log.truncate(log.end)
    assert (log.changes, log.truncations) == (2, 1)
