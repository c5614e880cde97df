"""Records to bytes and back: each field's edges, each refusal, and the bounds."""

import gzip
from collections.abc import Sequence

import lz4.frame
import msgspec
import pytest

from ringlog.storage import record_codec
from ringlog.storage.errors import CodecMissing, CorruptBatch, TooLarge
from ringlog.storage.record_batch import (
    HEADER_SIZE,
    MAX_RECORD_COUNT,
    BatchHeader,
    check_batch,
    pack_header,
    read_header,
)
from ringlog.storage.record_codec import (
    MAX_TIMESTAMP,
    Record,
    decode_records,
    encode_batch,
    encode_body,
    encode_records,
    record_size_bound,
    seal_batch,
)
from ringlog.storage.record_parts import Header
from ringlog.storage.types import Offset

NOW_MS = 1_700_000_000_000


def batch_of(section: bytes, count: int = 1, **fields: int) -> bytes:
    """A batch with a good CRC around any records section."""
    header = msgspec.structs.replace(
        read_header(encode_batch([b""])),
        size_bytes=HEADER_SIZE + len(section),
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=1000,
        max_timestamp=2000,
    )
    return pack_header(msgspec.structs.replace(header, **fields), section) + section


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def test_nulls_empties_and_headers_come_back() -> None:
    keys = [None, b"", b"k", None]
    values = [None, b"", b"v", b"\0" * 3]
    headers: list[Sequence[Header]] = [[], [("", b"")], [("ä", None), ("ä", b"x")], []]
    records = decode_records(encode_batch(values, keys=keys, headers=headers, timestamps=NOW_MS))
    assert [record.key for record in records] == keys
    assert [record.value for record in records] == values
    assert [list(record.headers) for record in records] == headers
    assert {record.timestamp for record in records} == {NOW_MS}
    assert [record.offset for record in records] == [0, 1, 2, 3]


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 70_000, 1 << 20, 10 << 20])
def test_values_and_keys_of_any_size_come_back(size: int, compression: str | None) -> None:
    part = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    plain = decode_records(encode_batch([part, b""], compression=compression))
    assert [record.value for record in plain] == [part, b""]
    keyed = decode_records(encode_batch([None], keys=[part], compression=compression))
    assert keyed[0].key == part


@pytest.mark.parametrize(
    "timestamps",
    [[-1], [0], [NOW_MS, NOW_MS - 70, NOW_MS + 9000, -1, 0, MAX_TIMESTAMP], [5, 5, 5], [-1, 7]],
)
def test_timestamps_come_back_in_any_order(timestamps: list[int]) -> None:
    batch = encode_batch([b"v"] * len(timestamps), timestamps=timestamps)
    assert [record.timestamp for record in decode_records(batch)] == timestamps
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (timestamps[0], max(timestamps))


def test_no_timestamp_is_the_default() -> None:
    assert decode_records(encode_batch([b"v"]))[0].timestamp == -1


def test_equal_timestamps_are_encoded_as_one_common_timestamp() -> None:
    assert encode_batch([b"a", b"b"], timestamps=[7, 7]) == encode_batch([b"a", b"b"], timestamps=7)


@pytest.mark.parametrize("moment", [-2, MAX_TIMESTAMP + 1, NOW_MS * 1000])
def test_timestamps_that_are_not_milliseconds_are_refused(moment: int) -> None:
    for timestamps in (moment, [0, moment]):
        with pytest.raises(ValueError, match="not milliseconds"):
            encode_batch([b"a"] * 2, timestamps=timestamps)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="3 timestamps for 2 records"):
        encode_batch([b"a"] * 2, timestamps=[1, 1, 1])
    with pytest.raises(ValueError, match="zip"):
        encode_batch([b"a"] * 2, keys=[b"k"])
    with pytest.raises(ValueError, match="zip"):
        encode_batch([b"a"] * 2, headers=[[], [], []])


def test_no_records_and_unknown_compressions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])
    with pytest.raises(ValueError, match="'zstd' is not one of"):
        encode_batch([b"v"], compression="zstd")
    with pytest.raises(ValueError, match="surrogates"):
        encode_batch([b"v"], headers=[[("\ud800", None)]])


def test_too_many_records_or_headers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLarge, match="1048577 records"):
        encode_batch([b""] * (MAX_RECORD_COUNT + 1))
    monkeypatch.setattr(record_codec, "MAX_HEADER_COUNT", 3)
    two: list[Header] = [("h", None)] * 2
    with pytest.raises(TooLarge, match="headers"):
        encode_batch([b"a"] * 2, headers=[two, two])
    fits = encode_batch([b"a"] * 2, headers=[two, two[:1]])
    assert len(decode_records(fits)) == 2
    monkeypatch.setattr(record_codec, "MAX_HEADER_COUNT", 2)
    with pytest.raises(TooLarge, match="headers"):
        decode_records(fits)


