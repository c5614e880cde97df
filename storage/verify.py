"""Reading every byte of a partition that nobody has open, and saying what is wrong with it.

Owns the findings: what is damaged, which offsets that costs, what is only a cache or a torn
tail. Changes nothing. Must not know how to repair (`storage.repair`).

Invariants:
    VF1 Every byte of every file is looked at: batches, seals, indexes, own entries, state
        files, the durable mark; a file that means nothing here is named.
    VF2 Damage says which offsets cannot be read: from the first bad batch to the next one that
        could be found, by the index or by the next segment.

Source: ringlog's raft-log rules.
"""

from typing import TypeVar

import msgspec

from ringlog.storage.durable_marks import DURABLE_MARKS_NAME, DurableMarks, Mark
from ringlog.storage.errors import DamagedState, FileMissing, WrongDirectory
from ringlog.storage.files import Directory
from ringlog.storage.findings import COPY_INFIX, Finding, PartitionVerdict, Severity
from ringlog.storage.partition_identity import (
    PARTITION_IDENTITY_FORMAT,
    PARTITION_IDENTITY_NAME,
    PartitionIdentity,
)
from ringlog.storage.producer_replay import PRODUCER_CACHES
from ringlog.storage.producer_state import decode_snapshot
from ringlog.storage.raft_log import RAFT_LOG_NAME, RaftLog, scan_entries
from ringlog.storage.raft_state import RAFT_STATE_FORMAT, RAFT_STATE_NAME, RaftState
from ringlog.storage.segment import SEGMENT_SUFFIXES, Place, read_whole, segment_base
from ringlog.storage.start_state import START_STATE_FORMAT, START_STATE_NAME, StartState
from ringlog.storage.state_file import load_state
from ringlog.storage.types import LOG_BEGIN, Position
from ringlog.storage.verify_segments import SegmentVerifier

_T = TypeVar("_T", bound=msgspec.Struct)

_INDEX_INTERVAL_BYTES = 4096
_STATE_NAMES = (PARTITION_IDENTITY_NAME, RAFT_STATE_NAME, START_STATE_NAME)
_KNOWN_NAMES = frozenset({*_STATE_NAMES, RAFT_LOG_NAME, *PRODUCER_CACHES})


def verify_data_directory(root: Directory) -> list[PartitionVerdict]:
    """Read all partitions below `root`, which no broker may have open, in order of name.

    Raises:
        WrongDirectory: `durable-marks` is of a newer format.
        ReadFailed: the disk cannot give bytes back.
    """
    marks = DurableMarks.open(root) if root.exists(DURABLE_MARKS_NAME) else None
    names = [
        name for name in root.names() if root.subdirectory(name).exists(PARTITION_IDENTITY_NAME)
    ]
    return [verify_partition(root.subdirectory(name), marks) for name in names]


def verify_partition(directory: Directory, marks: DurableMarks | None) -> PartitionVerdict:
    """Read one partition, which nobody may have open.

    Args:
        directory: of the partition.
        marks: of its data directory, or None when the file is gone.

    Raises:
        ReadFailed: the disk cannot give bytes back.
    """
    verdict = PartitionVerdict(directory.path, [])
    identity = _state(
        directory, PARTITION_IDENTITY_NAME, PartitionIdentity, PARTITION_IDENTITY_FORMAT, verdict
    )
    verdict.identity = identity
    names = directory.names()
    # What the other files are bound to is the identity: without it none can be judged.
    if identity is not None:
        seed = identity.checksum_seed
        _state(directory, RAFT_STATE_NAME, RaftState, RAFT_STATE_FORMAT, verdict, seed)
        mark = verdict.mark = _mark(marks, identity, verdict)
        has_log = RAFT_LOG_NAME in names or any(segment_base(name) is not None for name in names)
        if has_log or START_STATE_NAME in names or (mark and mark.position > LOG_BEGIN):
            start = _state(
                directory, START_STATE_NAME, StartState, START_STATE_FORMAT, verdict, seed
            )
            if start is not None:
                _log(directory, identity, start, verdict)
    for name in names:
        if COPY_INFIX in name:
            verdict.add(Severity.HARMLESS, name, "is what a repair has cut")
        elif not _is_known(name):
            verdict.add(Severity.HARMLESS, name, "means nothing to this version of ringlog")
    return verdict


