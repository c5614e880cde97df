"""One segment: names, ends, caches."""

import pytest

from ringlog.storage.index import SparseIndex
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.record_batch import read_header
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.segment import (
    Place,
    Segment,
    load_index,
    load_seal,
    read_whole,
    save_index,
    save_seal,
    segment_base,
    segment_name,
    whole_crc,
    write_whole,
)
from ringlog.storage.types import LeaderEpoch, Offset


def make_place() -> Place:
    directory = MemoryDirectory()
    directory.create()
    return Place(directory, 55, 100)


def batch(offset: int, time_ms: int = 5) -> bytes:
    return encode_batch([b"a", b"b"], timestamps=time_ms, base_offset=offset, leader_epoch=3)


def epoch_at(_offset: Offset) -> LeaderEpoch:
    return LeaderEpoch(3)


def written(place: Place, count: int = 4) -> Segment:
    """A closed segment of batches of two records from offset 10 on."""
    segment = Segment(Offset(10), created_ms=1, index=SparseIndex(Offset(10), 100))
    segment.create_file(place)
    for i in range(count):
        data = batch(10 + 2 * i, time_ms=i)
        position = segment.note(read_header(data), Offset(10 + 2 * i))
        segment.file(place).pwrite([data], position)
        segment.note_written([data], position)
    segment.rolled_ms = 99
    return segment


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("00000000000000000042.log", 42),
        ("0000000000000000042.log", None),
        ("00000000000000000042.index", None),
        ("-0000000000000000042.log", None),
        ("0000000000000000004².log", None),
        ("x.log", None),
    ],
)
def test_names_state_the_base_offset(name: str, base: int | None) -> None:
    assert segment_base(name) == base
    if base is not None:
        assert segment_name(Offset(base)) == name


def test_noting_batches_moves_size_ends_and_times() -> None:
    segment = written(make_place())
    assert segment.size_bytes == 4 * len(batch(10))
    assert (segment.next_offset, segment.max_timestamp, segment.last_time_ms) == (18, 3, 99)
    assert segment.is_sealed


def test_the_index_is_saved_loaded_and_built_again_when_it_does_not_fit() -> None:
    place = make_place()
    segment = written(place)
    save_index(place, segment)
    entries = list(segment.index(place, epoch_at).entries())
    segment.replace_index(None)
    assert load_index(place, segment) is not None
    segment.next_offset = Offset(20)
    assert load_index(place, segment) is None
    segment.next_offset = Offset(18)
    place.directory.unlink(segment_name(Offset(10), ".timeindex"))
    assert load_index(place, segment) is None
    assert list(segment.index(place, epoch_at).entries()) == entries


def test_a_seal_holds_the_crc_that_reading_gives_too() -> None:
    place = make_place()
    segment = written(place)
    save_seal(place, segment)
    seal = load_seal(place, Offset(10))
    assert seal is not None
    segment.written_crc = None
    assert seal.segment_crc == whole_crc(place, segment)
    segment.file(place).pwrite([b"!"], 70)
    segment.written_crc = None
    assert seal.segment_crc != whole_crc(place, segment)
    assert load_seal(place, Offset(11)) is None


def test_the_crc_of_what_was_written_is_given_up_at_a_gap() -> None:
    segment = written(make_place())
    segment.note_written([b"x"], segment.size_bytes + 1)
    assert segment.written_crc is None


def test_a_shortened_segment_is_active_and_leaves_the_old_one_alone() -> None:
    place = make_place()
    segment = written(place)
    size = len(batch(10))
    short = segment.shortened(size, Offset(12), 0, segment.index(place, epoch_at).prefix(size))
    assert not short.is_sealed
    assert (short.size_bytes, short.next_offset, short.max_timestamp) == (size, 12, 0)
    assert (segment.size_bytes, segment.next_offset) == (4 * size, 18)


def test_what_a_crash_left_under_the_name_of_a_new_segment_is_gone() -> None:
    place = make_place()
    write_whole(place.directory, segment_name(Offset(10)), b"leftover")
    segment = Segment(Offset(10), created_ms=1, index=SparseIndex(Offset(10), 100))
    assert segment.create_file(place).size_bytes() == 0


def test_whole_files() -> None:
    place = make_place()
    write_whole(place.directory, "cache", b"12345")
    write_whole(place.directory, "cache", b"67")
    assert read_whole(place.directory, "cache") == b"67"
    assert read_whole(place.directory, "none") is None