def test_one_body_is_sealed_for_several_producers() -> None:
    body = encode_body([b"v", b"w"], timestamps=NOW_MS)
    for producer_id, epoch, sequence in ((-1, -1, -1), (2**62, 3, 2**31 - 1)):
        batch = seal_batch(
            body, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        header = check_batch(batch, max_bytes=1000)
        assert len(batch) == body.batch_size_bytes == header.size_bytes
        assert header.producer_id == producer_id
        assert (header.producer_epoch, header.base_sequence) == (epoch, sequence)
        assert [record.value for record in decode_records(batch)] == [b"v", b"w"]


def test_records_keep_their_offsets_and_gaps() -> None:
    records = [
        Record(Offset(100), 5, None, b"a"),
        Record(Offset(103), 4, b"k", None, (("h", b"x"),)),
        Record(Offset(9000), 6, None, b"c"),
    ]
    batch = encode_records(records, compression="lz4")
    assert decode_records(batch) == records
    header = check_batch(batch, max_bytes=1000)
    assert (header.base_offset, header.next_offset, header.record_count) == (100, 9001, 3)


def test_records_whose_offsets_do_not_ascend_are_refused() -> None:
    record = Record(Offset(1), 5, None, b"a")
    with pytest.raises(ValueError, match="do not ascend"):
        encode_records([record, record])


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_decoding_from_an_offset_leaves_out_what_is_below(compression: str | None) -> None:
    values = [b"value %d" % number for number in range(100)]
    batch = encode_batch(values, base_offset=50, compression=compression)
    for first in (0, 50, 51, 120, 149):
        records = decode_records(batch, from_offset=first)
        assert [record.offset for record in records] == list(range(max(first, 50), 150))
        assert records[-1].value == values[-1]
    assert decode_records(batch, from_offset=150) == []


def test_decoding_checks_the_crc_unless_a_header_is_given() -> None:
    batch = bytearray(encode_batch([b"value"]))
    header = read_header(batch)
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        decode_records(batch)
    assert decode_records(batch, header=header)[0].value == b"valud"


def test_lz4_that_does_not_pay_is_left_out() -> None:
    assert encode_batch([b"ab"], compression="lz4") == encode_batch([b"ab"])
    small = encode_batch([b"ab" * 200], compression="lz4")
    assert read_header(small).codec == 3
    assert len(small) < 120


def compressed(codec: int, section: bytes, count: int = 1) -> bytes:
    return batch_of(section, count, attributes=codec)


def test_gzip_is_opened_and_other_codecs_are_named() -> None:
    section = encode_body([b"v"]).data
    assert decode_records(compressed(1, gzip.compress(section)))[0].value == b"v"
    for codec, name in ((2, "snappy"), (4, "zstd")):
        with pytest.raises(CodecMissing, match=name):
            decode_records(compressed(codec, section))


def test_bounds_of_decompression_are_the_callers() -> None:
    section = encode_body([bytes(10_000_000)]).data
    batch = compressed(3, lz4.frame.compress(section))
    with pytest.raises(TooLarge):
        decode_records(batch)
    assert len(decode_records(batch, max_ratio=1000)) == 1
    with pytest.raises(TooLarge, match="9000000"):
        decode_records(batch, max_ratio=1000, max_decompressed_bytes=9_000_000)


def test_a_count_that_the_opened_section_cannot_hold_is_refused_before_reading() -> None:
    with pytest.raises(CorruptBatch, match="1000 records do not fit"):
        decode_records(compressed(3, lz4.frame.compress(bytes(6999)), 1000))


def test_time_of_append_is_the_time_of_each_record() -> None:
    section = encode_body([b"a", b"b"], timestamps=[7, 9]).data
    records = decode_records(batch_of(section, 2, attributes=8))
    assert [record.timestamp for record in records] == [2000, 2000]


# A record: 0c length 6, attributes, time delta, offset delta, key, value, header count.
PLAIN = "0c 00 00 00 01 01 00"


def test_the_record_that_the_refusals_start_from_is_good() -> None:
    assert decode_records(batch_of(raw(PLAIN))) == [Record(Offset(0), 1000, None, None)]
    assert len(decode_records(batch_of(raw(PLAIN + "0c 00 00 02 01 01 00"), 2))) == 2


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("0e 00 00 00 01 01 00", "passes the end"),
        ("0d 00 00 00 01 01 00", "passes the end"),
        ("feffffff0f 00 00 00 01 01 00", "passes the end"),
        ("0a 00 00 00 01 01 00", "does not end where"),
        ("0c 00 00 00 01 01 00 00", "1 bytes follow"),
        (PLAIN + PLAIN, "7 bytes follow"),
        ("0c 01 00 00 01 01 00", "record attributes 0x01"),
        ("0c 00 00 01 01 01 00", "offset delta -1 follows -1"),
        ("0c 00 00 02 01 01 00", "passes the last one"),
        ("0c 00 00 00 03 01 00", "key or value has a bad length"),
        ("0c 00 00 00 01 03 00", "value has a bad length"),
        ("0c 00 00 00 06 01 00", "key or value has a bad length"),
        ("0c 00 00 00 01 04 00", "value has a bad length"),
        ("14 00 00 00 01 feffffff0f 00", "value has a bad length"),
        ("0c 00 00 00 01 01 01", "bad number of headers"),
        ("0c 00 00 00 01 01 02", "bad number of headers"),
        ("10 00 00 00 01 01 02 01 01", "header has no name"),
        ("10 00 00 00 01 01 02 00 03", "key or value has a bad length"),
        ("12 00 00 00 01 01 02 02 ff 01", "not UTF-8"),
        ("12 00 00 00 01 01 02 02 c0 01", "not UTF-8"),
        ("12 00 00 00 01 01 02 06 68 01", "key or value has a bad length"),
        ("80 80 80 80 80 01 00 00", "longer than 5 bytes"),
        ("ff ff ff ff 1f 01 00 00", "wider than 32 bits"),
        ("22 00 80808080808080808080 00 00 01 01 00 00", "longer than 10 bytes"),
        ("1a 00 00 8080808080 01 01 00 00 00 00", "longer than 5 bytes"),
        ("1e 00 feffffffffffffffff01 00 01 01 00", "timestamp passes 64 bits"),
    ],
)
def test_a_damaged_record_is_refused(section: str, text: str) -> None:
    with pytest.raises(CorruptBatch, match=text) as caught:
        decode_records(b"##" + batch_of(raw(section)), 2)
    assert caught.value.position == 2


