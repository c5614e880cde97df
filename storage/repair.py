"""Bringing back a damaged partition that has no other replica, at a price that is stated first.

Owns what a repair keeps, what it drops and how it is carried out. Must not know how damage is
found (`storage.verify`). A replicated partition is never repaired: its leader resets it.

A repair keeps the log from its base to the first damage and drops everything behind, because
offsets have no holes. What it drops is copied first, beside the file it is cut from, as
`<name>.damaged-<byte position>`.

Invariants:
    RR1 Nothing is changed before every byte that will be dropped is in a flushed copy.
    RR2 The mark goes down before files are cut, so that a crash leaves a log that opens or one
        that can be repaired again.
    RR3 A plan is carried out only on what it was made for.
    RR4 No segment is left behind the new end, not even an empty one: it would pass for a hole.

Source: design of ringlog's log, "Recovery".
"""

import itertools
from collections.abc import Iterator

import msgspec

from ringlog.storage.batch_scan import SCAN_READ_BYTES
from ringlog.storage.durable_marks import DurableMarks, Mark
from ringlog.storage.errors import StorageError
from ringlog.storage.files import Directory, File
from ringlog.storage.findings import COPY_INFIX, Finding, PartitionVerdict, Severity
from ringlog.storage.partition_identity import PARTITION_IDENTITY_NAME
from ringlog.storage.raft_log import RAFT_LOG_NAME, RaftLog, encode_entry, scan_entries
from ringlog.storage.raft_state import RAFT_STATE_NAME, RaftState, save_raft_state
from ringlog.storage.segment import (
    CACHE_SUFFIXES,
    LOG_SUFFIX,
    read_whole,
    segment_base,
    segment_name,
)
from ringlog.storage.start_state import START_STATE_NAME, load_start_state
from ringlog.storage.state_file import TEMPORARY_SUFFIX
from ringlog.storage.types import LeaderEpoch, Offset, Position
from ringlog.storage.verify import verify_partition

_LOST_FOR_GOOD = (PARTITION_IDENTITY_NAME, START_STATE_NAME)


class Cut(msgspec.Struct, frozen=True):
    """Bytes of one file that a repair drops, from `position` to its end; a file cut at 0 goes."""

    name: str
    position: int
    size_bytes: int

    @property
    def copy_name(self) -> str:
        """Name of the file that keeps them."""
        return f"{self.name}{COPY_INFIX}{self.position}"


class RepairPlan(msgspec.Struct, frozen=True):
    """What a repair would do. Nothing has been changed."""

    path: str
    findings: tuple[Finding, ...]
    refusal: str
    """Why no repair is possible; empty when one is."""
    end: Position
    """Log end afterwards."""
    lost_first: Offset
    """First offset that is lost (inclusive)."""
    lost_end: Offset
    """End of the offsets that are lost (exclusive)."""
    cuts: tuple[Cut, ...]
    mark: Mark | None
    """The durable mark afterwards."""
    new_raft_state_term: LeaderEpoch | None
    """Term of a new `raft-state`, when the old one is lost."""

    def lines(self) -> list[str]:
        """Say it in sentences."""
        if self.refusal:
            return [f"{self.path}: cannot be repaired: {self.refusal}"]
        lines = [f"{self.path}: keeps offsets below {self.end.offset}"]
        if self.lost_end > self.lost_first:
            count = self.lost_end - self.lost_first
            lines.append(
                f"LOSES offsets {self.lost_first} to {self.lost_end} (exclusive), {count} records, "
                f"also those of them that can still be read"
            )
        lines += [
            f"copies {cut.size_bytes} bytes of {cut.name} from byte {cut.position} on to "
            f"{cut.copy_name}, then cuts them"
            if cut.size_bytes
            else f"removes {cut.name}, which is empty"
            for cut in self.cuts
        ]
        if self.new_raft_state_term is not None:
            lines.append(f"writes {RAFT_STATE_NAME} anew with term {self.new_raft_state_term}")
        return lines


def plan_repair(directory: Directory, marks: DurableMarks) -> RepairPlan | None:
    """Read a partition that nobody has open; None when it is not damaged.

    Raises:
        ReadFailed: the disk cannot give bytes back.
    """
    verdict = verify_partition(directory, marks)
    damage = [f for f in verdict.findings if f.severity is Severity.DAMAGE]
    if not damage:
        return None
    lost = [finding for finding in damage if finding.path in _LOST_FOR_GOOD]
    if lost or verdict.identity is None:
        reasons = "; ".join(finding.text for finding in lost)
        return _refuse(verdict, f"{reasons}: restore the file from a backup")
    return _plan_cut(directory, verdict, damage)


def _refuse(verdict: PartitionVerdict, reason: str) -> RepairPlan:
    nothing = Offset(0)
    return RepairPlan(
        verdict.path, tuple(verdict.findings), reason, verdict.end, nothing, nothing, (), None, None
    )


def _plan_cut(directory: Directory, verdict: PartitionVerdict, damage: list[Finding]) -> RepairPlan:
    assert verdict.identity is not None
    seed = verdict.identity.checksum_seed
    start = load_start_state(directory, seed=seed)
    if start is None:
        return _refuse(verdict, f"{START_STATE_NAME} is gone: restore the file from a backup")
    data = read_whole(directory, RAFT_LOG_NAME) or b""
    scanned, _good_size = scan_entries(data, first_n=None, seed=seed)
    raft_log = RaftLog.from_scan(start.base, start.term_before, scanned)
    # Damage of a whole segment lies before the end of the chain of batches.
    whole = [f.first_offset for f in damage if segment_base(f.path) is not None]
    offset = min([verdict.end.offset, *(first for first in whole if first >= start.base_offset)])
    last_term = raft_log.last_term
    raft_log.truncate(raft_log.highest_at(offset).own)
    end = Position(offset, raft_log.end_own)
    own_size = sum(len(encode_entry(e)) for e in scanned if e.n < end.own)
    base, position, cuts = _cuts(directory, start.base_offset, offset, verdict, damage)
    if own_size < len(data):
        cuts.append(Cut(RAFT_LOG_NAME, own_size, len(data) - own_size))
    flushed = verdict.mark.position.offset if verdict.mark is not None else offset
    ends = [flushed, offset, *(finding.end_offset for finding in damage)]
    raft_state_is_lost = any(finding.path == RAFT_STATE_NAME for finding in damage)
    return RepairPlan(
        verdict.path,
        tuple(verdict.findings),
        "",
        end,
        offset,
        max(ends),
        tuple(cuts),
        Mark(end, base, position, clean=False),
        last_term if raft_state_is_lost else None,
    )


