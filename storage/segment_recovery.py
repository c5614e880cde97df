"""The segments of a log as recovery finds them, and their repair on disk.

Owns which segments are trusted and which are read, the end of the chain of batches, and the
writing again of what lies above the mark. Must not know own entries beyond what epoch they
give an offset, nor decide what is damage.

Invariants (V1 to V5 are those of `storage.recovery`):
    E1  A segment below the one the mark lies in is trusted if its seal fits its size and the
        segment behind it: it was flushed before the seal was written. Damage inside it shows
        when it is read or verified.
    E2  Every other segment is read whole; the first bad batch ends the log. A segment that the
        cache beside it knows as another log's is damage, not read.

Source: ringlog's raft-log rules, "Recovery".
"""

import msgspec

from ringlog.storage.batch_scan import SCAN_READ_BYTES, BrokenChain, scan_batches
from ringlog.storage.durable_marks import Mark
from ringlog.storage.index import SparseIndex
from ringlog.storage.partition_disk import PartitionDisk
from ringlog.storage.producer_replay import producers_at
from ringlog.storage.producer_state import SNAPSHOT_NAME, ProducerTable, decode_snapshot
from ringlog.storage.raft_log import RaftLog
from ringlog.storage.segment import (
    Segment,
    load_seal,
    read_index,
    read_whole,
    save_index,
    save_seal,
    segment_name,
)
from ringlog.storage.segment_owner import refuse_other_log
from ringlog.storage.types import Offset, Position


class RecoveryReport(msgspec.Struct):
    """What opening a log did. For the operator; nothing is decided by it."""

    clean: bool
    """Whether it had been closed in order."""
    end: Position
    """Log end after opening."""
    mark: Position
    """Flushed position that the durable mark told."""
    cut_bytes: int = 0
    """Bytes of segments that were cut, all above the mark."""
    cut_own_entries: int = 0
    """Own entries beyond the last good batch that were cut."""
    cut_reason: str = ""
    """What is wrong with the first batch that was cut."""
    rewritten_bytes: int = 0
    """Bytes above the mark that were written again."""
    rebuilt: list[str] = msgspec.field(default_factory=list)
    """Caches that were made again."""

    @property
    def is_cut(self) -> bool:
        """Whether anything was cut."""
        return bool(self.cut_bytes or self.cut_own_entries)

    def cut_note(self) -> str:
        """Say what was cut, in a sentence."""
        return (
            f"cut {self.cut_bytes} bytes and {self.cut_own_entries} own entries that were "
            f"never acknowledged: {self.cut_reason or 'no batch belongs to them'}; the log ends "
            f"at offset {self.end.offset}"
        )

    def notes(self) -> list[str]:
        """Say it in sentences; none for a clean start that found everything in place."""
        notes = []
        if not self.clean:
            notes.append(
                f"not closed in order; flushed up to offset {self.mark.offset}, recovered to "
                f"offset {self.end.offset}"
            )
        if self.is_cut:
            notes.append(self.cut_note())
        if self.rewritten_bytes:
            notes.append(f"wrote {self.rewritten_bytes} unflushed bytes again")
        if self.rebuilt:
            notes.append(f"made again: {', '.join(self.rebuilt)}")
        return notes


class FoundSegments(msgspec.Struct):
    """The segments that make up the log; the last one is active."""

    segments: list[Segment]
    producers: ProducerTable
    fault: str = ""
    """What ended the chain; empty when it is whole."""
    file_sizes: dict[Offset, int] = msgspec.field(default_factory=dict)
    """Sizes of all `.log` files found, by base offset."""

    @property
    def end_offset(self) -> Offset:
        """First offset behind them."""
        return self.segments[-1].next_offset


