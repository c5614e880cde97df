"""RaftLog against a linear twin, and the scan of `raft-log` under every cut and flip.

The twin is one flat list of entries, own entries and records, walked from the start for each
question; it knows no positions but by counting.
"""

from hypothesis import given
from hypothesis import strategies as st

from ringlog.storage.errors import WrongDirectory
from ringlog.storage.raft_log import EntryKind, OwnEntry, RaftLog, encode_entry, scan_entries
from ringlog.storage.types import LOG_BEGIN, LeaderEpoch, Offset, Position


class FlatTwin:
    """A whole log as a list: ("record", term) or ("own", term) from the very first entry on."""

    def __init__(self) -> None:
        self.flat: list[tuple[str, int]] = []

    def positions(self) -> list[Position]:
        """Position before each entry, and the log end."""
        found = [LOG_BEGIN]
        for what, _term in self.flat:
            offset, own = found[-1]
            found.append(
                Position(Offset(offset + 1), own) if what == "record" else Position(offset, own + 1)
            )
        return found

    def term_before(self, position: Position, first: int) -> int:
        place = self.positions().index(position)
        return self.flat[place - 1][1] if place else first

    def record_term(self, offset: int) -> int:
        records = [term for what, term in self.flat if what == "record"]
        return records[offset]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(1, 3)),
        st.tuples(st.just("opening"), st.integers(1, 3)),
        st.tuples(st.just("own"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 30)),
        st.tuples(st.just("trim"), st.integers(0, 30)),
    ),
    max_size=30,
)


def apply(twin: FlatTwin, log: RaftLog, operation: str, number: int, counter: int) -> None:
    positions = twin.positions()
    end = positions[-1]
    term = twin.flat[-1][1] if twin.flat else 0
    if operation == "records" and term:
        twin.flat += [("record", term)] * number
    elif operation == "opening" or (operation == "own" and term):
        kind = EntryKind.TERM_OPENING if operation == "opening" else EntryKind.CONFIGURATION
        term += number
        log.append(OwnEntry(end.own, end.offset, LeaderEpoch(term), kind, b"%d" % counter))
        twin.flat.append(("own", term))
    elif operation == "truncate":
        held = [place for place, position in enumerate(positions) if position >= log.base]
        place = held[-1 - min(number, len(held) - 1)]
        log.truncate(positions[place].own)
        del twin.flat[place:]
    elif operation == "trim":
        edges = sorted({p.offset for p in positions if p.offset >= log.base.offset})
        log.trim(log.lowest_at(edges[min(number, len(edges) - 1)]))


@given(OPERATIONS)
def test_every_question_has_the_answer_of_the_flat_list(
    operations: list[tuple[str, int]],
) -> None:
    twin, log = FlatTwin(), RaftLog(LOG_BEGIN, LeaderEpoch(0))
    for counter, (operation, number) in enumerate(operations):
        apply(twin, log, operation, number, counter)
        positions = twin.positions()
        end = positions[-1]
        assert log.end_own == end.own
        # the base is the lowest position of its offset (RL3)
        assert log.base == min(p for p in positions if p.offset == log.base.offset)
        kept = [p for p in positions if p >= log.base]
        for position in kept:
            assert log.term_before(position) == twin.term_before(position, 0)
        for offset in range(log.base.offset, end.offset):
            assert log.epoch_at(Offset(offset)) == twin.record_term(offset)
        for offset in range(log.base.offset, end.offset + 1):
            there = [p for p in positions if p.offset == offset]
            assert log.lowest_at(Offset(offset)) == there[0]
            assert log.highest_at(Offset(offset)) == there[-1]
        for offset in range(end.offset + 2):
            for own in range(end.own + 2):
                position = Position(Offset(offset), own)
                assert log.holds(position, end) == (position in kept), position


@given(OPERATIONS)
def test_a_term_begins_where_its_first_entry_does(operations: list[tuple[str, int]]) -> None:
    twin, log = FlatTwin(), RaftLog(LOG_BEGIN, LeaderEpoch(0))
    for counter, (operation, number) in enumerate(operations):
        apply(twin, log, operation, number, counter)
    positions = twin.positions()
    for place, position in enumerate(positions):
        if position < log.base:
            continue
        term = twin.term_before(position, 0)
        begin = place
        while begin and twin.flat[begin - 1][1] == term:
            begin -= 1
        assert log.term_begin(position) == max(positions[begin], log.base)


@given(OPERATIONS)
def test_a_file_trimmed_or_not_yet_gives_the_same_log(operations: list[tuple[str, int]]) -> None:
    """A crash between start-state and the new `raft-log` leaves the old file: same history."""
    twin, log = FlatTwin(), RaftLog(LOG_BEGIN, LeaderEpoch(0))
    for counter, (operation, number) in enumerate(operations):
        if operation != "trim":
            apply(twin, log, operation, number, counter)
    whole = log.encode()
    offsets = {position.offset for position in twin.positions()}
    for offset in offsets:
        log = RaftLog(LOG_BEGIN, LeaderEpoch(0), scan_entries(whole, first_n=0)[0])
        log.trim(log.lowest_at(offset))
        term = log.term_before(log.base)
        for data in (whole, log.encode()):
            again = RaftLog.from_scan(log.base, term, scan_entries(data, first_n=None)[0])
            assert again.entries == log.entries
            assert again.base == log.base


ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(0, 2), st.sampled_from(list(EntryKind)),
        st.binary(max_size=40),
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


def ascending(parts: list[tuple[int, int, EntryKind, bytes]]) -> list[OwnEntry]:
    entries: list[OwnEntry] = []
    offset = term = 0
    for n, (offset_step, term_step, kind, body) in enumerate(parts):
        offset, term = offset + offset_step, term + term_step
        entries.append(OwnEntry(n, Offset(offset), LeaderEpoch(term), kind, body))
    return entries


@given(ENTRIES)
def test_every_cut_of_a_file_gives_a_prefix(
    parts: list[tuple[int, int, EntryKind, bytes]],
) -> None:
    entries = ascending(parts)
    records = [encode_entry(entry) for entry in entries]
    data = b"".join(records)
    ends = [sum(map(len, records[:count])) for count in range(len(records) + 1)]
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends) - 1
        assert scan_entries(data[:cut], first_n=0) == (entries[:whole], ends[whole])


@given(ENTRIES, st.integers(1, 255))
def test_every_flipped_byte_ends_the_scan_at_its_record(
    parts: list[tuple[int, int, EntryKind, bytes]], flip: int
) -> None:
    entries = ascending(parts)
    records = [encode_entry(entry) for entry in entries]
    data = bytearray(b"".join(records))
    ends = [sum(map(len, records[:count])) for count in range(len(records) + 1)]
    for place in range(len(data)):
        data[place] ^= flip
        whole = sum(end <= place for end in ends) - 1
        assert scan_entries(data, first_n=None) == (entries[:whole], ends[whole])
        data[place] ^= flip


@given(ENTRIES, st.binary(max_size=120))
def test_whatever_lies_behind_the_end_is_no_entry(
    parts: list[tuple[int, int, EntryKind, bytes]], garbage: bytes
) -> None:
    entries = ascending(parts)
    data = b"".join(map(encode_entry, entries))
    try:
        found, size = scan_entries(data + garbage, first_n=0)
    except WrongDirectory:
        raise AssertionError("garbage passed for a record of a newer version") from None
    assert (found, size) == (entries, len(data))