def _is_known(name: str) -> bool:
    is_segment = any(segment_base(name, suffix) is not None for suffix in SEGMENT_SUFFIXES)
    return is_segment or name in _KNOWN_NAMES


def _state(
    directory: Directory,
    name: str,
    kind: type[_T],
    newest_format: int,
    verdict: PartitionVerdict,
    seed: int = 0,
) -> _T | None:
    """Value of a state file; a finding and None when both of its copies are lost."""
    try:
        loaded = load_state(directory, name, kind, format=newest_format, seed=seed)
    except (DamagedState, FileMissing, WrongDirectory) as error:
        verdict.add(Severity.DAMAGE, name, str(error))
        return None
    if loaded.damaged_copy:
        verdict.add(Severity.HARMLESS, name, "one of its two copies is damaged")
    return loaded.value


def _mark(
    marks: DurableMarks | None, identity: PartitionIdentity, verdict: PartitionVerdict
) -> Mark | None:
    path = f"../{DURABLE_MARKS_NAME}"
    try:
        mark = None if marks is None else marks.get(identity.mark_key)
    except DamagedState as error:
        verdict.add(Severity.DAMAGE, path, str(error))
        return None
    if mark is None:
        verdict.add(Severity.DAMAGE, path, "holds no mark of this partition")
    return mark


def _log(
    directory: Directory,
    identity: PartitionIdentity,
    start: StartState,
    verdict: PartitionVerdict,
) -> None:
    """Read own entries, segments and caches."""
    verdict.log_start = start.log_start
    if start.reset_under_way:
        verdict.add(
            Severity.HARMLESS, START_STATE_NAME, "a reset is under way; the next start ends it"
        )
        verdict.end = start.base
        return
    mark = start.base if verdict.mark is None else max(verdict.mark.position, start.base)
    data = read_whole(directory, RAFT_LOG_NAME) or b""
    try:
        scanned, good_size = scan_entries(data, first_n=None, seed=identity.checksum_seed)
    except WrongDirectory as error:
        verdict.add(Severity.DAMAGE, RAFT_LOG_NAME, str(error))
        return
    raft_log = RaftLog.from_scan(start.base, start.term_before, scanned)
    place = Place(directory, identity.checksum_seed, _INDEX_INTERVAL_BYTES)
    mark_segment = start.base_offset if verdict.mark is None else verdict.mark.segment_base
    segments = SegmentVerifier(place, raft_log.epoch_at, mark.offset, mark_segment, verdict)
    end_offset = segments.run(start.base_offset)
    own_end = raft_log.end_own
    raft_log.truncate(raft_log.highest_at(end_offset).own)
    verdict.end = Position(end_offset, raft_log.end_own)
    if own_end < mark.own:
        _lost_own_entries(verdict, good_size, own_end, mark)
    elif good_size < len(data):
        text = f"{len(data) - good_size} bytes behind own entry {own_end - 1} are no own entry"
        verdict.add(Severity.TORN_TAIL, RAFT_LOG_NAME, text, position=good_size)
    _producer_caches(place, verdict)


def _lost_own_entries(
    verdict: PartitionVerdict, good_size: int, own_end: int, mark: Position
) -> None:
    first = min(verdict.end.offset, mark.offset)
    verdict.findings.insert(
        0,
        Finding(
            Severity.DAMAGE,
            RAFT_LOG_NAME,
            f"own entries from number {own_end} on cannot be read, {mark.own} were flushed",
            position=good_size,
            first_offset=first,
            end_offset=mark.offset,
        ),
    )


def _producer_caches(place: Place, verdict: PartitionVerdict) -> None:
    for name in PRODUCER_CACHES:
        data = read_whole(place.directory, name)
        if data is not None and decode_snapshot(data, seed=place.seed) is None:
            verdict.add(Severity.HARMLESS, name, "fails its check; it is a cache")