def open_clean_segments(
    disk: PartitionDisk, mark: Mark, raft_log: RaftLog, report: RecoveryReport, *, now_ms: int
) -> FoundSegments | None:
    """Take the segments of a log that was closed in order, or return None on any doubt.

    Caches that are missing are made again; only for that a segment is read.
    """
    start = disk.start
    assert start is not None
    bases = [base for base in disk.segment_bases() if base >= start.base_offset]
    if not bases or bases[0] != start.base_offset or bases[-1] != mark.segment_base:
        return None
    segments = []
    for i, base in enumerate(bases[:-1]):
        segment = _trusted(disk, base, bases[i + 1])
        if segment is None:
            return None
        segments.append(segment)
    if _file_size(disk, mark.segment_base) != mark.position_bytes:
        return None
    try:
        active = _clean_active(disk, mark, raft_log, report, now_ms=now_ms)
    except BrokenChain:
        return None
    segments.append(active)
    if active.next_offset != mark.position.offset:
        return None
    table = _clean_producers(disk, mark, raft_log, segments, report)
    return FoundSegments(segments, table)


def _trusted(disk: PartitionDisk, base: Offset, next_base: Offset) -> Segment | None:
    """Return a sealed segment if its seal fits (E1)."""
    seal = load_seal(disk.place, base)
    if seal is None or seal.next_offset != next_base:
        return None
    return Segment.from_seal(seal) if _file_size(disk, base) == seal.size_bytes else None


def _file_size(disk: PartitionDisk, base: Offset) -> int:
    file = disk.place.directory.open(segment_name(base))
    try:
        return file.size_bytes()
    finally:
        file.close()


def _clean_active(
    disk: PartitionDisk, mark: Mark, raft_log: RaftLog, report: RecoveryReport, *, now_ms: int
) -> Segment:
    base, size_bytes = mark.segment_base, mark.position_bytes
    loaded = read_index(disk.place, base)
    if loaded is not None:
        index, covered = loaded
        if (covered.size_bytes, covered.next_offset) == (size_bytes, mark.position.offset):
            return Segment.from_coverage(covered, index)
    segment = _unread(disk, base, now_ms)
    if size_bytes:
        refuse_other_log(disk.place, segment, size_bytes)
        _scan_into(disk, segment, size_bytes, raft_log, None)
        report.rebuilt.append(segment_name(base, ".index"))
    return segment


def _clean_producers(
    disk: PartitionDisk,
    mark: Mark,
    raft_log: RaftLog,
    segments: list[Segment],
    report: RecoveryReport,
) -> ProducerTable:
    start = disk.start
    assert start is not None
    table = ProducerTable()
    data = read_whole(disk.place.directory, SNAPSHOT_NAME)
    saved = None if data is None else decode_snapshot(data, seed=disk.place.seed)
    if saved is not None and saved[0] == mark.position:
        table.restore(saved[1])
        return table
    offset = mark.position.offset
    table.restore(producers_at(offset, disk.place, start, segments, raft_log.epoch_at))
    if offset > start.base_offset:
        report.rebuilt.append(SNAPSHOT_NAME)
    return table


def _unread(disk: PartitionDisk, base: Offset, now_ms: int) -> Segment:
    index = SparseIndex(base, disk.place.index_interval_bytes)
    segment = Segment(base, created_ms=now_ms, index=index)
    segment.begin_crc(disk.place)
    return segment


def _scan_into(
    disk: PartitionDisk,
    segment: Segment,
    file_size: int,
    raft_log: RaftLog,
    producers: ProducerTable | None,
) -> None:
    """Read the batches of an empty `segment` into it. Raises BrokenChain at the first bad one."""
    batches = scan_batches(
        segment.file(disk.place),
        begin=0,
        end=file_size,
        first_offset=segment.base_offset,
        epoch_at=raft_log.epoch_at,
    )
    for header, position, data in batches:
        segment.note(header, header.base_offset)
        segment.note_written([data], position)
        if producers is not None:
            producers.note(header, header.base_offset)


