"""Group commit over a simulated disk: order, one flush for many, failures that end everything."""

import threading
from collections.abc import Callable, Sequence

import pytest

from ringlog.broker.flusher import Flusher
from ringlog.storage.errors import DamagedState, DiskFull, LogDirFailed, StorageError
from ringlog.storage.files import File
from ringlog.storage.simulated_files import Call, SimulatedDisk
from ringlog.storage.types import TopicPartition


class WatchedFile:
    """A file whose flushes are told."""

    def __init__(self, file: File, story: list[str]) -> None:
        self._file = file
        self._story = story
        self.name = file.name
        self.pread = file.pread
        self.pread_cached = file.pread_cached
        self.pwrite = file.pwrite
        self.truncate = file.truncate
        self.size_bytes = file.size_bytes
        self.close = file.close

    def sync(self) -> None:
        self._story.append(f"flush {self._file.name.rpartition('/')[2]}")
        self._file.sync()


class WriteJob:
    """Appends its text to a file; says what happened in `story`."""

    def __init__(self, bench: "Bench", name: str, text: bytes) -> None:
        self.bench = bench
        self.name = name
        self.text = text
        self.file = bench.file(name)
        self.before_write: Callable[[], object] = list
        self.write_error: StorageError | None = None
        self.mark_error: StorageError | None = None

    def write(self) -> None:
        self.bench.story.append(f"write {self.name}")
        self.before_write()
        if self.write_error is not None:
            raise self.write_error
        self.file.pwrite([self.text], self.file.size_bytes())

    def files_to_sync(self) -> Sequence[File]:
        return [self.file]

    def mark(self) -> None:
        # FL1: what a mark speaks of is on the disk already.
        assert self.bench.disk.durable_bytes(self.name) == self.bench.content(self.name)
        self.bench.story.append(f"mark {self.name}")
        if self.mark_error is not None:
            raise self.mark_error


