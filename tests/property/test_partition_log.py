"""A partition log against a list: whatever is done to it, in any order, with crashes between."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.errors import OffsetOutOfRange
from ringlog.storage.log_config import LogConfig
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import Offset
from tests.crash.log_harness import Harness, check, check_by_time, open_on

fractions = st.floats(0, 1, allow_nan=False)


class LogMachine(RuleBasedStateMachine):
    """Rules are the calls of the log; the model and the checks are those of the crash tests."""

    @initialize(
        segment_size=st.sampled_from([200, 700, 5000]), interval=st.sampled_from([1, 150, 10_000])
    )
    def make(self, segment_size: int, interval: int) -> None:
        config = LogConfig(
            segment_size_bytes=segment_size, index_interval_bytes=interval, retention_ms=-1
        )
        self.config = config
        self.harness = Harness(SimulatedDisk(), config)
        self.harness.start()

    @rule(
        count=st.integers(1, 4),
        producer=st.sampled_from([None, 1, 2]),
        time_ms=st.integers(-1, 40),
        padding=st.sampled_from([0, 0, 90, 400]),
    )
    def append(self, count: int, producer: int | None, time_ms: int, padding: int) -> None:
        self.harness.append(count, producer, time_ms, padding)

    @rule()
    def append_own(self) -> None:
        self.harness.append_own()

    @rule(voters=st.sets(st.sampled_from("abc"), min_size=1))
    def append_voters(self, voters: set[str]) -> None:
        self.harness.append_voters(sorted(voters))

    @rule()
    def advance_job(self) -> None:
        self.harness.advance_job()

    @rule()
    def flush(self) -> None:
        self.harness.flush()
        assert self.harness.log.durable == self.harness.log.end

    @rule()
    def write_only(self) -> None:
        self.harness.write_only()

    @rule(at=fractions)
    def truncate(self, at: float) -> None:
        edges = [edge for edge in self.harness.model.edges() if edge >= self.harness.log.base]
        if edges:
            self.harness.truncate(edges[int(at * (len(edges) - 1))])

    @rule(at=fractions)
    def move_log_start(self, at: float) -> None:
        lowest, highest = self.harness.model.log_start, self.harness.model.end.offset
        if lowest < highest:
            self.harness.move_log_start(Offset(lowest + int(at * (highest - lowest))))

    @rule(ahead=st.integers(-9, 3), own=st.integers(0, 2), inside=st.integers(0, 3))
    def reset(self, ahead: int, own: int, inside: int) -> None:
        self.harness.reset(ahead, own, inside)

    @rule()
    def restart(self) -> None:
        opened = self.harness.restart_cleanly()
        assert opened.report.clean
        check(opened.log, self.harness.model.versions())

    @rule(mode=st.sampled_from(CrashMode), seed=st.integers(0, 2**16))
    def crash(self, mode: CrashMode, seed: int) -> None:
        disk = self.harness.disk.crash(random.Random(seed), mode)
        marks, opened = open_on(disk, self.config, now_ms=self.harness.now_ms)
        self.harness.take_over(opened, marks, disk)

    @precondition(lambda self: self.harness.log.written.offset > self.harness.log.log_start)
    @rule(at=fractions, end_at=fractions, max_bytes=st.integers(1, 900), cold=st.booleans())
    def read(self, at: float, end_at: float, max_bytes: int, cold: bool) -> None:
        log = self.harness.log
        written = log.written.offset
        offset = Offset(log.log_start + int(at * (written - log.log_start)))
        end = Offset(offset + int(end_at * (written - offset)))
        self.harness.disk.cold = cold
        result = log.read(offset, max_bytes, end=end, cached_only=cold)
        self.harness.disk.cold = False
        if cold and result is None:
            return
        assert result is not None
        expected, next_offset = b"", offset
        for entry in self.harness.model.entries:
            if entry.header is None or entry.end.offset <= offset:
                continue
            size = len(expected) + len(entry.data)
            if entry.end.offset > end or (expected and size > max_bytes):
                break
            if expected and not result.data[len(expected) :]:
                break  # ended early, at the end of a segment or of a read: allowed
            expected, next_offset = expected + entry.data, entry.end.offset
        assert (result.data, result.next_offset) == (expected, next_offset)

    @rule(time_ms=st.integers(-1, 45))
    def look_up_time(self, time_ms: int) -> None:
        log = self.harness.log
        entries = [e for e in self.harness.model.entries if e.end.offset <= log.written.offset]
        check_by_time(log, entries, time_ms)

    @rule(past=st.integers(1, 3))
    def read_outside(self, past: int) -> None:
        log = self.harness.log
        for offset in (log.log_start - past, max(log.written.offset, log.log_start) + past):
            try:
                log.read(Offset(offset), 100, end=log.end.offset)
            except OffsetOutOfRange:
                continue
            raise AssertionError(f"offset {offset} was read")

    @invariant()
    def positions_are_ordered(self) -> None:
        log = self.harness.log
        assert log.end == self.harness.model.end
        assert log.base <= log.end
        assert log.durable <= log.written <= log.end
        assert log.base.offset <= log.log_start
        assert log.log_start == self.harness.model.log_start
        batches = [e for e in self.harness.model.entries if e.begin.offset >= log.base.offset]
        assert log.size_bytes == sum(len(entry.data) for entry in batches)


TestPartitionLog = LogMachine.TestCase
TestPartitionLog.settings = settings(stateful_step_count=40)
