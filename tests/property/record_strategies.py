"""Hypothesis strategies for records, weighted towards the edges of the format."""

from hypothesis import strategies as st

from ringlog.storage.record_codec import MAX_TIMESTAMP, Record
from ringlog.storage.record_parts import Header
from ringlog.storage.types import Offset

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
def record_lists(draw: st.DrawFn, *, gaps: bool = False) -> list[Record]:
    """One to a dozen records at ascending offsets, the first one anywhere."""
    offset = draw(st.integers(0, 2**40))
    same_time = draw(st.none() | times)
    found = []
    for _ in range(draw(st.integers(1, 12))):
        found.append(
            Record(
                Offset(offset),
                draw(times) if same_time is None else same_time,
                draw(blobs),
                draw(blobs),
                tuple(draw(st.lists(headers, max_size=3))),
            )
        )
        offset += draw(st.integers(1, 10_000)) if gaps else 1
    return found