def _cuts(
    directory: Directory,
    base_offset: Offset,
    offset: Offset,
    verdict: PartitionVerdict,
    damage: list[Finding],
) -> tuple[Offset, int, list[Cut]]:
    """Return segment and byte at which the log will end, and what is cut of which segment."""
    found = (segment_base(name) for name in directory.names())
    bases = sorted(base for base in found if base is not None and base >= base_offset)
    last = max([base for base in bases if base <= offset], default=base_offset)
    sizes = {base: _size(directory, base) for base in bases}
    position = _position_of(last, offset, sizes.get(last, 0), verdict, damage)
    cuts = [
        Cut(segment_name(base), position if base == last else 0, size - position)
        if base == last
        else Cut(segment_name(base), 0, size)
        for base, size in sizes.items()
        if base > last or (base == last and position < size)
    ]
    return last, position, cuts


def _position_of(
    base: Offset, offset: Offset, size: int, verdict: PartitionVerdict, damage: list[Finding]
) -> int:
    """Byte at which the batches of the last segment end that are kept."""
    if base == offset:
        return 0
    for finding in verdict.findings if not damage else [*damage, *verdict.findings]:
        if segment_base(finding.path) == base and finding.first_offset == offset:
            return finding.position
    return size


def _size(directory: Directory, base: Offset) -> int:
    file = directory.open(segment_name(base))
    try:
        return file.size_bytes()
    finally:
        file.close()


def apply_repair(directory: Directory, marks: DurableMarks, plan: RepairPlan) -> None:
    """Carry out `plan`. The next start opens the partition. May be repeated after a crash.

    Args:
        directory: of the partition, which nobody has open.
        marks: of its data directory.
        plan: just made by `plan_repair`.

    Raises:
        StorageError: the plan refuses, or the partition is no longer as it was (RR3).
        DiskFull: no space for the copies; nothing was changed.
        LogDirFailed: a write or flush failed.
    """
    if plan.refusal or plan.mark is None:
        raise StorageError(f"{plan.path}: cannot be repaired: {plan.refusal}")
    if plan_repair(directory, marks) != plan:
        raise StorageError(
            f"{plan.path}: changed since the plan was made", hint="make a new plan and look at it"
        )
    verdict = verify_partition(directory, marks)
    assert verdict.identity is not None
    for cut in plan.cuts:
        if cut.size_bytes:
            _copy(directory, cut)
    directory.sync()
    marks.lower(verdict.identity.mark_key, plan.mark)
    for cut in sorted(plan.cuts, key=lambda cut: cut.name, reverse=True):
        _cut(directory, cut)
    directory.sync()
    if plan.new_raft_state_term is not None:
        seed = verdict.identity.checksum_seed
        save_raft_state(directory, RaftState(term=plan.new_raft_state_term), seed=seed)


def _copy(directory: Directory, cut: Cut) -> None:
    """Copy what will be cut, flushed, under a name that no other copy has."""
    source = directory.open(cut.name)
    try:
        for name in _copy_names(cut):
            if not directory.exists(name):
                _write_copy(directory, name, source, cut)
                return
            if _is_copied(directory, name, source, cut):
                return
    finally:
        source.close()


def _copy_names(cut: Cut) -> Iterator[str]:
    yield cut.copy_name
    for number in itertools.count(2):
        yield f"{cut.copy_name}.{number}"


def _write_copy(directory: Directory, name: str, source: File, cut: Cut) -> None:
    temporary = f"{name}{TEMPORARY_SUFFIX}"
    copy = directory.open(temporary, create=True)
    try:
        copy.truncate(0)
        for at, data in _pieces(source, cut):
            copy.pwrite([data], at)
        copy.sync()
    finally:
        copy.close()
    # A copy that has its name is whole.
    directory.rename(temporary, name)


def _is_copied(directory: Directory, name: str, source: File, cut: Cut) -> bool:
    copy = directory.open(name)
    try:
        if copy.size_bytes() != cut.size_bytes:
            return False
        return all(copy.pread(len(data), at) == data for at, data in _pieces(source, cut))
    finally:
        copy.close()


def _pieces(source: File, cut: Cut) -> Iterator[tuple[int, bytes]]:
    """Yield what will be cut, piece by piece, with its place in the copy."""
    at = 0
    while at < cut.size_bytes:
        data = source.pread(min(SCAN_READ_BYTES, cut.size_bytes - at), cut.position + at)
        if not data:
            return
        yield at, data
        at += len(data)


def _cut(directory: Directory, cut: Cut) -> None:
    base = segment_base(cut.name)
    if base is not None:
        for suffix in CACHE_SUFFIXES:
            directory.unlink(segment_name(base, suffix))
    file = directory.open(cut.name)
    try:
        file.truncate(cut.position)
        file.sync()
    finally:
        file.close()
    if cut.position == 0 and cut.name.endswith(LOG_SUFFIX):
        directory.unlink(cut.name)
