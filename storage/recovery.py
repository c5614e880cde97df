"""Making and opening the log of a partition: after a clean stop, a crash or a power cut.

Owns the order of recovery and the line between a torn tail and damage. Must not know what the
broker does about damage.

Invariants:
    V1  Nothing at or below the durable mark is ever cut: if it cannot be read, opening raises.
    V2  What is cut is cut on disk, flushed, before the log is handed out.
    V3  What lies above the mark was perhaps never flushed, even if it reads well: it is
        written again and flushed before it counts.
    V4  Opening may be cut off anywhere and repeated; the result is the same.
    V5  After a clean stop no segment is read; on any doubt it is.

Source: ringlog's raft-log rules, "Recovery"; fsync failures (Rebello et al., ATC 2020).
"""

from collections.abc import Iterable

import msgspec

from ringlog.storage.durable_marks import DurableMarks, Mark
from ringlog.storage.errors import DamagedLog, DamagedState, WrongDirectory
from ringlog.storage.files import Directory
from ringlog.storage.log import PartitionLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.log_job import finish_reset
from ringlog.storage.partition_disk import PartitionDisk, mark_at
from ringlog.storage.partition_identity import (
    PARTITION_IDENTITY_NAME,
    PartitionIdentity,
    load_partition_identity,
    save_partition_identity,
)
from ringlog.storage.producer_state import ProducerTable
from ringlog.storage.raft_log import RAFT_LOG_NAME, RaftLog, scan_entries
from ringlog.storage.raft_state import RaftState, load_raft_state, save_raft_state
from ringlog.storage.segment import Place, Segment, read_whole, segment_name
from ringlog.storage.segment_recovery import (
    FoundSegments,
    RecoveryReport,
    open_clean_segments,
    scan_segments,
    settle_segments,
)
from ringlog.storage.start_state import StartState, load_start_state, save_start_state
from ringlog.storage.types import LOG_BEGIN, LeaderEpoch, Offset, Position


class OpenedLog(msgspec.Struct, frozen=True):
    """A log ready for use, and what was done to it."""

    log: PartitionLog
    report: RecoveryReport


def create_partition(
    directory: Directory,
    marks: DurableMarks,
    identity: PartitionIdentity,
    *,
    configuration: Iterable[str] | None,
) -> None:
    """Make the files of a partition. `partition.json` comes last: with it all others are there.

    Args:
        directory: of the partition; made if absent. Leftovers of an unfinished call are removed.
        marks: of the data directory.
        identity: which partition it is.
        configuration: directory UUIDs of the first voters, or None for a blank replica, which
            waits for a reset.

    Raises:
        WrongDirectory: it holds another partition.
        DiskFull: no space; call again later.
        LogDirFailed: any other failure.
    """
    directory.create()
    if directory.exists(PARTITION_IDENTITY_NAME):
        _check_identity(directory, identity)
        return
    for name in directory.names():
        directory.unlink(name)
    seed = identity.checksum_seed
    save_raft_state(directory, RaftState(), seed=seed)
    if configuration is not None:
        for name in (RAFT_LOG_NAME, segment_name(Offset(0))):
            file = directory.open(name, create=True)
            file.sync()
            file.close()
        start = StartState(configuration=tuple(sorted(configuration)))
        save_start_state(directory, start, seed=seed)
    marks.lower(identity.mark_key, Mark(LOG_BEGIN, Offset(0), 0, clean=True))
    save_partition_identity(directory, identity)


def open_partition_log(
    directory: Directory,
    marks: DurableMarks,
    identity: PartitionIdentity,
    config: LogConfig,
    *,
    now_ms: int,
) -> OpenedLog:
    """Open the log, recovering it if it was not closed in order. On a worker.

    Args:
        directory: of the partition.
        marks: of the data directory.
        identity: which partition it has to be.
        config: settings of the log.
        now_ms: wall clock: age of what has none on disk.

    Raises:
        DamagedLog, DamagedState, ReadFailed: bytes that were flushed are lost. A replica is
            quarantined; a partition with one replica is not opened.
        WrongDirectory: another partition, or a newer format.
        LogDirFailed: a write or flush failed: the broker must stop.
    """
    _check_identity(directory, identity)
    place = Place(directory, identity.checksum_seed, config.index_interval_bytes)
    disk = PartitionDisk(place, marks, identity.mark_key)
    mark = _mark(directory, marks, identity)
    disk.marked = mark.position
    # Names that a killed process changed are seen, but may not be durable yet.
    directory.sync()
    raft_state = load_raft_state(directory, seed=place.seed)
    start = load_start_state(directory, seed=place.seed)
    if start is None:
        return _open_blank(disk, mark, config)
    disk.start = start
    if start.reset_under_way:
        fresh = Segment(start.base_offset, created_ms=now_ms, index=None)
        finish_reset(disk, fresh)
        fresh.close()
        mark = Mark(start.base, start.base_offset, 0, clean=False)
    opened = _open_clean(disk, mark, config, now_ms)
    if opened is None:
        opened = _recover(disk, mark, config, raft_state, now_ms)
    return opened


def _check_identity(directory: Directory, identity: PartitionIdentity) -> None:
    found = load_partition_identity(directory)
    if (found.topic_uuid, found.partition) != (identity.topic_uuid, identity.partition):
        raise WrongDirectory(
            f"{directory.path} holds partition {found.partition} of topic {found.topic} "
            f"({found.topic_uuid}), not partition {identity.partition} of {identity.topic} "
            f"({identity.topic_uuid})",
            hint="move the directory back to where it came from",
        )


