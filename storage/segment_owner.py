"""Whose a segment is that has no good cache of this partition.

Owns the comparison of a segment with the caches of another log that lie beside it: segments
that were exchanged between partitions, with their seals and indexes. Must not know recovery.

Invariants:
    SO1 A cache of another log that came here alone proves nothing: only one whose CRC fits the
        bytes of the segment says that they are the other log's.
"""

from ringlog.storage.index import told_by_index
from ringlog.storage.seal import told_by_seal
from ringlog.storage.segment import (
    INDEX_SUFFIX,
    SEAL_SUFFIX,
    Place,
    Segment,
    other_bytes,
    read_whole,
    segment_name,
)
from ringlog.storage.types import Offset
from ringlog.storage.whole_file import crc_of


def end_in_other_log(place: Place, segment: Segment, file_size: int) -> Offset | None:
    """First offset behind the bytes that another log's cache proves its own, or None.

    Reads the file only where such a cache lies beside it. Raises ReadFailed.
    """
    seal = read_whole(place.directory, segment_name(segment.base_offset, SEAL_SUFFIX))
    index = read_whole(place.directory, segment_name(segment.base_offset, INDEX_SUFFIX))
    for told in (seal and told_by_seal(seal), index and told_by_index(index)):
        if not told:
            continue
        owner, said = told
        if owner == place.seed or not 0 < said.size_bytes <= file_size:
            continue
        if crc_of(segment.file(place), said.size_bytes, owner) == said.segment_crc:
            return said.next_offset
    return None


def refuse_other_log(place: Place, segment: Segment, file_size: int) -> None:
    """Raise DamagedLog when the segment is another log's. Raises ReadFailed."""
    end = end_in_other_log(place, segment, file_size)
    if end is not None:
        raise other_bytes(place, segment.base_offset, end)
