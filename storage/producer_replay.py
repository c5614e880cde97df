"""The producer table of a log found again from its files.

Owns the two cache files of it and the replay of batches behind them. Must not know which
offset is wanted and why: recovery, truncation and log-start moves ask.

`producer-snapshot` is written at a clean stop and belongs to the log end,
`producer-snapshot-roll` at each roll and belongs to the begin of the active segment: a
truncation into the active segment after a clean start finds the second one.

Invariants:
    Y1  A table from here equals the one at the base in `start-state` plus every batch between.

Source: Kafka's producer snapshots; ringlog's raft-log rules ("configuration and producer table
*at base*").
"""

from collections.abc import Iterable
from typing import Final

from ringlog.storage.batch_scan import BrokenChain, EpochAt, scan_batches
from ringlog.storage.errors import DamagedLog
from ringlog.storage.producer_state import (
    SNAPSHOT_NAME,
    ProducerTable,
    TableSnapshot,
    decode_snapshot,
)
from ringlog.storage.segment import Place, Segment, read_whole, segment_name, write_whole
from ringlog.storage.start_state import StartState
from ringlog.storage.types import Offset, Position

ROLL_SNAPSHOT_NAME: Final = f"{SNAPSHOT_NAME}-roll"
PRODUCER_CACHES: Final = (SNAPSHOT_NAME, ROLL_SNAPSHOT_NAME)


def save_producers(place: Place, name: str, producers: TableSnapshot, at: Position) -> None:
    """Write a cache file of the producer table at `at`."""
    table = ProducerTable()
    table.restore(producers)
    write_whole(place.directory, name, table.encode_snapshot(at, seed=place.seed))


def note_producers(
    table: ProducerTable,
    place: Place,
    segment: Segment,
    epoch_at: EpochAt,
    *,
    begin: Offset | None = None,
    end: Offset | None = None,
) -> None:
    """Note the batches of `segment` from `begin` to `end` (exclusive; None: no bound).

    Raises:
        DamagedLog: a batch or the whole segment is damaged.
    """
    segment.check(place, epoch_at)
    batches = scan_batches(
        segment.file(place),
        begin=0,
        end=segment.size_bytes,
        first_offset=segment.base_offset,
        epoch_at=epoch_at,
    )
    try:
        for header, _position, _data in batches:
            if begin is None or header.base_offset >= begin:
                table.note(header, header.base_offset)
            if end is not None and header.next_offset >= end:
                # What follows may be appended in memory only.
                return
    except BrokenChain as error:
        raise damaged_log(place, segment, error) from error


def producers_at(
    offset: Offset,
    place: Place,
    start: StartState,
    segments: Iterable[Segment],
    epoch_at: EpochAt,
) -> TableSnapshot:
    """Find the table at `offset`, a batch edge, from the nearest snapshot below it.

    Args:
        offset: not below the base of `start`.
        place: of the partition.
        start: as on disk.
        segments: all of the log, in order.
        epoch_at: of the Raft log.

    Raises:
        DamagedLog: a batch that has to be replayed is damaged.
    """
    begin, snapshot = start.base_offset, start.producers
    for name in PRODUCER_CACHES:
        data = read_whole(place.directory, name)
        found = None if data is None else decode_snapshot(data, seed=place.seed)
        if found is not None and begin <= found[0].offset <= offset:
            begin, snapshot = found[0].offset, found[1]
    table = ProducerTable()
    table.restore(snapshot)
    for segment in segments:
        if begin < segment.next_offset and segment.base_offset < offset:
            note_producers(table, place, segment, epoch_at, begin=begin, end=offset)
    return table.snapshot()


def damaged_log(place: Place, segment: Segment, error: BrokenChain) -> DamagedLog:
    """Say where `segment` is damaged."""
    index = segment.index_if_loaded()
    behind = None if index is None else index.offset_behind(error.position)
    return DamagedLog(
        str(error),
        path=f"{place.directory.path}/{segment_name(segment.base_offset)}",
        position=error.position,
        first_offset=error.offset,
        end_offset=max(segment.next_offset if behind is None else behind, error.offset),
    )