def _mark(directory: Directory, marks: DurableMarks, identity: PartitionIdentity) -> Mark:
    mark = marks.get(identity.mark_key)
    if mark is None:
        raise DamagedState(
            f"there is no durable mark of {identity.topic_partition}: what was flushed cannot be "
            f"told from what was not",
            path=f"{directory.path}: durable-marks of its data directory",
            hint="put back the durable-marks file that belongs to this data directory",
        )
    return mark


def _open_blank(disk: PartitionDisk, mark: Mark, config: LogConfig) -> OpenedLog:
    directory = disk.place.directory
    if disk.segment_bases() or directory.exists(RAFT_LOG_NAME) or mark.position != LOG_BEGIN:
        raise DamagedState(
            "start-state is gone, but the partition has had a log",
            path=f"{directory.path}/start-state",
            hint="restore the file, or let the leader reset this replica",
        )
    log = PartitionLog(
        disk,
        config,
        segments=[],
        raft_log=RaftLog(LOG_BEGIN, LeaderEpoch(0)),
        producers=ProducerTable(),
    )
    return OpenedLog(log, RecoveryReport(clean=True, end=LOG_BEGIN, mark=LOG_BEGIN))


class _OwnEntries(msgspec.Struct):
    """What `raft-log` gave."""

    raft_log: RaftLog
    good_size: int
    """Bytes up to the first record that is bad or does not follow."""
    is_exact: bool
    """Whether the file holds the entries kept and nothing else."""


def _read_own_entries(disk: PartitionDisk) -> _OwnEntries:
    start = disk.start
    assert start is not None
    data = read_whole(disk.place.directory, RAFT_LOG_NAME)
    scanned, good_size = scan_entries(data or b"", first_n=None, seed=disk.place.seed)
    raft_log = RaftLog.from_scan(start.base, start.term_before, scanned)
    return _OwnEntries(raft_log, good_size, data == raft_log.encode(seed=disk.place.seed))


def _open_clean(
    disk: PartitionDisk, mark: Mark, config: LogConfig, now_ms: int
) -> OpenedLog | None:
    """Open without reading segments, or return None when that is in doubt (V5)."""
    start = disk.start
    assert start is not None
    if not mark.clean or mark.position < start.base:
        return None
    own = _read_own_entries(disk)
    if not own.is_exact or own.raft_log.end_own != mark.position.own:
        return None
    report = RecoveryReport(clean=True, end=mark.position, mark=mark.position)
    found = open_clean_segments(disk, mark, own.raft_log, report, now_ms=now_ms)
    if found is None:
        return None
    # A truncation that was killed may be seen, but not be durable yet.
    disk.open_raft_log(len(own.raft_log.encode(seed=disk.place.seed))).sync()
    found.segments[-1].file(disk.place).sync()
    return _hand_out(disk, config, own.raft_log, found, report)


def _recover(
    disk: PartitionDisk, mark: Mark, config: LogConfig, raft_state: RaftState, now_ms: int
) -> OpenedLog:
    start = disk.start
    assert start is not None
    if mark.position < start.base:
        # The mark of a move that crashed behind start-state; all below the base was flushed.
        mark = Mark(start.base, start.base_offset, 0, clean=False)
    own = _read_own_entries(disk)
    raft_log = own.raft_log
    report = RecoveryReport(clean=False, end=mark.position, mark=mark.position)
    found = scan_segments(disk, mark, raft_log, report, now_ms=now_ms)
    own_end = raft_log.end_own
    raft_log.truncate(raft_log.highest_at(found.end_offset).own)
    report.end = Position(found.end_offset, raft_log.end_own)
    report.cut_own_entries = own_end - raft_log.end_own
    _check_mark(disk, mark, own, own_end, found, report.end)
    settle_segments(disk, mark, found, report)
    disk.replace_own(raft_log.encode(seed=disk.place.seed))
    save_raft_state(disk.place.directory, raft_state, seed=disk.place.seed)
    disk.save_start(start)
    disk.put_mark(mark_at(report.end, found.segments[-1]))
    disk.marks.flush()
    return _hand_out(disk, config, raft_log, found, report)


def _check_mark(
    disk: PartitionDisk,
    mark: Mark,
    own: _OwnEntries,
    own_end: int,
    found: FoundSegments,
    end: Position,
) -> None:
    """Raise DamagedLog when the log ends below what had been flushed, in either part (V1)."""
    position = mark.position
    if end.offset >= position.offset and end.own >= position.own:
        return
    directory = disk.place.directory.path
    if own_end < position.own:
        raise DamagedLog(
            f"own entries from number {own_end} on cannot be read, {position.own} were flushed",
            path=f"{directory}/{RAFT_LOG_NAME}",
            position=own.good_size,
            first_offset=min(found.end_offset, position.offset),
            end_offset=position.offset,
        )
    last = found.segments[-1]
    is_missing = mark.segment_base == found.end_offset and found.end_offset not in found.file_sizes
    raise DamagedLog(
        "the segment is missing" if is_missing else found.fault or "the log ends here",
        path=f"{directory}/{segment_name(found.end_offset if is_missing else last.base_offset)}",
        position=0 if is_missing else last.size_bytes,
        first_offset=found.end_offset,
        end_offset=max(position.offset, found.end_offset),
    )


def _hand_out(
    disk: PartitionDisk,
    config: LogConfig,
    raft_log: RaftLog,
    found: FoundSegments,
    report: RecoveryReport,
) -> OpenedLog:
    log = PartitionLog(
        disk, config, segments=found.segments, raft_log=raft_log, producers=found.producers
    )
    return OpenedLog(log, report)
