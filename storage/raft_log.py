"""The own entries of a partition's Raft log: their bytes in `raft-log` and their lookups.

Owns the record format of `raft-log`, the scan that ends at the first bad byte, and the
history of terms in memory. Must not know files, segments, or what a body means.

One record of the file, big-endian, records one behind the other::

    | size 4 | crc 4 | format 1 | kind 1 | n 8 | offset 8 | term 8 | body ... |
               crc = CRC-32C of size and of all that follows crc, seeded with the partition's
              identity, so that another's file does not pass
    size = bytes of format..body, so 26 and more

Invariants:
    RL1  Numbers are dense: entry `i` kept has n = base.own + i.
    RL2  Offsets and terms never decrease, nor lie below those of the base.
    RL3  `base.own` counts the own entries with offset < base.offset; own entries with offset =
         base.offset are kept.
    RL4  A scan returns a prefix of the entries once written, never another entry.

Source: Raft section 5.3 (log matching), 5.4.1 (term of the last entry); KIP-101 (history of
leader epochs); ringlog's rule that own entries take no offset.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from ringlog.storage.errors import WrongDirectory
from ringlog.storage.types import Buffer, LeaderEpoch, Offset, Position

RAFT_LOG_NAME = "raft-log"
ENTRY_FORMAT = 1

_HEAD = struct.Struct(">II")
_SIZE = struct.Struct(">I")
_FIELDS = struct.Struct(">BBqqq")


class EntryKind(IntEnum):
    """What an own entry says."""

    TERM_OPENING = 1
    CONFIGURATION = 2
    LOG_START = 3


_KINDS = frozenset(EntryKind)


class OwnEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of Raft itself. It begins at position (offset, n) and ends at (offset, n+1)."""

    n: int
    """Number of own entries before it since the partition was made."""
    offset: Offset
    """Log end offset when it was appended: it stands before the batch that begins here."""
    term: LeaderEpoch
    """Term of the leader that appended it."""
    kind: EntryKind
    """What the body is."""
    body: bytes
    """Bytes that belong to `replication`, opaque here."""


def encode_entry(entry: OwnEntry, *, seed: int = 0) -> bytes:
    """Return the record for `entry` in the `raft-log` of the partition that `seed` stands for."""
    fields = _FIELDS.pack(ENTRY_FORMAT, entry.kind, entry.n, entry.offset, entry.term)
    size = _SIZE.pack(len(fields) + len(entry.body))
    crc = crc32c(entry.body, crc32c(fields, crc32c(size, seed)))
    return b"".join((size, _SIZE.pack(crc), fields, entry.body))


def scan_entries(data: Buffer, *, first_n: int | None, seed: int = 0) -> tuple[list[OwnEntry], int]:
    """Read entries up to the first record that fails a check or does not follow the one before.

    Args:
        data: the whole file.
        first_n: number the first entry must have, or None when any may come first.
        seed: CRC-32C of the partition's identity.

    Returns:
        The entries, and the number of bytes they take (exclusive end of what is good).

    Raises:
        WrongDirectory: a record is whole but of a newer format. It is not torn, and cutting it
            would lose an entry that a newer version of ringlog has written.
    """
    view = memoryview(data)
    entries: list[OwnEntry] = []
    position = 0
    while True:
        record = _record_at(view, position, seed)
        if record is None:
            break
        entry = _decode_fields(record)
        if entries:
            if not _follows(entry, entries[-1]):
                break
        elif first_n is not None and entry.n != first_n:
            break
        entries.append(entry)
        position += _HEAD.size + len(record)
    return entries, position


def _record_at(view: memoryview, position: int, seed: int) -> memoryview | None:
    """Return format..body of the record at `position`, or None when it is torn or flipped."""
    if len(view) - position < _HEAD.size + _FIELDS.size:
        return None
    size, crc = _HEAD.unpack_from(view, position)
    begin = position + _HEAD.size
    if size < _FIELDS.size or size > len(view) - begin:
        return None
    record = view[begin : begin + size]
    # The size is inside the CRC, so that a flip in it is a bad CRC and not a shorter body.
    if crc32c(record, crc32c(view[position : position + _SIZE.size], seed)) != crc:
        return None
    return record


