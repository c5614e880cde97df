"""The segments in order."""

import pytest

from ringlog.storage.segment import Segment
from ringlog.storage.segment_list import SegmentList
from ringlog.storage.types import Offset


def segments(*bases: int) -> SegmentList:
    made = [
        Segment(Offset(base), created_ms=0, index=None, size_bytes=10, next_offset=Offset(end))
        for base, end in zip(bases, (*bases[1:], bases[-1] + 5), strict=True)
    ]
    return SegmentList(made)


def bases(found: "SegmentList | list[Segment]") -> list[int]:
    return [segment.base_offset for segment in found]


@pytest.mark.parametrize(("offset", "base"), [(3, 3), (9, 3), (10, 10), (20, 20), (99, 20)])
def test_the_segment_that_contains_an_offset(offset: int, base: int) -> None:
    assert segments(3, 10, 20).containing(Offset(offset)).base_offset == base


def test_an_offset_below_all_is_our_own_bug() -> None:
    with pytest.raises(AssertionError):
        segments(3, 10).containing(Offset(2))


@pytest.mark.parametrize(
    ("offset", "kept", "dropped"), [(10, [3, 10], [20]), (9, [3], [10, 20]), (25, [3, 10, 20], [])]
)
def test_cutting_keeps_the_segment_that_begins_at_the_cut(
    offset: int, kept: list[int], dropped: list[int]
) -> None:
    found = segments(3, 10, 20)
    assert bases(found.cut(Offset(offset))) == dropped
    assert bases(found) == kept
    assert found.active.base_offset == kept[-1]


@pytest.mark.parametrize(
    ("offset", "dropped"), [(3, []), (9, []), (10, [3]), (19, [3]), (99, [3, 10])]
)
def test_only_whole_segments_below_an_offset_are_dropped(offset: int, dropped: list[int]) -> None:
    found = segments(3, 10, 20)
    assert bases(found.drop_below(Offset(offset))) == dropped
    assert bases(found) == [base for base in (3, 10, 20) if base not in dropped]


def test_a_new_segment_begins_where_the_last_one_ends() -> None:
    found = segments(3)
    with pytest.raises(AssertionError, match="N1"):
        found.append(Segment(Offset(9), created_ms=0, index=None))
    found.append(Segment(Offset(8), created_ms=0, index=None))
    assert bases(found) == [3, 8]
    assert len(found) == 2
    assert found.size_bytes == 10
    with pytest.raises(AssertionError, match="N1"):
        found.replace_active(Segment(Offset(3), created_ms=0, index=None))
    new = Segment(Offset(8), created_ms=0, index=None)
    found.replace_active(new)
    assert found.snapshot()[-1] is new
