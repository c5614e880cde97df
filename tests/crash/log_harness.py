"""A log on a simulated disk beside a list model, driven step by step; what recovery must give.

Used by the crash sweep and by the stateful property test. The model keeps every entry ever
appended, in order, and the versions that a truncation not yet on disk has left behind.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import DiskFull
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
from ringlog.storage.start_state import StartState
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
class Version:
    """One log that a crash may leave, or any shorter one down to what was acknowledged of it."""

    origin: StartState
    entries: tuple[Entry, ...]
    acked: Position
    written: Position
    """As `acked`, after a kill, when the page cache survives."""
    lowest_start: Offset
    highest_start: Offset


def replay(origin: StartState, entries: Iterable[Entry]) -> TableSnapshot:
    """The producer table that the entries give, all of them noted in order."""
    table = ProducerTable()
    table.restore(origin.producers)
    for entry in entries:
        if entry.header is not None:
            table.note(entry.header, entry.begin.offset)
    return table.snapshot()


@dataclass
class Model:
    """The log as a list."""

    origin: StartState = field(default_factory=lambda: StartState(configuration=FIRST_VOTERS))
    entries: list[Entry] = field(default_factory=list)
    older: list[Version] = field(default_factory=list)
    acked: Position = LOG_BEGIN
    written: Position = LOG_BEGIN
    log_start: Offset = LOG_BEGIN.offset
    settled_start: Offset = LOG_BEGIN.offset

    @property
    def end(self) -> Position:
        return self.entries[-1].end if self.entries else self.origin.base

    def version(self) -> Version:
        return Version(
            self.origin, tuple(self.entries), self.acked, self.written, self.settled_start,
            self.log_start,
        )  # fmt: skip

    def versions(self) -> tuple[Version, ...]:
        """The log now, then what truncations and resets may not have cut on disk yet."""
        return (self.version(), *self.older)

    def truncate(self, position: Position) -> None:
        self.acked = min(self.acked, position)
        self.written = min(self.written, position)
        self.older = [
            replace(old, acked=min(old.acked, position), written=min(old.written, position))
            for old in self.older
        ]
        self.older.append(self.version())
        self.entries = [entry for entry in self.entries if entry.end <= position]

    def reset(self, start: StartState) -> None:
        self.older.append(self.version())
        self.origin, self.entries = start, []
        self.acked = self.written = start.base
        self.log_start = self.settled_start = start.log_start

    def edges(self) -> list[Position]:
        return [self.origin.base] + [entry.end for entry in self.entries]


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
        self.seen: Counter[str] = Counter()
        """Kinds of steps that jobs have run."""
        self.full = 0
        """How often the disk was full."""
        self.marks: DurableMarks
        self.log: PartitionLog

    def start(self) -> OpenedLog:
        """Make the partition if it is not there, and open it."""
        self.marks, opened = open_on(self.disk, self.config, now_ms=self.now_ms)
        self.log = opened.log
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

    def reset(self, ahead: int, own: int, inside: int) -> None:
        """Take the log of a leader that begins `ahead` offsets behind the end of this one.

        Before it, where `ahead` is negative: this log is a longer one that has no future.
        """
        end = self.model.end
        offset = max(self.log.base.offset, end.offset + ahead)
        base = Position(Offset(offset), end.own + own)
        start = StartState(
            base_offset=base.offset,
            base_own=base.own,
            term_before=LeaderEpoch(self.term + 1),
            configuration=("a", "z"),
            producers=replay(self.model.origin, self.model.entries),
            log_start=Offset(base.offset + inside),
        )
        self.log.reset(start, now_ms=self.now_ms)
        self.model.reset(start)
        self.term = start.term_before

    def advance_job(self) -> None:
        """Do the next part of the job in flight, or take one; a full disk is tried again."""
        try:
            self._advance_job()
        except DiskFull:
            self.full += 1

    def _advance_job(self) -> None:
        if self.job is None:
            self._take(flush=False)
        elif self._job_state == 0:
            self.job.write()
            self._job_state = 1
        elif self._job_state == 1:
            self.job.sync()
            self._job_state = 2
        else:
            self.job.mark()
            self._finish()

    def _take(self, *, flush: bool) -> None:
        self.job, self._job_state = self.log.take_job(flush=flush), 0
        self._job_start = self.model.log_start
        if self.job is not None:
            self.seen.update(type(step).__name__ for step in self.job.steps)

    def _finish(self) -> None:
        assert self.job is not None
        job, self.job = self.job, None
        self.log.on_job_done(job)
        if job.truncations == self.log.truncations:
            self.model.older.clear()
            self.model.settled_start = self._job_start
            self.model.written = self.log.written
            self.model.acked = self.log.durable

    def write_only(self) -> None:
        """A job of a weak flush policy: written, never flushed."""
        self.drain()
        self.advance_job()
        while self.job is not None and self._job_state == 0:
            self.advance_job()
        if self.job is not None:
            self._finish()

    def drain(self) -> None:
        while self.job is not None:
            self.advance_job()

    def flush(self) -> None:
        """Group flush: everything pending is acked, and the marks of the last group flushed."""
        self.drain()
        self.marks.flush()
        self._take(flush=True)
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
        version = check(opened.log, self.model.versions())
        self.disk, self.marks, self.log = disk, marks, opened.log
        end = opened.log.end
        self.model = Model(
            origin=version.origin,
            entries=[entry for entry in version.entries if entry.end <= end],
            acked=end,
            written=end,
            log_start=opened.log.log_start,
            settled_start=opened.log.log_start,
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


def check(log: PartitionLog, versions: tuple[Version, ...], *, killed: bool = False) -> Version:
    """Assert that `log` is one that a crash may leave; return the version that it is of."""
    assert log.end == log.durable == log.written
    data = read_all(log, log.base.offset)
    own = list(log.raft_log.entries)
    failure = AssertionError(f"{log.end} is no prefix of what was appended: {own} {data!r}")
    for version in versions:
        kept = [entry for entry in version.entries if entry.end <= log.end]
        end = kept[-1].end if kept else version.origin.base
        upper = [e for e in kept if e.begin.offset >= log.base.offset]
        if (
            end == log.end
            and log.base >= version.origin.base
            and b"".join(e.data for e in upper if e.own is None) == data
            and [e.own for e in upper if e.own is not None] == own
        ):
            try:
                check_version(log, version, kept, versions[0], killed=killed)
            except AssertionError as error:
                # Another version may begin alike.
                failure = error
            else:
                return version
    raise failure


def check_version(
    log: PartitionLog, version: Version, kept: list[Entry], current: Version, *, killed: bool
) -> None:
    """Nothing acknowledged is missing or replaced; everything derived fits the entries `kept`."""
    lowest = version.written if killed else version.acked
    assert log.end >= lowest, f"acknowledged entries are missing: {log.end} < {lowest}"
    assert version.lowest_start <= log.log_start <= version.highest_start
    if version.origin == current.origin:
        acked = [entry for entry in current.entries if entry.end <= lowest]
        assert kept[: len(acked)] == acked, "acknowledged entries were replaced"
    origin = version.origin
    assert log.producers.snapshot() == replay(origin, kept)
    lower = [entry for entry in kept if entry.begin.offset < log.base.offset]
    owns = [entry.own for entry in lower if entry.own is not None]
    assert log.base.own == origin.base_own + len(owns)
    start = log.start_state
    assert start is not None
    assert start.log_start == log.log_start
    assert start.producers == replay(origin, lower)
    assert start.term_before == (owns[-1].term if owns else origin.term_before)
    voters = [decode_voters(own.body) for own in owns if own.kind is EntryKind.CONFIGURATION]
    assert start.configuration == (voters[-1] if voters else origin.configuration)


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
        # What is committed is never cut; what is only acked here may be.
        harness.truncate(rng.choice(model.edges()[-8:]))
    elif roll < 0.925:
        harness.reset(rng.randrange(-12, 4), rng.randrange(3), rng.choice([0, 0, 2]))
    elif roll < 0.97:
        lowest, highest = model.log_start, model.acked.offset
        if lowest < highest:
            harness.move_log_start(Offset(rng.randrange(lowest, highest + 1)))
    else:
        harness.restart_cleanly()


KILL, POWER_CUT, LOSE_ALL = CrashMode.KILL, CrashMode.POWER_CUT, CrashMode.LOSE_ALL