def _decode_fields(record: memoryview) -> OwnEntry:
    entry_format, kind, n, offset, term = _FIELDS.unpack_from(record)
    if entry_format != ENTRY_FORMAT or kind not in _KINDS:
        raise WrongDirectory(
            f"{RAFT_LOG_NAME} holds an entry of format {entry_format} and kind {kind}; "
            f"this version reads format {ENTRY_FORMAT} and kinds 1 to {max(EntryKind)}",
            hint="start the version of ringlog that wrote this data directory, or a newer one",
        )
    body = bytes(record[_FIELDS.size :])
    return OwnEntry(n, Offset(offset), LeaderEpoch(term), EntryKind(kind), body)


def _follows(entry: OwnEntry, previous: OwnEntry) -> bool:
    return (
        entry.n == previous.n + 1
        and entry.offset >= previous.offset
        and entry.term >= previous.term
    )


class _Columns(NamedTuple):
    """Offsets and terms of the entries, for bisect; both ascend (RL2).

    Replaced as a whole where entries go, so that a reader on another thread sees the history
    of one moment. A new entry's term is added before its offset, which alone is searched.
    """

    base_term: LeaderEpoch
    offsets: list[Offset]
    terms: list[LeaderEpoch]


class RaftLog:
    """The own entries kept, and the term of every position from `base` on. In memory only.

    Owned by `PartitionLog`; its thread alone may call anything but `epoch_at`. Entries are
    appended, truncated from the end and trimmed from the front.

    Attributes:
        base: first position known here; see RL3.
    """

    __slots__ = ("_columns", "_entries", "base")

    def __init__(
        self, base: Position, term_before: LeaderEpoch, entries: Iterable[OwnEntry] = ()
    ) -> None:
        self.base = base
        self._entries: list[OwnEntry] = []
        self._columns = _Columns(term_before, [], [])
        for entry in entries:
            self.append(entry)

    @classmethod
    def from_scan(
        cls, base: Position, term_before: LeaderEpoch, scanned: Iterable[OwnEntry]
    ) -> "RaftLog":
        """Build from what `scan_entries` returned, keeping what belongs behind `base`.

        Entries with an offset below the base are those that a log-start move was about to
        drop. If what remains does not continue at `base`, nothing of it is kept, and the
        caller's comparison with the durable mark decides whether that is damage.
        """
        log = cls(base, term_before)
        for entry in scanned:
            if entry.offset < base.offset:
                continue
            if entry.n != log.end_own or entry.term < log.last_term:
                break
            log.append(entry)
        return log

    def copy(self) -> "RaftLog":
        """Return a log of its own with the same entries, for another thread to look up."""
        return RaftLog(self.base, self._columns.base_term, self._entries)

    @property
    def entries(self) -> Sequence[OwnEntry]:
        """The entries kept, in order of n."""
        return self._entries

    @property
    def end_own(self) -> int:
        """Number that the next own entry takes (exclusive end)."""
        return self.base.own + len(self._entries)

    @property
    def last_term(self) -> LeaderEpoch:
        """Term of the last own entry, or the term before the base."""
        base_term, _offsets, terms = self._columns
        return terms[-1] if terms else base_term

    def append(self, entry: OwnEntry) -> None:
        """Add `entry` behind the last one."""
        assert entry.n == self.end_own, f"RL1: entry {entry.n} at {self.end_own}"
        _base_term, offsets, terms = self._columns
        last_offset = offsets[-1] if offsets else self.base.offset
        assert entry.offset >= last_offset, f"RL2: offset {entry.offset} behind {last_offset}"
        assert entry.term >= self.last_term, f"RL2: term {entry.term} behind {self.last_term}"
        self._entries.append(entry)
        terms.append(entry.term)
        offsets.append(entry.offset)

    def truncate(self, own: int) -> None:
        """Drop the own entries with n >= `own`."""
        assert own >= self.base.own, f"RL1: truncation to {own} below base {self.base.own}"
        keep = own - self.base.own
        base_term, offsets, terms = self._columns
        self._entries = self._entries[:keep]
        self._columns = _Columns(base_term, offsets[:keep], terms[:keep])

    def trim(self, base: Position) -> None:
        """Move the base up to `base`, as `lowest_at(base.offset)` gives it, dropping entries."""
        assert base == self.lowest_at(base.offset), f"RL3: {base} is not the lowest at its offset"
        drop = base.own - self.base.own
        base_term, offsets, terms = self._columns
        if drop:
            base_term = terms[drop - 1]
        self._entries = self._entries[drop:]
        self._columns = _Columns(base_term, offsets[drop:], terms[drop:])
        self.base = base

    def lowest_at(self, offset: Offset) -> Position:
        """Position at the end of the batch that ends at `offset` (>= base offset)."""
        assert offset >= self.base.offset, f"offset {offset} below base {self.base.offset}"
        return Position(offset, self.base.own + bisect_left(self._columns.offsets, offset))

    def highest_at(self, offset: Offset) -> Position:
        """Position at the begin of the batch that begins at `offset` (>= base offset)."""
        assert offset >= self.base.offset, f"offset {offset} below base {self.base.offset}"
        return Position(offset, self.base.own + bisect_right(self._columns.offsets, offset))

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """Return the leader epoch that a batch beginning at `offset` carries.

        Any thread may call. A reader whose log is trimmed or truncated under it gets some
        term, not an error: it finds out by itself that what it read is stale.
        """
        base_term, offsets, terms = self._columns
        count = bisect_right(offsets, offset)
        return terms[count - 1] if count else base_term

    def term_before(self, position: Position) -> LeaderEpoch:
        """Return the term of the entry that ends at `position`, which must be in this log."""
        base_term, _offsets, terms = self._columns
        count = position.own - self.base.own
        assert 0 <= count <= len(terms), f"{position} outside own entries"
        return terms[count - 1] if count else base_term

    def term_begin(self, position: Position) -> Position:
        """Return where the term of the entry that ends at `position` begins in this log.

        That is the begin of its opening, or the base when the opening is no longer kept.
        """
        base_term, _offsets, terms = self._columns
        count = position.own - self.base.own
        assert 0 <= count <= len(terms), f"{position} outside own entries"
        if not count or terms[count - 1] == base_term:
            return self.base
        opening = self._entries[bisect_left(terms, terms[count - 1])]
        return Position(opening.offset, opening.n)

    def holds(self, position: Position, log_end: Position) -> bool:
        """Whether `position` is a place in this log, which ends at `log_end`.

        If the terms there match as well, its offset is a batch edge in both logs.
        """
        # the own part must be one that this log knows or has known up to its base
        if not self.base.own <= position.own <= self.end_own:
            return False
        if not self.base <= position <= log_end:
            return False
        # own entry n-1, which ends at or before it, must not stand behind its offset,
        offsets = self._columns.offsets
        count = position.own - self.base.own
        if count and offsets[count - 1] > position.offset:
            return False
        # and own entry n, which begins at or after it, must not stand before its offset
        return count == len(offsets) or offsets[count] >= position.offset

    def last_of(self, kind: EntryKind, *, before_own: int | None = None) -> OwnEntry | None:
        """Return the last entry of `kind` kept with n < `before_own` (None = of all)."""
        end = len(self._entries) if before_own is None else before_own - self.base.own
        for entry in reversed(self._entries[: max(end, 0)]):
            if entry.kind is kind:
                return entry
        return None

    def encode(self, *, seed: int = 0) -> bytes:
        """Return the whole file of the entries kept, as recovery and a trim write it."""
        return b"".join([encode_entry(entry, seed=seed) for entry in self._entries])
