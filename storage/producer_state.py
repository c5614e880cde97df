"""What a partition remembers of its idempotent producers, to answer duplicates.

Owns the rule of sequences: which batch of a producer may come next, which one is a duplicate
and of what offset, which one is fenced. Must not know files, clocks or the log; the same
batches in the same order give the same table on every replica.

Invariants:
    PT1  Rows are in the order of each producer's last batch; the first one is forgotten first,
         by count and never by clock, so all replicas forget the same one.
    PT2  A row holds one producer epoch and its last `remembered` batches, oldest first.
    PT3  `check` changes nothing; `note` judges nothing. The log is the truth: what was appended
         is noted, also when it is replayed from disk.
    PT4  Restoring a snapshot and noting the batches behind it equals noting them all.

A cache file `producer-snapshot`, big-endian::

    | format 1 | crc 4 | offset 8 | own 8 | MessagePack of TableSnapshot ... |
    crc = CRC-32C of all that follows it, seeded by the caller with the partition's identity

Source: KIP-98 (sequences), KIP-360 (unknown producers), Kafka's remembered batches.
"""

import struct
from collections import deque

import msgspec
from crc32c import crc32c

from ringlog.storage.errors import ProducerFenced, SequenceError
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.types import NO_PRODUCER_ID, Buffer, Offset, Position, ProducerId

SNAPSHOT_NAME = "producer-snapshot"
SNAPSHOT_FORMAT = 1
MAX_SEQUENCE = 2**31 - 1
"""Largest sequence (inclusive); the next one is 0."""

_SNAPSHOT_HEAD = struct.Struct(">BI")
_SNAPSHOT_POSITION = struct.Struct(">qq")


class BatchSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One batch of a producer, as remembered."""

    base_sequence: int
    """Sequence of its first record."""
    last_sequence: int
    """Sequence of its last record (inclusive)."""
    base_offset: Offset
    """Offset of its first record."""


class ProducerSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One producer with its newest epoch."""

    producer_id: ProducerId
    producer_epoch: int
    batches: tuple[BatchSnapshot, ...]
    """Oldest first, at least one."""


class TableSnapshot(msgspec.Struct, frozen=True):
    """A whole table, as `start-state` and the cache file hold it."""

    producers: tuple[ProducerSnapshot, ...] = ()
    """The producer whose last batch is oldest comes first."""


class _Row(msgspec.Struct, gc=False):
    epoch: int
    batches: deque[BatchSnapshot]


def next_sequence(sequence: int, count: int = 1) -> int:
    """Return the sequence `count` after `sequence`; 0 follows `MAX_SEQUENCE`."""
    return (sequence + count) & MAX_SEQUENCE


class ProducerTable:
    """The producers of one partition. Owned by `PartitionLog`; its thread alone may call."""

    __slots__ = ("_max_producers", "_remembered", "_rows")

    def __init__(self, max_producers: int = 10_000, remembered: int = 16) -> None:
        self._max_producers = max_producers
        self._remembered = remembered
        self._rows: dict[ProducerId, _Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def check(self, header: BatchHeader) -> Offset | None:
        """Judge a batch that a producer asks to append.

        Returns:
            The base offset of the original when the batch is a duplicate, else None: append it.

        Raises:
            ProducerFenced: its epoch is older than the newest seen.
            SequenceError: it does not follow the producer's last batch.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return None
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            raise SequenceError(
                f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence "
                f"{header.base_sequence}; none of them may be negative",
                expected=0,
                hint="the producer must ask for a producer id before it sends sequences",
            )
        row = self._rows.get(header.producer_id)
        if row is None:
            # Forgotten or new: nothing is known that a first sequence could contradict.
            return None
        if header.producer_epoch < row.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} is fenced: epoch {header.producer_epoch} is older "
                f"than {row.epoch}",
                expected=next_sequence(row.batches[-1].last_sequence),
                hint="another incarnation of this producer is active; close this one",
            )
        if header.producer_epoch > row.epoch:
            if header.base_sequence != 0:
                raise SequenceError(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} at "
                    f"sequence {header.base_sequence}",
                    expected=0,
                    hint="a new producer epoch begins at sequence 0",
                )
            return None
        return _check_same_epoch(header, row)

    def note(self, header: BatchHeader, base_offset: Offset) -> None:
        """Remember a batch that was appended at `base_offset`, or was read back from the log."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        rows = self._rows
        # Taken out and put back: the dict's order is the order of last batches (PT1).
        row = rows.pop(producer_id, None)
        if row is None or row.epoch != header.producer_epoch:
            row = _Row(header.producer_epoch, deque(maxlen=self._remembered))
        last_sequence = next_sequence(header.base_sequence, header.last_offset_delta)
        row.batches.append(BatchSnapshot(header.base_sequence, last_sequence, base_offset))
        rows[producer_id] = row
        if len(rows) > self._max_producers:
            del rows[next(iter(rows))]

    def snapshot(self) -> TableSnapshot:
        """Return the whole table; the table may change afterwards."""
        return TableSnapshot(
            tuple(
                ProducerSnapshot(producer_id, row.epoch, tuple(row.batches))
                for producer_id, row in self._rows.items()
            )
        )

    def restore(self, snapshot: TableSnapshot) -> None:
        """Become `snapshot`, cut to this table's bounds."""
        self._rows = {
            producer.producer_id: _Row(
                producer.producer_epoch, deque(producer.batches, maxlen=self._remembered)
            )
            for producer in snapshot.producers[-self._max_producers :]
        }

    def encode_snapshot(self, position: Position, *, seed: int = 0) -> bytes:
        """Return the cache file for the table as it is at `position`.

        Args:
            position: log end that the table belongs to.
            seed: CRC-32C of the partition's identity, so that another's file is not taken.
        """
        body = _SNAPSHOT_POSITION.pack(*position) + msgspec.msgpack.encode(self.snapshot())
        return _SNAPSHOT_HEAD.pack(SNAPSHOT_FORMAT, crc32c(body, seed)) + body


def decode_snapshot(data: Buffer, *, seed: int = 0) -> tuple[Position, TableSnapshot] | None:
    """Read a cache file, or return None on any doubt: the log tells the same, only slower."""
    smallest = _SNAPSHOT_HEAD.size + _SNAPSHOT_POSITION.size
    if len(data) < smallest:
        return None
    snapshot_format, crc = _SNAPSHOT_HEAD.unpack_from(data)
    body = memoryview(data)[_SNAPSHOT_HEAD.size :]
    if snapshot_format != SNAPSHOT_FORMAT or crc32c(body, seed) != crc:
        return None
    offset, own = _SNAPSHOT_POSITION.unpack_from(body)
    try:
        table = msgspec.msgpack.decode(body[_SNAPSHOT_POSITION.size :], type=TableSnapshot)
    except msgspec.DecodeError:
        return None
    return Position(Offset(offset), own), table


def _check_same_epoch(header: BatchHeader, row: _Row) -> Offset | None:
    expected = next_sequence(row.batches[-1].last_sequence)
    if header.base_sequence == expected:
        return None
    last_sequence = next_sequence(header.base_sequence, header.last_offset_delta)
    # Newest first: a retry is nearly always of the last batches.
    for batch in reversed(row.batches):
        if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            return batch.base_offset
    raise SequenceError(
        f"producer {header.producer_id} sent sequences {header.base_sequence} to "
        f"{last_sequence}, but {expected} is next and no remembered batch has them",
        expected=expected,
        hint="a batch before it is missing, or it repeats one that is no longer remembered; "
        "if its outcome matters, read the topic, then go on under a new producer epoch",
    )
