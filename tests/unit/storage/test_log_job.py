"""The order of calls on the disk, for each kind of step (raft-log rules, "Order on disk")."""

from ringlog.storage.raft_log import EntryKind
from ringlog.storage.types import Offset, Position
from tests.crash.log_harness import CONFIG, Harness
from tests.unit.storage.test_partition_disk import RecordingDisk

FIRST = "00000000000000000000"


def started() -> tuple[RecordingDisk, Harness]:
    disk = RecordingDisk()
    harness = Harness(disk, CONFIG)
    harness.start()
    harness.append_own()
    harness.flush()
    disk.taken()
    return disk, harness


def order_of(calls: list[str], *wanted: str) -> None:
    """Assert that the calls hold `wanted` in this order."""
    position = 0
    for call in wanted:
        assert call in calls[position:], f"{call} not behind {calls[:position]} in {calls}"
        position += calls[position:].index(call) + 1


def test_a_plain_job_is_one_write_one_flush_and_the_mark_last() -> None:
    disk, harness = started()
    for _i in range(3):
        harness.append(1, None, 1)
    harness.flush()
    assert disk.taken() == [
        "SYNC durable-marks", f"WRITE {FIRST}.log", f"SYNC {FIRST}.log", "WRITE durable-marks",
    ]  # fmt: skip


def test_an_own_entry_is_flushed_before_the_batch_behind_it_is_written() -> None:
    disk, harness = started()
    harness.append(1, None, 1)
    harness.append_own()
    harness.append(1, None, 1)
    harness.flush()
    assert disk.taken()[1:] == [
        f"WRITE {FIRST}.log", "WRITE raft-log", "SYNC raft-log", f"WRITE {FIRST}.log",
        f"SYNC {FIRST}.log", "WRITE durable-marks",
    ]  # fmt: skip


def test_a_roll_flushes_the_old_segment_before_its_seal_and_the_new_file() -> None:
    disk, harness = started()
    harness.append(1, 1, 1, 500)
    harness.append(1, 1, 1, 500)
    harness.flush()
    order_of(
        disk.taken(),
        f"WRITE {FIRST}.log",
        f"SYNC {FIRST}.log",
        f"CREATE {FIRST}.seal",
        "CREATE 00000000000000000001.log",
        "SYNC_DIRECTORY orders-3",
        "WRITE 00000000000000000001.log",
        "SYNC 00000000000000000001.log",
        "WRITE durable-marks",
    )


def test_a_truncation_lowers_the_mark_cuts_segments_then_own_entries_then_writes() -> None:
    disk, harness = started()
    for _i in range(3):
        harness.append(1, 1, 1, 500)
        harness.append_own()
    harness.flush()
    disk.taken()
    harness.truncate(Position(Offset(1), 2))
    harness.append(1, 1, 1)
    harness.advance_job()
    harness.advance_job()
    order_of(
        disk.taken(),
        "WRITE durable-marks",
        "SYNC durable-marks",
        "WRITE durable-marks",
        "SYNC durable-marks",
        "UNLINK 00000000000000000002.log",
        "SYNC_DIRECTORY orders-3",
        "UNLINK 00000000000000000001.seal",
        "TRUNCATE 00000000000000000001.log",
        "SYNC 00000000000000000001.log",
        "SYNC_DIRECTORY orders-3",
        "TRUNCATE raft-log",
        "SYNC raft-log",
        "WRITE raft-log",
        "SYNC raft-log",
        "WRITE 00000000000000000001.log",
    )


def test_a_truncation_above_the_mark_leaves_it_alone() -> None:
    disk, harness = started()
    harness.append(1, 1, 1)
    harness.append(1, 1, 1)
    harness.truncate(Position(Offset(1), 1))
    harness.advance_job()
    harness.advance_job()
    assert "WRITE durable-marks" not in disk.taken()


def test_a_log_start_is_flushed_before_segments_go_and_the_raft_log_is_replaced_last() -> None:
    disk, harness = started()
    for _i in range(3):
        harness.append(1, 1, 1, 500)
    harness.append_own(EntryKind.LOG_START, b"")
    harness.flush()
    disk.taken()
    harness.move_log_start(Offset(2))
    harness.advance_job()
    harness.advance_job()
    order_of(
        disk.taken(),
        "SYNC start-state.tmp",
        "RENAME start-state.tmp",
        "SYNC_DIRECTORY orders-3",
        "UNLINK 00000000000000000001.log",
        f"UNLINK {FIRST}.log",
        "SYNC_DIRECTORY orders-3",
        "SYNC raft-log.new",
        "RENAME raft-log.new",
        "SYNC_DIRECTORY orders-3",
    )


def test_a_reset_raises_its_flag_first_and_lowers_it_last() -> None:
    disk, harness = started()
    harness.append(1, 1, 1, 500)
    harness.append(1, 1, 1, 500)
    harness.flush()
    disk.taken()
    harness.reset(3, 0, 0)
    harness.advance_job()
    harness.advance_job()
    order_of(
        disk.taken(),
        "RENAME start-state.tmp",
        "SYNC_DIRECTORY orders-3",
        "WRITE durable-marks",
        "SYNC durable-marks",
        "UNLINK 00000000000000000001.log",
        f"UNLINK {FIRST}.log",
        "SYNC_DIRECTORY orders-3",
        "RENAME raft-log.new",
        "CREATE 00000000000000000005.log",
        "SYNC_DIRECTORY orders-3",
        "RENAME start-state.tmp",
        "SYNC_DIRECTORY orders-3",
    )


def test_a_job_that_is_only_written_is_flushed_with_a_later_one() -> None:
    disk, harness = started()
    harness.append(1, None, 1)
    harness.write_only()
    assert harness.log.written == harness.log.end
    assert harness.log.durable < harness.log.end
    assert harness.log.take_job() is None
    disk.taken()
    job = harness.log.take_job(flush=True)
    assert job is not None
    job.write()
    assert [file.name for file in job.files_to_sync()] == [f"orders-3/{FIRST}.log"]
    job.sync()
    job.mark()
    harness.log.on_job_done(job)
    assert harness.log.durable == harness.log.end
    assert disk.taken() == [f"SYNC {FIRST}.log", "WRITE durable-marks"]
    assert harness.log.take_job(flush=True) is None


def test_the_last_job_saves_the_caches_and_a_clean_mark() -> None:
    disk, harness = started()
    harness.append(1, 1, 1)
    harness.flush()
    disk.taken()
    job = harness.log.close_job()
    job.write()
    job.sync()
    job.mark()
    harness.log.on_job_done(job)
    order_of(
        disk.taken(),
        f"WRITE {FIRST}.index",
        f"WRITE {FIRST}.timeindex",
        "WRITE producer-snapshot",
        "WRITE durable-marks",
    )
    assert job.end_mark is not None
    assert job.end_mark.clean
