"""A log on a simulated disk beside a list model, driven step by step; what recovery must give.

Used by the crash sweep and by the stateful property test. The model keeps every entry ever
appended, in order, and the versions that a truncation not yet on disk has left behind.
"""

import random
from dataclasses import dataclass, field
from uuid import UUID

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.log_job import LogJob
from ringlog.storage.partition_identity import PARTITION_IDENTITY_NAME, PartitionIdentity
from ringlog.storage.producer_state import ProducerTable, TableSnapshot
from ringlog.storage.raft_log import EntryKind, OwnEntry
from ringlog.storage.record_batch import BatchHeader, assign, read_header
from ringlog.storage.record_codec import decode_records, encode_batch
from ringlog.storage.recovery import OpenedLog, create_partition, open_partition_log
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import LOG_BEGIN, LeaderEpoch, Offset, Position, ProducerId
from ringlog.storage.voters import decode_voters, encode_voters

IDENTITY = PartitionIdentity(topic="orders", topic_uuid=UUID(int=77), partition=3, created_ms=1_000)
NAME = "orders-3"
FIRST_VOTERS = ("a",)
CONFIG = LogConfig(
    segment_size_bytes=700, segment_age_ms=10_000, retention_ms=-1, index_interval_bytes=150
)


@dataclass(frozen=True)
class Entry:
    """An own entry or a batch as it stands in the log, with the position where it ends."""

    end: Position
    begin: Position
    own: OwnEntry | None = None
    data: bytes = b""
    header: BatchHeader | None = None


@dataclass(frozen=True)
class Expected:
    """What a crash at this moment may leave."""

    versions: tuple[tuple[Entry, ...], ...]
    """Entries of the log now, then of what truncations may not have cut on disk yet."""
    acked: Position
    """Lowest log end that recovery may give."""
    written: Position
    """The same after a kill, when the page cache survives."""
    lowest_start: Offset
    highest_start: Offset
    is_made: bool


def replay(entries: tuple[Entry, ...] | list[Entry]) -> TableSnapshot:
    """The producer table that the entries give, all of them noted in order."""
    table = ProducerTable()
    for entry in entries:
        if entry.header is not None:
            table.note(entry.header, entry.begin.offset)
    return table.snapshot()


@dataclass
class Model:
    """The log as a list."""

    entries: list[Entry] = field(default_factory=list)
    older: list[tuple[Entry, ...]] = field(default_factory=list)
    acked: Position = LOG_BEGIN
    written: Position = LOG_BEGIN
    log_start: Offset = LOG_BEGIN.offset
    settled_start: Offset = LOG_BEGIN.offset
    is_made: bool = False

    @property
    def end(self) -> Position:
        return self.entries[-1].end if self.entries else LOG_BEGIN

    def expected(self) -> Expected:
        return Expected(
            (tuple(self.entries), *self.older), self.acked, self.written, self.settled_start,
            self.log_start, self.is_made,
        )  # fmt: skip

    def truncate(self, position: Position) -> None:
        self.older.append(tuple(self.entries))
        self.entries = [entry for entry in self.entries if entry.end <= position]
        self.acked = min(self.acked, position)
        self.written = min(self.written, position)

    def edges(self) -> list[Position]:
        return [LOG_BEGIN] + [entry.end for entry in self.entries]


