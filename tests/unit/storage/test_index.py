"""The sparse index: look-ups at the edges, and files that must not be used."""

import pytest

from ringlog.storage.index import Coverage, SparseIndex, decode_index
from ringlog.storage.types import Offset

COVERED = Coverage(Offset(100), 900, Offset(200), 77, 5, 9)


def filled() -> SparseIndex:
    """Batches of 10 offsets and 50 bytes from offset 100 on, times 0, 1, 2, ...; every other."""
    index = SparseIndex(Offset(100), 100)
    for i in range(10):
        index.note(Offset(100 + 10 * i), 50 * i, i - 1)
    return index


def test_an_entry_is_made_per_interval_and_always_for_the_first_batch() -> None:
    assert list(filled().entries()) == [(100 + 20 * i, 100 * i) for i in range(5)]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(100, (100, 0, -1)), (119, (100, 0, -1)), (120, (120, 100, 1)), (10_000, (180, 400, 7))],
)
def test_the_last_entry_at_or_below_an_offset(offset: int, expected: tuple[int, int, int]) -> None:
    assert filled().before_offset(Offset(offset)) == expected
    assert filled().at_offset(Offset(offset)) == expected[:2]


@pytest.mark.parametrize(
    ("time_ms", "expected"), [(-1, (100, 0)), (1, (100, 0)), (2, (120, 100)), (99, (180, 400))]
)
def test_no_batch_before_the_entry_of_a_time_has_that_time(
    time_ms: int, expected: tuple[int, int]
) -> None:
    assert filled().at_timestamp(time_ms) == expected


def test_an_empty_index_answers_with_the_base() -> None:
    index = SparseIndex(Offset(100), 100)
    assert index.before_offset(Offset(170)) == (100, 0, -1)
    assert index.at_timestamp(5) == (100, 0)
    assert index.position_behind(Offset(100)) is None
    assert index.edge_within(0, 50) is None


def test_edges_for_reads() -> None:
    index = filled()
    assert index.position_behind(Offset(101)) == 100
    assert index.position_behind(Offset(120)) == 100
    assert index.position_behind(Offset(181)) is None
    assert index.edge_within(0, 350) == 300
    assert index.edge_within(100, 150) == 200  # nothing within: the first one behind
    assert index.edge_within(400, 500) is None
    assert index.offset_behind(100) == 140
    assert index.offset_behind(400) is None


def test_a_prefix_goes_on_as_if_the_rest_had_never_been() -> None:
    index = filled().prefix(250)
    assert list(index.entries()) == [(100, 0), (120, 100), (140, 200)]
    index.note(Offset(150), 250, 4)
    index.note(Offset(160), 300, 4)
    assert list(index.entries())[-1] == (160, 300)


def test_both_files_read_back() -> None:
    offsets, times = filled().encode(COVERED, seed=3)
    decoded = decode_index(offsets, times, interval_bytes=100, seed=3)
    assert decoded is not None
    index, covered = decoded
    assert covered == COVERED
    assert list(index.entries()) == list(filled().entries())
    assert index.at_timestamp(2) == (120, 100)
    index.note(Offset(999), 450, 9)  # within the interval of the last entry
    assert len(index) == 5


def test_another_partitions_files_a_flip_or_a_cut_are_not_used() -> None:
    offsets, times = filled().encode(COVERED, seed=3)
    assert decode_index(offsets, times, interval_bytes=100, seed=4) is None
    assert decode_index(times, offsets, interval_bytes=100, seed=3) is None
    for i in range(len(offsets)):
        flipped = offsets[:i] + bytes([offsets[i] ^ 4]) + offsets[i + 1 :]
        assert decode_index(flipped, times, interval_bytes=100, seed=3) is None
        assert decode_index(offsets[:i], times, interval_bytes=100, seed=3) is None
    for i in range(len(times)):
        flipped = times[:i] + bytes([times[i] ^ 4]) + times[i + 1 :]
        assert decode_index(offsets, flipped, interval_bytes=100, seed=3) is None
        assert decode_index(offsets, times[:i], interval_bytes=100, seed=3) is None


def test_files_of_two_moments_do_not_go_together() -> None:
    offsets, _times = filled().encode(COVERED, seed=3)
    other = Coverage(Offset(100), 901, Offset(200), 77, 5, 9)
    _offsets, times = filled().encode(other, seed=3)
    assert decode_index(offsets, times, interval_bytes=100, seed=3) is None
