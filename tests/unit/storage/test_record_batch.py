"""The header of a batch: a golden vector, each check, and what the broker writes into it."""

import struct

import msgspec
import pytest

from ringlog.storage.errors import BadTimestamp, CorruptBatch, TooLarge
from ringlog.storage.record_batch import (
    HEADER_SIZE,
    MAX_RECORD_COUNT,
    BatchHeader,
    assign,
    check_batch,
    check_for_append,
    end_of_stored,
    iter_batches,
    pack_header,
    peek_size,
    read_header,
)
from ringlog.storage.record_codec import Record, decode_records, encode_batch
from ringlog.storage.types import LeaderEpoch, Offset, ProducerId

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LIMIT_BYTES = 1 << 20

# Written by hand from the description of the format. The CRC is that of kafka-python's own
# pure Python implementation.
#
#   base offset       length    epoch     m   crc       attr  last d.   base timestamp
#   7                 81 - 12   3         2             0     1         1700000000000
GOLDEN = bytes.fromhex(
    "0000000000000007  00000045  00000003  02  613a1ac1  0000  00000001  0000018bcfe56800"
    # max timestamp     producer id       epoch base seq  count
    # +5                42                1     9         2
    "  0000018bcfe56805  000000000000002a  0001  00000009  00000002"
    # len at dt do  key "k"  value "hi"  1 header: "h", null
    # 12  0  0  0   1  k     2  h i      1  1  h   -1
    "  18  00 00 00  02 6b    04 6869     02 02 68  01"
    # len at dt do  null null  0 headers
    # 6   0  5  1   -1   -1    0
    "  0c  00 0a 02  01   01    00"
)
GOLDEN_HEADER = BatchHeader(
    base_offset=Offset(7),
    size_bytes=81,
    leader_epoch=LeaderEpoch(3),
    crc=0x613A1AC1,
    attributes=0,
    last_offset_delta=1,
    base_timestamp=NOW_MS,
    max_timestamp=NOW_MS + 5,
    producer_id=ProducerId(42),
    producer_epoch=1,
    base_sequence=9,
    record_count=2,
)
GOLDEN_RECORDS = [
    Record(Offset(7), NOW_MS, b"k", b"hi", (("h", None),)),
    Record(Offset(8), NOW_MS + 5, None, None),
]


def changed(**fields: int) -> bytes:
    """The golden batch with other header fields and a CRC that fits them."""
    header = msgspec.structs.replace(GOLDEN_HEADER, **fields)
    return pack_header(header, GOLDEN[HEADER_SIZE:]) + GOLDEN[HEADER_SIZE:]


def test_the_golden_batch_is_read() -> None:
    assert read_header(GOLDEN) == GOLDEN_HEADER
    assert check_batch(GOLDEN, max_bytes=81) == GOLDEN_HEADER
    assert decode_records(GOLDEN) == GOLDEN_RECORDS


def test_the_golden_batch_is_written() -> None:
    batch = encode_batch(
        [b"hi", None],
        keys=[b"k", None],
        headers=[[("h", None)], []],
        timestamps=[NOW_MS, NOW_MS + 5],
        base_offset=7,
        leader_epoch=3,
        producer_id=42,
        producer_epoch=1,
        base_sequence=9,
    )
    assert batch == GOLDEN


def test_derived_fields_of_the_header() -> None:
    header = read_header(GOLDEN)
    assert header.next_offset == 9
    assert header.last_sequence == 10
    assert header.codec == 0
    assert not header.is_control
    assert not header.is_transactional
    assert not header.has_append_time
    marked = msgspec.structs.replace(header, attributes=0x3B)
    assert marked.codec == 3
    assert marked.is_control
    assert marked.is_transactional
    assert marked.has_append_time


def test_sequences_wrap_to_zero() -> None:
    header = msgspec.structs.replace(GOLDEN_HEADER, base_sequence=2**31 - 1)
    assert header.last_sequence == 0
    assert msgspec.structs.replace(GOLDEN_HEADER, base_sequence=-1).last_sequence == -1


def test_a_batch_is_found_behind_other_bytes() -> None:
    buffer = memoryview(b"???" + GOLDEN + b"!!")
    assert read_header(buffer, 3) == GOLDEN_HEADER
    assert check_batch(buffer, 3, max_bytes=81) == GOLDEN_HEADER
    assert decode_records(buffer, 3) == GOLDEN_RECORDS
    assert peek_size(buffer, 3) == 81