class Harness:
    """One life of a broker after the other, on one disk."""

    def __init__(self, disk: SimulatedDisk, config: LogConfig = CONFIG) -> None:
        self.disk = disk
        self.config = config
        self.model = Model()
        self.term = LeaderEpoch(0)
        self.now_ms = 1_000
        self.sequences: dict[int, int] = {}
        self.job: LogJob | None = None
        self._job_state = 0
        self._job_start = Offset(0)
        self.marks: DurableMarks
        self.log: PartitionLog

    def start(self) -> OpenedLog:
        """Make the partition if it is not there, and open it."""
        self.marks, opened = open_on(self.disk, self.config, now_ms=self.now_ms)
        self.log = opened.log
        self.model.is_made = True
        self.job = None
        return opened

    # -- steps

    def append(self, count: int, producer: int | None, time_ms: int, padding: int = 0) -> None:
        if not self.term:
            self.append_own()
        sequence = -1 if producer is None else self.sequences.get(producer, 0)
        payload = encode_batch(
            [b"%d-%d" % (self.log.end.offset, i) + b"." * padding for i in range(count)],
            timestamps=time_ms,
            producer_id=ProducerId(-1 if producer is None else producer),
            producer_epoch=-1 if producer is None else 0,
            base_sequence=sequence,
        )
        if producer is not None:
            self.sequences[producer] = sequence + count
        header = read_header(payload)
        begin = self.model.end
        offset = self.log.append(payload, header, leader_epoch=self.term, now_ms=self.now_ms)
        assert offset == begin.offset
        data = assign(offset, self.term, len(payload)) + payload[16:]
        end = Position(Offset(offset + count), begin.own)
        self.model.entries.append(Entry(end, begin, data=data, header=header))
        assert self.log.end == end

    def append_own(self, kind: EntryKind = EntryKind.TERM_OPENING, body: bytes = b"") -> None:
        if kind is EntryKind.TERM_OPENING:
            self.term = LeaderEpoch(self.term + 1)
        begin = self.model.end
        end = self.log.append_own(kind, self.term, body)
        own = OwnEntry(begin.own, begin.offset, self.term, kind, body)
        self.model.entries.append(Entry(end, begin, own=own))
        assert end == Position(begin.offset, begin.own + 1)

    def append_voters(self, voters: list[str]) -> None:
        if self.term:
            self.append_own(EntryKind.CONFIGURATION, encode_voters(voters))

    def truncate(self, position: Position) -> None:
        if position < self.log.base or position == self.model.end:
            return
        self.log.truncate(position)
        self.model.truncate(position)
        self.append_own()

    def move_log_start(self, offset: Offset) -> None:
        self.log.move_log_start(offset)
        self.model.log_start = max(self.model.log_start, offset)

    def advance_job(self) -> None:
        """Do the next part of the job in flight, or take one."""
        if self.job is None:
            self.job, self._job_state = self.log.take_job(), 0
            self._job_start = self.model.log_start
        elif self._job_state == 0:
            self.job.write()
            self._job_state = 1
        elif self._job_state == 1:
            self.job.sync()
            self._job_state = 2
        else:
            self.job.mark()
            self._finish()

    def _finish(self) -> None:
        assert self.job is not None
        job, self.job = self.job, None
        self.log.on_job_done(job)
        self.model.settled_start = self._job_start
        if job.truncations == self.log.truncations:
            self.model.older.clear()
        self.model.written = self.log.written
        self.model.acked = self.log.durable

    def write_only(self) -> None:
        """A job of a weak flush policy: written, never flushed."""
        self.drain()
        self.job = self.log.take_job()
        if self.job is not None:
            self._job_start = self.model.log_start
            self.job.write()
            self._finish()

    def drain(self) -> None:
        while self.job is not None:
            self.advance_job()

    def flush(self) -> None:
        """Group flush: everything pending is acked, and the marks of the last group flushed."""
        self.drain()
        self.marks.flush()
        self.advance_job()
        self.drain()

    def restart_cleanly(self) -> OpenedLog:
        self.drain()
        self.job = self.log.close_job()
        self._job_start, self._job_state = self.model.log_start, 0
        self.drain()
        self.log.close()
        self.marks.flush()
        self.marks.close()
        return self.start()

    def take_over(self, opened: OpenedLog, marks: DurableMarks, disk: SimulatedDisk) -> None:
        """Go on with a log that was recovered from a crash of this one, as `check` found it."""
        version = check(opened.log, self.model.expected())
        self.disk, self.marks, self.log = disk, marks, opened.log
        end = opened.log.end
        self.model = Model(
            entries=[entry for entry in version if entry.end <= end],
            acked=end,
            written=end,
            log_start=opened.log.log_start,
            settled_start=opened.log.log_start,
            is_made=True,
        )
        self.term = opened.log.raft_log.last_term
        self.sequences.clear()
        for row in opened.log.producers.snapshot().producers:
            self.sequences[row.producer_id] = row.batches[-1].last_sequence + 1
        self.job = None


def open_on(
    disk: SimulatedDisk, config: LogConfig = CONFIG, *, now_ms: int = 1_000
) -> tuple[DurableMarks, OpenedLog]:
    """Open the partition on `disk`, making it first when a crash left it unfinished."""
    root = disk.directory()
    root.create()
    marks = DurableMarks.open(root)
    directory = root.subdirectory(NAME)
    if not directory.exists(PARTITION_IDENTITY_NAME):
        create_partition(directory, marks, IDENTITY, configuration=FIRST_VOTERS)
    return marks, open_partition_log(directory, marks, IDENTITY, config, now_ms=now_ms)