def scan_segments(
    disk: PartitionDisk, mark: Mark, raft_log: RaftLog, report: RecoveryReport, *, now_ms: int
) -> FoundSegments:
    """Find the chain of good batches from the base on. Changes nothing on disk.

    Raises:
        DamagedLog: a trusted segment that has to be replayed for producers is damaged, or one
            that has to be read is another log's.
    """
    start = disk.start
    assert start is not None
    sizes = {base: _file_size(disk, base) for base in disk.segment_bases()}
    bases = [base for base in sizes if base >= start.base_offset]
    segments: list[Segment] = []
    for i, base in enumerate(bases):
        next_base = bases[i + 1] if i + 1 < len(bases) else None
        if (
            base >= mark.segment_base
            or next_base is None
            or base != _end(segments, start.base_offset)
        ):
            break
        segment = _trusted(disk, base, next_base)
        if segment is None:
            break
        segments.append(segment)
    first_scanned = _end(segments, start.base_offset)
    table = ProducerTable()
    table.restore(producers_at(first_scanned, disk.place, start, segments, raft_log.epoch_at))
    found = FoundSegments(segments, table, file_sizes=sizes)
    for base in bases[len(segments) :]:
        if base != _end(segments, start.base_offset):
            found.fault = f"no segment begins at offset {_end(segments, start.base_offset)}"
            break
        segment = _unread(disk, base, now_ms)
        refuse_other_log(disk.place, segment, sizes[base])
        segments.append(segment)
        try:
            _scan_into(disk, segment, sizes[base], raft_log, table)
        except BrokenChain as error:
            found.fault = str(error)
            break
    if not segments:
        segments.append(_unread(disk, start.base_offset, now_ms))
    for segment in segments[:-1]:
        if not segment.is_sealed:
            seal = load_seal(disk.place, segment.base_offset)
            segment.rolled_ms = now_ms if seal is None else seal.rolled_ms
    report.cut_reason = found.fault
    return found


def _end(segments: list[Segment], base_offset: Offset) -> Offset:
    return segments[-1].next_offset if segments else base_offset


def settle_segments(
    disk: PartitionDisk, mark: Mark, found: FoundSegments, report: RecoveryReport
) -> None:
    """Cut what is not part of the log, then write again what lies above the mark (V2, V3)."""
    directory = disk.place.directory
    active = found.segments[-1]
    kept = {segment.base_offset for segment in found.segments}
    surplus = sorted({*disk.segment_bases(), *disk.cache_bases()} - kept)
    start = disk.start
    assert start is not None
    report.cut_bytes = sum(
        found.file_sizes.get(base, 0) for base in surplus if base > start.base_offset
    )
    disk.remove_producers()
    disk.remove_segments(surplus)
    disk.remove_caches(active.base_offset)
    if active.base_offset not in found.file_sizes:
        active.create_file(disk.place)
    cut_bytes = found.file_sizes.get(active.base_offset, 0) - active.size_bytes
    if cut_bytes:
        active.file(disk.place).truncate(active.size_bytes)
        report.cut_bytes += cut_bytes
    active.file(disk.place).sync()
    directory.sync()
    for segment in found.segments:
        if segment.base_offset >= mark.segment_base:
            begin = mark.position_bytes if segment.base_offset == mark.segment_base else 0
            report.rewritten_bytes += _write_again(disk, segment, begin)
        if segment.is_sealed and segment.index_if_loaded() is not None:
            save_seal(disk.place, segment)
            save_index(disk.place, segment)
            report.rebuilt.append(segment_name(segment.base_offset, ".seal"))


def _write_again(disk: PartitionDisk, segment: Segment, begin: int) -> int:
    """Write bytes `begin` to the end of `segment` over themselves and flush; return how many.

    After a failed flush the page cache shows bytes that the disk does not have and that no
    flush would write, unless they are written anew.
    """
    file, position = segment.file(disk.place), begin
    while position < segment.size_bytes:
        data = file.pread(min(SCAN_READ_BYTES, segment.size_bytes - position), position)
        assert data, "the segment has just been read"
        file.pwrite([data], position)
        position += len(data)
    if position > begin:
        file.sync()
    return max(0, position - begin)