class Bench:
    """A flusher without its thread: `run_round` is called by the test."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.directory().create()
        self.story: list[str] = []
        self.files: dict[str, File] = {}
        self.marks_error: StorageError | None = None
        self.failures: list[Exception] = []
        self.flusher = Flusher(
            self.post, flush_marks=self.flush_marks, on_failure=self.fail, sync_threads=2
        )

    def file(self, name: str) -> File:
        if name not in self.files:
            file = self.disk.directory().open(name, create=True)
            self.files[name] = WatchedFile(file, self.story)
            self.disk.directory().sync()
        return self.files[name]

    def content(self, name: str) -> bytes:
        return self.files[name].pread(1000, 0)

    def post(self, call: Callable[[], None]) -> None:
        call()

    def flush_marks(self) -> None:
        if self.marks_error is not None:
            raise self.marks_error
        self.story.append("marks flushed")

    def fail(self, error: Exception) -> None:
        self.story.append("fatal")
        self.failures.append(error)

    def submit(self, job: WriteJob, *, sync: bool = True) -> None:
        def done(_job: WriteJob, error: Exception | None) -> None:
            self.story.append(f"{'failed' if error else 'done'} {job.name}")

        self.flusher.submit(TopicPartition(job.name, 0), job, done, sync=sync)

    def round(self) -> list[str]:
        """Run one round, marks flush included; gives the story since the last."""
        self.flusher.run_round()
        if self.flusher.failure is None and self.marks_error is None:
            self.flusher.finish_marks()
        story = self.story.copy()
        self.story.clear()
        return story


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_job_is_done_after_write_flush_and_mark(bench: Bench) -> None:
    bench.submit(WriteJob(bench, "a", b"x"))
    assert [line for line in bench.round() if line != "marks flushed"] == [
        "write a", "flush a", "mark a", "done a",
    ]  # fmt: skip
    assert bench.disk.durable_bytes("a") == b"x"


def test_many_jobs_share_one_round_and_files_are_flushed_once(bench: Bench) -> None:
    for _ in range(10):
        for name in ("a", "b", "c"):
            bench.submit(WriteJob(bench, name, b"x"))
    story = bench.round()
    assert bench.flusher.rounds == 1
    assert sorted(line for line in story if line.startswith("flush")) == [
        "flush a", "flush b", "flush c",
    ]  # fmt: skip
    assert sum(line.startswith("done") for line in story) == 30


def test_jobs_are_written_in_the_order_given(bench: Bench) -> None:
    for text in (b"1", b"2", b"3"):
        bench.submit(WriteJob(bench, "a", text))
    bench.round()
    assert bench.disk.durable_bytes("a") == b"123"


def test_what_comes_during_a_round_waits_for_the_next(bench: Bench) -> None:
    first = WriteJob(bench, "a", b"1")
    late = WriteJob(bench, "b", b"2")
    first.before_write = lambda: bench.submit(late)
    bench.submit(first)
    assert "write b" not in bench.round()
    assert "done b" in bench.round()
    assert not bench.flusher.run_round()


def test_a_job_without_sync_is_written_only(bench: Bench) -> None:
    bench.submit(WriteJob(bench, "a", b"x"), sync=False)
    assert bench.round() == ["write a", "done a"]
    assert bench.content("a") == b"x"
    assert bench.disk.durable_bytes("a") == b""


@pytest.mark.parametrize("call", [Call.WRITE, Call.SYNC])
def test_a_failed_write_or_flush_is_fatal_and_nothing_is_acknowledged(
    bench: Bench, call: Call
) -> None:
    for name in ("a", "b", "c"):
        bench.submit(WriteJob(bench, name, b"x"))
    bench.disk.fail(call, name="b")
    story = bench.round()
    assert not any(line.startswith(("done", "mark")) for line in story)
    assert isinstance(bench.failures[0], LogDirFailed)
    # The broker is told before any waiter is.
    assert story.index("fatal") < story.index("failed a")
    assert [line for line in story if line.startswith("failed")] == [
        "failed a", "failed b", "failed c",
    ]  # fmt: skip


def test_after_a_failure_nothing_is_written_or_flushed_again(bench: Bench) -> None:
    bench.submit(WriteJob(bench, "a", b"x"))
    bench.disk.fail(Call.SYNC, name="a")
    bench.round()
    bench.submit(WriteJob(bench, "a", b"y"))
    bench.submit(WriteJob(bench, "b", b"y"))
    assert bench.round() == ["failed a", "failed b"]
    assert len(bench.failures) == 1


def test_an_unexpected_error_is_fatal_too(bench: Bench) -> None:
    job = WriteJob(bench, "a", b"x")
    job.before_write = lambda: 1 // 0
    bench.submit(job)
    assert bench.round() == ["write a", "fatal", "failed a"]


@pytest.mark.parametrize("error", [DiskFull("full"), DamagedState("bad", path="a/start-state")])
def test_a_full_disk_or_damage_fails_one_job_alone(bench: Bench, error: StorageError) -> None:
    unlucky = WriteJob(bench, "a", b"x")
    unlucky.write_error = error
    bench.submit(unlucky)
    bench.submit(WriteJob(bench, "b", b"x"))
    story = bench.round()
    assert "mark a" not in story
    assert [line for line in story if line.split()[0] in {"failed", "done", "fatal"}] == [
        "failed a", "done b",
    ]  # fmt: skip


def test_a_mark_that_meets_a_full_disk_fails_its_job_alone(bench: Bench) -> None:
    unlucky = WriteJob(bench, "a", b"x")
    unlucky.mark_error = DiskFull("no room for a new slot")
    bench.submit(unlucky)
    bench.submit(WriteJob(bench, "b", b"x"))
    story = bench.round()
    assert [line for line in story if line.split()[0] in {"failed", "done", "fatal"}] == [
        "failed a", "done b",
    ]  # fmt: skip


def test_marks_of_a_round_are_flushed_before_the_next_are_put(bench: Bench) -> None:
    for _ in range(3):
        bench.submit(WriteJob(bench, "a", b"x"))
        bench.flusher.run_round()
    bench.flusher.finish_marks()
    steps = [line for line in bench.story if line in {"mark a", "marks flushed"}]
    assert steps == ["mark a", "marks flushed"] * 3


def test_marks_are_flushed_after_the_answers_when_nothing_waits(bench: Bench) -> None:
    threads: list[int] = []
    flush_marks = bench.flusher._flush_marks

    def flush() -> None:
        threads.append(threading.get_ident())
        flush_marks()

    bench.flusher._flush_marks = flush
    bench.submit(WriteJob(bench, "a", b"x"))
    bench.flusher.run_round()
    assert bench.story[-2:] == ["done a", "marks flushed"]
    assert threads == [threading.get_ident()], "another thread was woken while the reactor answers"


def test_marks_are_flushed_beside_the_next_round_when_it_waits_already(bench: Bench) -> None:
    first = WriteJob(bench, "a", b"1")
    first.before_write = lambda: bench.submit(WriteJob(bench, "b", b"2"))
    bench.submit(first)
    may_flush = threading.Event()
    flush_marks = bench.flusher._flush_marks
    bench.flusher._flush_marks = lambda: flush_marks() if may_flush.wait(20) else None
    bench.flusher.run_round()
    assert bench.story[-1] == "done a", "the round did not wait for its marks"
    may_flush.set()
    bench.flusher.run_round()
    assert bench.story.index("marks flushed") < bench.story.index("mark b")


def test_a_failed_flush_of_the_marks_is_fatal_at_once_when_nothing_waits(bench: Bench) -> None:
    bench.marks_error = LogDirFailed("durable-marks: EIO")
    bench.submit(WriteJob(bench, "a", b"x"))
    assert bench.round()[-2:] == ["done a", "fatal"]
    bench.submit(WriteJob(bench, "a", b"y"))
    assert bench.round() == ["failed a"]


def test_a_failed_flush_of_the_marks_is_fatal_in_the_next_round(bench: Bench) -> None:
    bench.marks_error = LogDirFailed("durable-marks: EIO")
    first = WriteJob(bench, "a", b"x")
    first.before_write = lambda: bench.submit(WriteJob(bench, "a", b"y"))
    bench.submit(first)
    assert "done a" in bench.round()
    story = bench.round()
    assert "fatal" in story
    assert "failed a" in story


def test_close_finishes_what_runs_and_what_waits_and_flushes_the_last_marks(bench: Bench) -> None:
    under_way = threading.Event()
    running, waiting = WriteJob(bench, "a", b"x"), WriteJob(bench, "b", b"x")

    def until_close_begins() -> None:
        under_way.set()
        while not bench.flusher._closing:
            pass

    running.before_write = until_close_begins
    bench.flusher.start()
    bench.submit(running)
    assert under_way.wait(20)
    bench.submit(waiting)
    bench.flusher.close()
    bench.flusher.close()
    assert bench.story.index("done a") < bench.story.index("done b")
    assert bench.story.count("marks flushed") == 2
    bench.submit(WriteJob(bench, "c", b"x"))
    assert bench.story[-1] == "failed c"


def test_a_failed_flush_of_the_last_marks_is_heard_of_at_close(bench: Bench) -> None:
    bench.marks_error = LogDirFailed("durable-marks: EIO")
    bench.submit(WriteJob(bench, "a", b"x"))
    bench.flusher.start()
    bench.flusher.close()
    assert bench.flusher.failure is bench.marks_error