def test_peek_needs_twelve_bytes() -> None:
    assert peek_size(GOLDEN[:12], 0) == 81
    assert peek_size(GOLDEN[:11], 0) is None
    assert peek_size(GOLDEN, 81 - 11) is None


@pytest.mark.parametrize("length", range(HEADER_SIZE))
def test_a_header_cut_short_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"{length} bytes are left"):
        read_header(GOLDEN[:length])


def test_a_header_is_read_without_the_rest_of_its_batch() -> None:
    assert read_header(GOLDEN[:HEADER_SIZE]) == GOLDEN_HEADER


@pytest.mark.parametrize(
    ("position", "written", "text"),
    [
        (16, b"\x01", "magic byte is 1"),
        (16, b"\x82", "magic byte is -126"),
        (8, struct.pack(">i", 48), "cannot have 60 bytes"),
        (8, struct.pack(">i", -1), "cannot have 11 bytes"),
        (8, struct.pack(">i", 2**31 - 1), "cannot have 2147483659 bytes"),
        (0, b"\xff" * 8, "base offset -1 is negative"),
    ],
)
def test_an_impossible_header_is_refused(position: int, written: bytes, text: str) -> None:
    batch = bytearray(b"..." + GOLDEN)
    batch[3 + position : 3 + position + len(written)] = written
    with pytest.raises(CorruptBatch, match=text) as caught:
        read_header(batch, 3)
    assert caught.value.position == 3


def test_a_batch_cut_short_is_refused() -> None:
    for length in range(len(GOLDEN)):
        for before in (b"", b"..."):
            with pytest.raises(CorruptBatch, match=f"{length} (bytes )?are left") as caught:
                check_batch(before + GOLDEN[:length], len(before), max_bytes=LIMIT_BYTES)
            assert caught.value.position == len(before)


def test_each_flipped_bit_behind_the_epoch_is_found() -> None:
    for position in range(16, len(GOLDEN)):
        for bit in range(8):
            batch = bytearray(GOLDEN)
            batch[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                check_batch(batch, max_bytes=LIMIT_BYTES)


def test_the_size_limit_is_inclusive() -> None:
    assert check_batch(GOLDEN, max_bytes=81).size_bytes == 81
    with pytest.raises(TooLarge, match="81 bytes, 80 are allowed") as caught:
        check_batch(GOLDEN, max_bytes=80)
    assert "max.message.bytes" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"attributes": 0x40}, "unknown attributes"),
        ({"attributes": -0x8000}, "unknown attributes"),
        ({"attributes": 5}, "unknown attributes"),
        ({"attributes": 7}, "unknown attributes"),
        ({"record_count": 0}, "0 records"),
        ({"record_count": -1}, "-1 records"),
        ({"record_count": 3}, "last offset delta of 1"),
        ({"last_offset_delta": 0}, "last offset delta of 0"),
        ({"last_offset_delta": -1}, "last offset delta of -1"),
        ({"base_offset": 2**63 - 2}, "largest offset"),
        ({"record_count": 9, "last_offset_delta": 8}, "9 records do not fit 20 bytes"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, int], text: str) -> None:
    with pytest.raises(CorruptBatch, match=text):
        check_batch(changed(**fields), max_bytes=LIMIT_BYTES)


def test_the_last_possible_offset_is_taken() -> None:
    batch = changed(base_offset=2**63 - 3)
    assert check_batch(batch, max_bytes=LIMIT_BYTES).next_offset == 2**63 - 1


def test_a_record_count_over_the_limit_is_too_large() -> None:
    batch = changed(record_count=MAX_RECORD_COUNT + 1, last_offset_delta=MAX_RECORD_COUNT)
    with pytest.raises(TooLarge, match="1048577 records"):
        check_batch(batch, max_bytes=LIMIT_BYTES)


def test_gaps_codecs_and_flags_are_no_damage() -> None:
    for fields in ({"last_offset_delta": 5}, *({"attributes": n} for n in (1, 2, 3, 4, 0x3C))):
        check_batch(changed(**fields), max_bytes=LIMIT_BYTES)


