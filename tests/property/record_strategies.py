"""Hypothesis strategies for records, weighted towards the edges of the format."""

from hypothesis import strategies as st

from ringlog.storage.record_codec import MAX_TIMESTAMP, Record
from ringlog.storage.record_parts import Header
from ringlog.storage.types import Offset
from ringlog.storage.varint import encode_varint

EDGE_SIZES = [0, 1, 57, 58, 63, 64, 127, 128, 2047, 2048, 8191, 8192, 70_000]

edge_blobs = st.sampled_from(EDGE_SIZES).map(lambda size: b"\x01\x00\xff"[:size] * (size // 3 + 1))
blobs = st.none() | st.binary(max_size=80) | edge_blobs
times = (
    st.integers(-1, 1000)
    | st.integers(1_700_000_000_000, 1_700_000_100_000)
    | st.integers(-1, MAX_TIMESTAMP)
)
header_names = st.text(max_size=8)
headers: st.SearchStrategy[Header] = st.tuples(header_names, st.none() | st.binary(max_size=20))


@st.composite
def record_lists(
    draw: st.DrawFn, *, gaps: bool = False, fields: st.SearchStrategy[bytes | None] = blobs
) -> list[Record]:
    """One to a dozen records at ascending offsets, the first one anywhere."""
    offset = draw(st.integers(0, 2**40))
    same_time = draw(st.none() | times)
    found = []
    for _ in range(draw(st.integers(1, 12))):
        found.append(
            Record(
                Offset(offset),
                draw(times) if same_time is None else same_time,
                draw(fields),
                draw(fields),
                tuple(draw(st.lists(headers, max_size=3))),
            )
        )
        offset += draw(st.integers(1, 10_000)) if gaps else 1
    return found


wrong_by = st.sampled_from([0] * 40 + [-1, 1, 2, -3])


@st.composite
def near_miss_fields(draw: st.DrawFn) -> bytes:
    """A length and bytes that mostly have it; none or empty now and then."""
    content = draw(st.sampled_from([None, b"", b"h", b"\xc3\xa4", b"\xc3", b"x" * 70]))
    length = -1 if content is None else len(content)
    return encode_varint(length + draw(wrong_by)) + (content or b"")


@st.composite
def near_miss_records(draw: st.DrawFn, offset_delta: int = 0) -> bytes:
    """The bytes of one record, each number in it now and then a little wrong."""
    count = draw(st.sampled_from([0, 0, 0, 1, 2]))
    parts = [
        bytes([abs(draw(wrong_by)) // 3]),
        encode_varint(draw(st.sampled_from([0, 0, 70, -70, 2**62]))),
        encode_varint(offset_delta + draw(wrong_by)),
        draw(near_miss_fields()),
        draw(near_miss_fields()),
        encode_varint(count + draw(wrong_by)),
        *(draw(near_miss_fields()) for _ in range(2 * count)),
    ]
    body = b"".join(parts)
    return encode_varint(len(body) + draw(wrong_by)) + body


@st.composite
def near_miss_sections(draw: st.DrawFn) -> tuple[int, bytes]:
    """A record count, and about as many records, nearly right, at offset deltas from 0."""
    count = draw(st.integers(1, 4))
    section = b"".join(draw(near_miss_records(number)) for number in range(count))
    return max(1, count + draw(st.sampled_from([0, 0, 0, 0, -1, 1]))), section