@pytest.mark.parametrize("second", ["0c 00 00 00 01 01 00", "0c 00 00 04 01 01 00"])
def test_offset_deltas_must_ascend_within_the_header(second: str) -> None:
    with pytest.raises(CorruptBatch, match="offset"):
        decode_records(batch_of(raw(PLAIN + second), 2))


def test_a_section_that_ends_inside_a_record_is_refused() -> None:
    # Compressed, so that the header's own check of count against size does not see it first.
    section = encode_body([b"a" * 70, b"b" * 70], keys=[b"k", None], timestamps=[1, 9]).data
    for length in range(len(section)):
        with pytest.raises(CorruptBatch):
            decode_records(compressed(3, lz4.frame.compress(section[:length]), 2))


def test_size_bound_holds_at_the_last_place_of_the_largest_batch() -> None:
    for value, key, headers in (
        (None, None, ()),
        (b"", b"", [("", None)]),
        (b"v" * 63, b"k" * 64, [("name", b"x" * 200)] * 3),
        (b"v" * 9000, None, ()),
        (b"v" * 3_000_000, None, ()),
        (b"v" * 50, None, [("ä" * 40, b"")] * 100),
    ):
        body = encode_body(
            [b"", value],
            keys=[None, key],
            headers=[(), headers],
            timestamps=[-1, MAX_TIMESTAMP],
            offset_deltas=[0, MAX_RECORD_COUNT - 1],
        )
        first_bytes = 7
        bound = record_size_bound(value, key, headers)
        assert len(body.data) - first_bytes <= bound


def test_size_bound_is_close_for_plain_records() -> None:
    for size in (0, 10, 100, 5000, 100_000):
        assert record_size_bound(b"x" * size) - len(encode_body([b"x" * size]).data) <= 14


def test_a_header_that_was_not_checked_still_cannot_make_the_decoder_crash() -> None:
    batch = encode_batch([b"v"] * 3)
    header: BatchHeader = msgspec.structs.replace(read_header(batch), size_bytes=10**6)
    assert len(decode_records(batch, header=header)) == 3
    with pytest.raises(CorruptBatch):
        decode_records(batch, header=msgspec.structs.replace(header, size_bytes=70))
