"""The purgatory against a twin that keeps lists and looks at everything each time."""

from hypothesis import given
from hypothesis import strategies as st

from ringlog.broker.purgatory import ByteWait, ByteWaits, CommitWaits
from ringlog.storage.types import Offset, Position

positions = st.builds(Position, st.integers(0, 8).map(Offset), st.integers(0, 3))
commit_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), positions),
        st.tuples(st.just("release"), positions),
        st.tuples(st.just("drain"), positions),
    ),
    max_size=60,
)


@given(commit_steps)
def test_commit_waits_are_released_as_a_list_would(steps: list[tuple[str, Position]]) -> None:
    waits: CommitWaits[int] = CommitWaits()
    twin: list[tuple[Position, int]] = []
    for number, (step, position) in enumerate(steps):
        if step == "add":
            waits.add(position, number)
            twin.append((position, number))
            continue
        due = [e for e in sorted(twin) if step == "drain" or e[0] <= position]
        twin = [e for e in twin if e not in due]
        got = waits.drain() if step == "drain" else waits.release(position)
        assert got == [number for _, number in due]
        assert len(waits) == len(twin)


keys = st.sampled_from("abcd")
byte_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(keys, min_size=1, max_size=5), st.integers(1, 9)),
        st.tuples(st.just("arrived"), keys, st.integers(0, 9)),
        st.tuples(st.just("gone"), keys, st.just(0)),
        st.tuples(st.just("remove"), st.just("a"), st.integers(0, 30)),
    ),
    max_size=60,
)


class Twin:
    """One wait of the dumb model."""

    def __init__(self, number: int, names: list[str], missing: int) -> None:
        self.number = number
        self.names = set(names)
        self.missing = missing


@given(byte_steps)
def test_byte_waits_end_as_a_scan_over_all_would_say(
    steps: list[tuple[str, list[str] | str, int]],
) -> None:
    waits: ByteWaits[str, int] = ByteWaits()
    entries: list[ByteWait[str, int]] = []
    twins: list[Twin] = []
    for step, name, amount in steps:
        ended: list[int] = []
        if step == "add":
            entries.append(waits.add(name, amount, len(entries)))
            twins.append(Twin(len(entries) - 1, list(name), amount))
        elif step == "remove":
            if entries:
                number = amount % len(entries)
                waits.remove(entries[number])
                twins = [twin for twin in twins if twin.number != number]
        else:
            assert isinstance(name, str)
            for twin in twins:
                if name in twin.names:
                    twin.missing -= amount
                    if step == "gone" or twin.missing <= 0:
                        ended.append(twin.number)
            twins = [twin for twin in twins if twin.number not in ended]
            assert (waits.arrived(name, amount) if step == "arrived" else waits.gone(name)) == ended
        assert len(waits) == len(twins)