def read_all(log: PartitionLog, begin: Offset, max_bytes: int = 300) -> bytes:
    """Everything from `begin` (a batch edge) to the end, read piece by piece."""
    parts, offset = [], begin
    while offset < log.end.offset:
        result = log.read(offset, max_bytes, end=log.end.offset, from_base=True)
        assert result is not None
        assert result.next_offset > offset
        parts.append(result.data)
        offset = result.next_offset
    return b"".join(parts)


def check(log: PartitionLog, expected: Expected, *, killed: bool = False) -> tuple[Entry, ...]:
    """Assert that `log` is one that a crash may leave; return the version that it is of."""
    lowest = expected.written if killed else expected.acked
    assert log.end >= lowest, f"acknowledged entries are missing: {log.end} < {lowest}"
    assert expected.lowest_start <= log.log_start <= expected.highest_start
    assert log.end == log.durable == log.written
    data = read_all(log, log.base.offset)
    own = list(log.raft_log.entries)
    for version in expected.versions:
        kept = [entry for entry in version if entry.end <= log.end]
        end = kept[-1].end if kept else LOG_BEGIN
        upper = [e for e in kept if e.begin.offset >= log.base.offset]
        if (
            end == log.end
            and b"".join(e.data for e in upper if e.own is None) == data
            and [e.own for e in upper if e.own is not None] == own
        ):
            check_state(log, kept)
            current = [e for e in expected.versions[0] if e.end <= lowest]
            assert kept[: len(current)] == current, "acknowledged entries were replaced"
            return version
    raise AssertionError(f"{log.end} is no prefix of what was appended: {own} {data!r}")


def check_state(log: PartitionLog, kept: list[Entry]) -> None:
    """Producers, base and start-state are those of the entries `kept`."""
    assert log.producers.snapshot() == replay(kept)
    lower = [entry for entry in kept if entry.begin.offset < log.base.offset]
    assert log.base.own == sum(entry.own is not None for entry in lower)
    start = log.start_state
    assert start is not None
    assert start.log_start == log.log_start
    assert start.producers == replay(lower)
    assert start.term_before == max([e.own.term for e in lower if e.own is not None], default=0)
    voters = [
        decode_voters(entry.own.body)
        for entry in lower
        if entry.own is not None and entry.own.kind is EntryKind.CONFIGURATION
    ]
    assert start.configuration == (voters[-1] if voters else FIRST_VOTERS)


def check_by_time(log: PartitionLog, entries: list[Entry], time_ms: int) -> None:
    """A search by time finds what a walk over all records finds."""
    wanted = None
    for entry in entries:
        if entry.own is None and wanted is None and entry.end.offset > log.log_start:
            for record in decode_records(entry.data):
                if record.offset >= log.log_start and record.timestamp >= time_ms:
                    wanted = (record.offset, record.timestamp)
                    break
    assert log.offset_for_timestamp(time_ms, end=log.written.offset) == wanted


def random_step(harness: Harness, rng: random.Random) -> None:
    """One step of a scripted life."""
    harness.now_ms += rng.randrange(300)
    roll = rng.random()
    model = harness.model
    if roll < 0.38:
        producer = rng.choice([None, 1, 1, 2])
        harness.append(rng.randrange(1, 4), producer, rng.randrange(500), rng.choice([0, 0, 90]))
    elif roll < 0.44:
        harness.append_own()
    elif roll < 0.48:
        harness.append_voters(rng.sample(["a", "b", "c"], 2))
    elif roll < 0.78:
        harness.advance_job()
    elif roll < 0.86:
        harness.flush()
    elif roll < 0.88:
        harness.write_only()
    elif roll < 0.92:
        # a committed entry is never cut: half of the time nothing acked goes
        edges = (
            [edge for edge in model.edges() if edge >= model.acked]
            if rng.random() < 0.5
            else (model.edges()[-8:])
        )
        harness.truncate(rng.choice(edges))
    elif roll < 0.97:
        lowest, highest = model.log_start, model.acked.offset
        if lowest < highest:
            harness.move_log_start(Offset(rng.randrange(lowest, highest + 1)))
    else:
        harness.restart_cleanly()


KILL, POWER_CUT, LOSE_ALL = CrashMode.KILL, CrashMode.POWER_CUT, CrashMode.LOSE_ALL
