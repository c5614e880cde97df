"""The record codec against a dumb model, on any records and on any damage."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.storage.errors import CodecMissing, CorruptBatch
from ringlog.storage.record_batch import (
    HEADER_SIZE,
    MIN_RECORD_BYTES,
    BatchHeader,
    check_batch,
    check_for_append,
    iter_batches,
    pack_header,
    peek_size,
    read_header,
)
from ringlog.storage.record_codec import (
    Record,
    decode_records,
    encode_batch,
    encode_records,
    record_size_bound,
)
from ringlog.storage.types import Offset
from tests.property.child_process import run_in_child
from tests.property.plain_decoder import decode_plainly
from tests.property.record_strategies import near_miss_sections, record_lists

REFUSALS = (CorruptBatch, CodecMissing)
LIMIT_BYTES = 1 << 24
compressions = st.sampled_from([None, "lz4"])


def outcome(section: bytes, header: BatchHeader) -> list[Record] | None:
    """What the real decoder makes of an uncompressed section; None: refused."""
    header = msgspec.structs.replace(header, attributes=0, size_bytes=HEADER_SIZE + len(section))
    try:
        return decode_records(bytes(HEADER_SIZE) + section, header=header)
    except CorruptBatch:
        return None


def model_outcome(section: bytes, header: BatchHeader) -> list[Record] | None:
    try:
        return decode_plainly(section, header)
    except CorruptBatch:
        return None


@given(records=record_lists(gaps=True), compression=compressions)
def test_records_come_back_as_they_were(records: list[Record], compression: str | None) -> None:
    batch = encode_records(records, compression=compression)
    header = check_batch(batch, max_bytes=LIMIT_BYTES)
    assert decode_records(batch) == records
    assert header.size_bytes == len(batch)
    assert header.next_offset == records[-1].offset + 1
    assert header.max_timestamp == max(record.timestamp for record in records)


@given(records=record_lists(), compression=compressions)
def test_columns_come_back_and_may_be_appended(
    records: list[Record], compression: str | None
) -> None:
    batch = encode_batch(
        [record.value for record in records],
        keys=[record.key for record in records],
        headers=[record.headers for record in records],
        timestamps=[record.timestamp for record in records],
        compression=compression,
    )
    newest = max(record.timestamp for record in records)
    check_for_append(batch, max_bytes=LIMIT_BYTES, now_ms=newest)
    for number, (decoded, record) in enumerate(zip(decode_records(batch), records, strict=True)):
        assert msgspec.structs.replace(decoded, offset=record.offset) == record
        assert decoded.offset == number


@given(records=record_lists(gaps=True))
def test_the_size_bound_holds(records: list[Record]) -> None:
    first = Record(Offset(0), records[0].timestamp, None, None)
    for number, record in enumerate(records, 1):
        second = msgspec.structs.replace(record, offset=Offset(number**5))
        pair_bytes = len(encode_records([first, second])) - HEADER_SIZE
        bound = record_size_bound(record.value, record.key, record.headers)
        assert pair_bytes - MIN_RECORD_BYTES <= bound


@given(records=record_lists(gaps=True))
def test_decoder_and_model_agree_on_good_sections(records: list[Record]) -> None:
    batch = encode_records(records)
    header = read_header(batch)
    assert model_outcome(batch[HEADER_SIZE:], header) == records
    assert outcome(batch[HEADER_SIZE:], header) == records


@given(
    records=record_lists(gaps=True, fields=st.none() | st.binary(max_size=3)),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=2),
)
def test_decoder_and_model_agree_on_damaged_sections(
    records: list[Record], edits: list[tuple[int, int]]
) -> None:
    batch = encode_records(records)
    section = bytearray(batch[HEADER_SIZE:])
    for place, byte in edits:
        section[place % len(section)] = byte
    damaged = bytes(section)
    header = read_header(batch)
    assert outcome(damaged, header) == model_outcome(damaged, header)


@given(counted=near_miss_sections(), more=st.integers(0, 2))
def test_decoder_and_model_agree_on_sections_that_are_nearly_right(
    counted: tuple[int, bytes], more: int
) -> None:
    count, section = counted
    header = msgspec.structs.replace(
        read_header(encode_batch([b""])), record_count=count, last_offset_delta=count - 1 + more
    )
    assert outcome(section, header) == model_outcome(section, header)


@given(data=st.binary(max_size=300), position=st.integers(0, 20))
def test_arbitrary_bytes_are_refused_and_never_crash(data: bytes, position: int) -> None:
    for function in (read_header, decode_records):
        with pytest.raises(CorruptBatch):
            function(data, position)
    with pytest.raises(CorruptBatch):
        check_for_append(data, max_bytes=LIMIT_BYTES, now_ms=0)
    peek_size(data, position)


@given(head=st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE), tail=st.binary(max_size=99))
def test_any_header_with_a_good_magic_is_refused_or_listed(head: bytes, tail: bytes) -> None:
    data = head[:8] + (49 + len(tail)).to_bytes(4, "big") + head[12:16] + b"\x02" + head[17:] + tail
    try:
        found = list(iter_batches(data))
    except CorruptBatch:
        assert data[0] >= 0x80
    else:
        assert data[0] < 0x80
        assert [position for position, _ in found] == [0]


BATCHES = {
    "plain": encode_batch([b"value", b"", None], timestamps=5),
    "full": encode_batch(
        [b"value" * 20, None],
        keys=[b"key", b""],
        headers=[[("name", b"x"), ("", None)], []],
        timestamps=[5, 900],
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
    ),
    "lz4": encode_batch([b"a value that repeats, "] * 30, compression="lz4"),
}


# Two-byte varints in length, time and value size; a null, an empty and a header of each kind.
SMALL = encode_batch(
    [b"v" * 70, None, b""],
    keys=[None, b"k", b""],
    headers=[[], [("é", None), ("", b"x")], []],
    timestamps=[5, 900, 0],
)


def test_decoder_and_model_agree_on_each_changed_added_and_removed_byte() -> None:
    header = read_header(SMALL)
    section = SMALL[HEADER_SIZE:]
    changes = [(place, 1, bytes([byte])) for place in range(len(section)) for byte in range(256)]
    changes += [(place, 0, b"\x01") for place in range(len(section) + 1)]
    changes += [(place, 1, b"") for place in range(len(section))]
    accepted = 0
    for place, removed, added in changes:
        damaged = section[:place] + added + section[place + removed :]
        found = outcome(damaged, header)
        assert found == model_outcome(damaged, header), f"byte {place} became {added!r}"
        accepted += found is not None
    assert accepted > 256 * 70  # each change of the first value is another good record


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("last_offset_delta", [0, 1, 2, 3])
def test_decoder_and_model_agree_on_any_count(count: int, last_offset_delta: int) -> None:
    header = msgspec.structs.replace(
        read_header(SMALL), record_count=count, last_offset_delta=last_offset_delta
    )
    section = SMALL[HEADER_SIZE:]
    assert outcome(section, header) == model_outcome(section, header)
    assert (outcome(section, header) is not None) == (count == 3 and last_offset_delta >= 2)


@pytest.mark.parametrize("name", BATCHES)
def test_each_truncation_is_refused(name: str) -> None:
    batch = BATCHES[name]
    for length in range(len(batch)):
        with pytest.raises(CorruptBatch):
            decode_records(batch[:length])


@pytest.mark.parametrize("name", BATCHES)
def test_each_value_of_each_byte_is_refused_or_outside_the_crc(name: str) -> None:
    batch = BATCHES[name]
    records = decode_records(batch)
    for place in range(len(batch)):
        for byte in range(256):
            damaged = bytearray(batch)
            damaged[place] = byte
            if damaged == batch:
                continue
            try:
                decoded = decode_records(damaged)
            except REFUSALS:
                continue
            # Base offset and leader epoch: the log compares them with what it expects.
            assert place < 8 or 12 <= place < 16
            assert [r.value for r in decoded] == [r.value for r in records]


@pytest.mark.parametrize("name", BATCHES)
def test_each_flipped_byte_under_a_matching_crc_never_crashes(name: str) -> None:
    batch = BATCHES[name]
    for place in range(HEADER_SIZE, len(batch)):
        for byte in (0, 1, 2, 127, 128, 255, batch[place] ^ 1, batch[place] ^ 0x80):
            section = bytearray(batch[HEADER_SIZE:])
            section[place - HEADER_SIZE] = byte
            header = read_header(batch)
            try:
                decode_records(pack_header(header, section) + section)
            except REFUSALS:
                continue


def test_fuzzing_under_an_address_space_limit() -> None:
    report = run_in_child("tests.property.fuzz_record_codec", count=1500, seed=1, room_mib=192)
    assert report.accepted > 100
    assert report.refused > 500


@pytest.mark.long
def test_long_fuzzing_under_an_address_space_limit() -> None:
    for seed in range(8):
        run_in_child(
            "tests.property.fuzz_record_codec",
            count=40_000,
            seed=seed,
            room_mib=192,
            timeout_seconds=600,
        )


def test_the_most_headers_of_a_batch_stay_under_an_address_space_limit() -> None:
    report = run_in_child("tests.property.dense_record_batches", count=3, seed=0, room_mib=256)
    assert (report.accepted, report.refused) == (1, 2)


@pytest.mark.long
def test_the_most_records_of_a_batch_stay_under_an_address_space_limit() -> None:
    report = run_in_child("tests.property.dense_record_batches", count=6, seed=0, room_mib=320)
    assert (report.accepted, report.refused) == (4, 2)
