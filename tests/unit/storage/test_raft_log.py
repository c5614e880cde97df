"""Own entries: records of `raft-log`, the scan, and the questions asked of the history."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from ringlog.storage.errors import WrongDirectory
from ringlog.storage.raft_log import EntryKind, OwnEntry, RaftLog, encode_entry, scan_entries
from ringlog.storage.types import LOG_BEGIN, LeaderEpoch, Offset, Position


def own(
    n: int, offset: int, term: int, kind: EntryKind = EntryKind.TERM_OPENING, body: bytes = b""
) -> OwnEntry:
    return OwnEntry(n, Offset(offset), LeaderEpoch(term), kind, body)


def position(offset: int, number: int) -> Position:
    return Position(Offset(offset), number)


ENTRIES = [
    own(0, 0, 1),
    own(1, 0, 1, EntryKind.CONFIGURATION, b"voters"),
    own(2, 10, 1, EntryKind.LOG_START, b"\0" * 9),
    own(3, 10, 3),
    own(4, 25, 4),
]


def file_of(entries: list[OwnEntry]) -> bytes:
    return b"".join(map(encode_entry, entries))


def test_a_record_is_laid_out_as_documented() -> None:
    record = encode_entry(own(7, 9, 5, EntryKind.LOG_START, b"body"))
    size, crc, version, kind, n, offset, term = struct.unpack_from(">IIBBqqq", record)
    assert (size, version, kind, n, offset, term) == (30, 1, 3, 7, 9, 5)
    assert record[34:] == b"body"
    assert crc == crc32c(record[:4] + record[8:])


def test_a_scan_reads_back_what_was_encoded() -> None:
    data = file_of(ENTRIES)
    assert scan_entries(data, first_n=0) == (ENTRIES, len(data))
    assert scan_entries(memoryview(data), first_n=None) == (ENTRIES, len(data))
    assert scan_entries(b"", first_n=0) == ([], 0)


def test_a_scan_stops_at_another_first_number() -> None:
    assert scan_entries(file_of(ENTRIES[2:]), first_n=0) == ([], 0)
    assert scan_entries(file_of(ENTRIES[2:]), first_n=2)[0] == ENTRIES[2:]


@pytest.mark.parametrize(
    "breaking", [own(6, 30, 4), own(4, 30, 4), own(5, 24, 4), own(5, 25, 3)], ids=str
)
def test_a_scan_stops_at_a_break_in_number_offset_or_term(breaking: OwnEntry) -> None:
    good = file_of(ENTRIES)
    assert scan_entries(good + encode_entry(breaking), first_n=0) == (ENTRIES, len(good))


def test_garbage_and_zeros_behind_the_end_are_no_entries() -> None:
    good = file_of(ENTRIES)
    for tail in (bytes(200), b"\xff" * 200, b"\0\0\0\x1a" + bytes(60)):
        assert scan_entries(good + tail, first_n=0) == (ENTRIES, len(good))


@pytest.mark.parametrize(("version", "kind"), [(2, 1), (1, 4), (1, 0)])
def test_a_whole_record_of_a_newer_version_is_refused_not_cut(version: int, kind: int) -> None:
    fields = struct.pack(">BBqqq", version, kind, 5, 25, 4)
    size = struct.pack(">I", len(fields))
    record = size + struct.pack(">I", crc32c(size + fields)) + fields
    with pytest.raises(WrongDirectory, match=f"format {version} and kind {kind}") as caught:
        scan_entries(file_of(ENTRIES) + record, first_n=0)
    assert caught.value.hint


def test_epoch_and_edges_follow_the_own_entries() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    assert [log.epoch_at(Offset(o)) for o in (0, 9, 10, 24, 25, 99)] == [1, 1, 3, 3, 4, 4]
    # own entries of offset 10 stand after the batch that ends there, before the one beginning
    assert log.lowest_at(Offset(10)) == position(10, 2)
    assert log.highest_at(Offset(10)) == position(10, 4)
    assert log.lowest_at(Offset(0)) == position(0, 0)
    assert log.highest_at(Offset(11)) == log.lowest_at(Offset(11)) == position(11, 4)


def test_terms_before_and_where_they_begin() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    assert [log.term_before(position(o, n)) for o, n in ((0, 0), (0, 1), (10, 3), (10, 4))] == [
        0, 1, 1, 3,
    ]  # fmt: skip
    assert log.term_begin(position(0, 0)) == LOG_BEGIN
    assert log.term_begin(position(10, 3)) == position(0, 0)
    assert log.term_begin(position(20, 4)) == position(10, 3)
    assert log.term_begin(position(99, 5)) == position(25, 4)


def test_a_term_opened_below_the_base_begins_at_the_base() -> None:
    for base in (position(10, 2), position(5, 2)):
        log = RaftLog(base, LeaderEpoch(1), ENTRIES[2:])
        assert log.term_begin(position(10, 3)) == base


def test_holds_tells_places_in_this_log() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    end = position(30, 5)
    for held in ((0, 0), (0, 2), (10, 2), (10, 3), (10, 4), (24, 4), (25, 5), (30, 5)):
        assert log.holds(position(*held), end), held
    for absent in ((0, 3), (5, 0), (5, 1), (9, 3), (10, 1), (11, 2), (25, 3), (26, 4), (30, 6),
                   (31, 5), (12, 9)):  # fmt: skip
        assert not log.holds(position(*absent), end), absent


def test_holds_nothing_below_the_base() -> None:
    log = RaftLog(position(10, 2), LeaderEpoch(1), ENTRIES[2:])
    assert log.holds(position(10, 2), position(30, 5))
    for absent in ((9, 2), (10, 1), (20, 0), (0, 0)):
        assert not log.holds(position(*absent), position(30, 5)), absent


def test_truncation_drops_from_a_number_on() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    log.truncate(3)
    assert list(log.entries) == ENTRIES[:3]
    assert (log.end_own, log.last_term, log.epoch_at(Offset(99))) == (3, 1, 1)
    log.append(own(3, 12, 7))
    assert log.epoch_at(Offset(12)) == 7


def test_a_trim_keeps_the_entries_at_its_offset() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    log.trim(log.lowest_at(Offset(10)))
    assert (log.base, log.end_own) == (position(10, 2), 5)
    assert list(log.entries) == ENTRIES[2:]
    assert log.term_before(log.base) == 1
    log.trim(log.lowest_at(Offset(40)))
    assert (log.base, list(log.entries), log.epoch_at(Offset(40))) == (position(40, 5), [], 4)
    with pytest.raises(AssertionError):
        log.trim(position(50, 4))


def test_what_a_scan_found_is_taken_from_the_base_on() -> None:
    base = position(10, 2)
    log = RaftLog.from_scan(base, LeaderEpoch(1), ENTRIES)
    assert list(log.entries) == ENTRIES[2:]
    # a file cut short by a crash in the middle of its replacement is no continuation
    assert RaftLog.from_scan(base, LeaderEpoch(1), ENTRIES[3:]).entries == []
    assert RaftLog.from_scan(base, LeaderEpoch(2), ENTRIES).entries == []


def test_the_last_entry_of_a_kind() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    assert log.last_of(EntryKind.TERM_OPENING) == ENTRIES[4]
    assert log.last_of(EntryKind.TERM_OPENING, before_own=4) == ENTRIES[3]
    assert log.last_of(EntryKind.CONFIGURATION, before_own=1) is None
    assert log.last_of(EntryKind.CONFIGURATION) == ENTRIES[1]


@pytest.mark.parametrize("entry", [own(6, 30, 4), own(5, 24, 4), own(5, 25, 3)], ids=str)
def test_an_entry_out_of_order_is_our_own_bug(entry: OwnEntry) -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    with pytest.raises(AssertionError, match=r"RL[12]"):
        log.append(entry)


def test_encode_gives_the_file_of_what_is_kept() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    log.trim(log.lowest_at(Offset(10)))
    assert log.encode() == file_of(ENTRIES[2:])


class Interrupted(int):
    """An offset whose first comparison lets another thread's change happen, all of it."""

    changes: list[Callable[[], None]]

    def __lt__(self, other: int) -> bool:
        while self.changes:
            self.changes.pop()()
        return int(self) < other


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.truncate(0),
        lambda log: log.truncate(4),
        lambda log: log.trim(log.lowest_at(Offset(10))),
        lambda log: log.trim(log.lowest_at(Offset(99))),
        lambda log: log.append(own(5, 30, 9)),
    ],
)
@pytest.mark.parametrize("offset", [0, 9, 10, 24, 25, 99])
def test_a_reader_on_another_thread_sees_the_history_of_one_moment(
    change: Callable[[RaftLog], None], offset: int
) -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0), ENTRIES)
    before = log.epoch_at(Offset(offset))
    asked = Interrupted(offset)
    asked.changes = [lambda: change(log)]
    answer = log.epoch_at(Offset(asked))
    assert not asked.changes
    assert answer in {before, log.epoch_at(Offset(offset))}


def test_a_reader_between_the_steps_of_an_append_gets_an_answer() -> None:
    log = RaftLog(LOG_BEGIN, LeaderEpoch(0))
    answers = []

    class Watched(list[int]):
        def append(self, value: int) -> None:
            super().append(value)
            answers.append(log.epoch_at(Offset(99)))

    log._columns = log._columns._replace(offsets=Watched(), terms=Watched())  # type: ignore[arg-type] # watched lists of plain integers
    for n in range(3):
        log.append(own(n, n, n + 1))
    assert answers == [0, 1, 1, 2, 2, 3]


def test_a_reader_below_the_base_gets_some_term_and_no_error() -> None:
    log = RaftLog(position(10, 2), LeaderEpoch(1), ENTRIES[2:])
    assert log.epoch_at(Offset(0)) == 1