def append(batch: bytes, now_ms: int = NOW_MS) -> BatchHeader:
    return check_for_append(batch, max_bytes=LIMIT_BYTES, now_ms=now_ms)


def test_a_fresh_batch_may_be_appended() -> None:
    assert append(GOLDEN) == GOLDEN_HEADER
    assert append(encode_batch([b"x"])).max_timestamp == -1


def test_bytes_behind_the_batch_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="1 bytes follow") as caught:
        append(GOLDEN + b"\0")
    assert caught.value.position == 81
    with pytest.raises(CorruptBatch, match="81 bytes follow"):
        append(GOLDEN + GOLDEN)


@pytest.mark.parametrize("flag", [0x08, 0x10, 0x20])
def test_flags_that_only_brokers_set_are_refused(flag: int) -> None:
    with pytest.raises(CorruptBatch, match="not taken from producers"):
        append(changed(attributes=flag))


def test_a_new_batch_with_gaps_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="has no gaps"):
        append(changed(last_offset_delta=2))


@pytest.mark.parametrize(
    "fields",
    [{"producer_id": -2}, {"producer_epoch": -1}, {"base_sequence": -1}, {"base_sequence": -5}],
)
def test_incomplete_producer_fields_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptBatch, match="producer id"):
        append(changed(**fields))


@pytest.mark.parametrize(
    ("base", "newest"), [(-2, NOW_MS), (NOW_MS, NOW_MS - 1), (-2, -2), (0, -1)]
)
def test_impossible_timestamps_are_refused(base: int, newest: int) -> None:
    with pytest.raises(BadTimestamp, match="timestamps from"):
        append(changed(base_timestamp=base, max_timestamp=newest))


def test_timestamps_up_to_an_hour_ahead_are_taken() -> None:
    batch = changed(max_timestamp=NOW_MS + HOUR_MS)
    append(batch)
    with pytest.raises(BadTimestamp, match="1 ms further ahead") as caught:
        append(batch, now_ms=NOW_MS - 1)
    assert "clock" in caught.value.hint


def test_the_broker_assigns_offset_and_epoch_without_a_new_crc() -> None:
    head = assign(Offset(1234), LeaderEpoch(9), len(GOLDEN))
    assert len(head) == 16
    header = check_batch(head + GOLDEN[16:], max_bytes=LIMIT_BYTES)
    assert header == msgspec.structs.replace(
        GOLDEN_HEADER, base_offset=Offset(1234), leader_epoch=LeaderEpoch(9)
    )


def test_whole_batches_are_listed_and_a_cut_one_ends_the_list() -> None:
    second = encode_batch([b"x" * 50], base_offset=9)
    buffer = GOLDEN + second
    found = [(position, header.base_offset) for position, header in iter_batches(buffer)]
    assert found == [(0, 7), (81, 9)]
    for cut in range(1, len(second) + 1):
        assert [position for position, _ in iter_batches(buffer[:-cut])] == [0]
    assert list(iter_batches(b"")) == []


def test_an_invalid_header_in_a_list_of_batches_says_where_it_is() -> None:
    with pytest.raises(CorruptBatch) as caught:
        list(iter_batches(GOLDEN + b"\0" * HEADER_SIZE))
    assert caught.value.position == 81


def test_a_batch_over_two_gibibytes_cannot_be_packed() -> None:
    with pytest.raises(TooLarge, match="format allows"):
        pack_header(msgspec.structs.replace(GOLDEN_HEADER, size_bytes=2**31), b"")


def test_the_quick_check_of_a_stored_batch_takes_it_only_as_it_was_stored() -> None:
    place = (Offset(7), LeaderEpoch(3))
    padded = b"??" + GOLDEN + b"behind"
    assert end_of_stored(memoryview(padded), 2, *place) == (81, 9)
    assert end_of_stored(memoryview(GOLDEN), 0, Offset(8), LeaderEpoch(3)) is None
    assert end_of_stored(memoryview(GOLDEN), 0, Offset(7), LeaderEpoch(4)) is None
    for i in range(len(GOLDEN)):
        assert end_of_stored(memoryview(GOLDEN[:i]), 0, *place) is None
        for bit in range(8):
            flipped = GOLDEN[:i] + bytes([GOLDEN[i] ^ 1 << bit]) + GOLDEN[i + 1 :]
            assert end_of_stored(memoryview(flipped), 0, *place) is None
