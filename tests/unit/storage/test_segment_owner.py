"""What the caches of another log say of the segment beside them."""

import pytest

from ringlog.storage.errors import DamagedLog
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.segment import (
    CACHE_SUFFIXES,
    Place,
    Segment,
    save_index,
    save_seal,
    segment_name,
)
from ringlog.storage.segment_owner import end_in_other_log, refuse_other_log
from tests.unit.storage.test_segment import written

BASE = 10
OURS, THEIRS = 55, 56


def moved() -> tuple[Place, Segment]:
    """Our place with a segment and caches that another log wrote."""
    directory = MemoryDirectory()
    directory.create()
    theirs = Place(directory, THEIRS, 100)
    segment = written(theirs)
    save_seal(theirs, segment)
    save_index(theirs, segment)
    return Place(directory, OURS, 100), segment


@pytest.mark.parametrize("kept", [".seal", ".index"])
def test_one_cache_of_the_other_log_tells(kept: str) -> None:
    place, segment = moved()
    for suffix in CACHE_SUFFIXES:
        if suffix != kept:
            place.directory.unlink(segment_name(segment.base_offset, suffix))
    assert end_in_other_log(place, segment, segment.size_bytes) == segment.next_offset
    # What was appended since changes nothing.
    segment.file(place).pwrite([b"more"], segment.size_bytes)
    with pytest.raises(DamagedLog, match="offsets 10 to 18"):
        refuse_other_log(place, segment, segment.size_bytes + 4)


def test_caches_that_came_alone_prove_nothing() -> None:
    place, segment = moved()
    segment.file(place).pwrite([b"!"], 70)
    refuse_other_log(place, segment, segment.size_bytes)


def test_a_segment_that_is_shorter_than_they_say_is_not_theirs() -> None:
    place, segment = moved()
    refuse_other_log(place, segment, segment.size_bytes - 1)


def test_our_own_caches_and_broken_ones_and_none_are_not_asked() -> None:
    place, segment = moved()
    refuse_other_log(Place(place.directory, THEIRS, 100), segment, segment.size_bytes)
    for suffix in CACHE_SUFFIXES:
        place.directory.open(segment_name(segment.base_offset, suffix)).pwrite([b"!"], 12)
    refuse_other_log(place, segment, segment.size_bytes)
    for suffix in CACHE_SUFFIXES:
        place.directory.unlink(segment_name(segment.base_offset, suffix))
    refuse_other_log(place, segment, segment.size_bytes)
