"""The first record of a log at or after a time.

Owns the search: segments by their largest time, the time index, batch headers, then records.
Must not know retention, or which clock stamped a record.

Record times are the producers', so they need not ascend: the answer is the first record *by
offset* whose time is late enough, as Kafka answers it.

Invariants:
    Q1  At most one batch is held and opened at a time, within the codec's bounds.
    Q2  A header may promise a time that no record has; the search then goes on behind it.
    Q3  A batch that cannot be opened here is answered with its first offset: a reader may get
        records that are too early, never miss one.

Source: KIP-33 (time index); Kafka's ListOffsets.
"""

import msgspec

from ringlog.storage.batch_scan import BrokenChain, EpochAt, scan_batches
from ringlog.storage.errors import CodecMissing, TooLarge
from ringlog.storage.producer_replay import damaged_log
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.record_codec import decode_records
from ringlog.storage.segment import Place, Segment
from ringlog.storage.types import Buffer, Offset


class Searched(msgspec.Struct, frozen=True):
    """What of a log is searched, captured on the reactor; `search` runs anywhere."""

    place: Place
    segments: tuple[Segment, ...]
    begin: Offset
    """No record below it is an answer: the log start."""
    end: Offset
    """No record at or above it is an answer."""
    last_base: Offset
    """Base of the last segment with written batches."""
    last_limit_bytes: int
    """How much of that segment is written."""
    epoch_at: EpochAt

    def search(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """Return offset and time of the first record with that time or a later one, or None.

        Raises:
            DamagedLog: a batch or a segment on the way is damaged.
            ReadFailed: the disk cannot give it back.
        """
        for segment in self.segments:
            if segment.base_offset >= self.end:
                break
            if segment.next_offset > self.begin and segment.max_timestamp >= timestamp_ms:
                found = self._search_segment(segment, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _search_segment(self, segment: Segment, timestamp_ms: int) -> tuple[Offset, int] | None:
        segment.check(self.place, self.epoch_at)
        was_loaded = segment.index_if_loaded() is not None
        index = segment.index(self.place, self.epoch_at)
        if not was_loaded:
            # A search may pass through many segments; readers keep the indexes that they need.
            segment.replace_index(None)
        begin = max(index.at_timestamp(timestamp_ms), index.at_offset(self.begin))
        try:
            return self._search_from(segment, begin, timestamp_ms)
        except BrokenChain as error:
            if begin[1] and segment.is_sealed:
                # The index may be wrong (G3): the batches tell.
                return self._search_whole(segment, timestamp_ms)
            raise damaged_log(self.place, segment, error) from error

    def _search_whole(self, segment: Segment, timestamp_ms: int) -> tuple[Offset, int] | None:
        try:
            return self._search_from(segment, (segment.base_offset, 0), timestamp_ms)
        except BrokenChain as error:
            raise damaged_log(self.place, segment, error) from error

    def _search_from(
        self, segment: Segment, begin: tuple[Offset, int], timestamp_ms: int
    ) -> tuple[Offset, int] | None:
        is_last = segment.base_offset == self.last_base
        batches = scan_batches(
            segment.file(self.place),
            begin=begin[1],
            end=self.last_limit_bytes if is_last else segment.size_bytes,
            first_offset=begin[0],
            epoch_at=self.epoch_at,
        )
        for header, _position, data in batches:
            if header.base_offset >= self.end:
                return None
            if header.max_timestamp >= timestamp_ms and header.next_offset > self.begin:
                found = self._search_batch(header, data, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _search_batch(
        self, header: BatchHeader, data: Buffer, timestamp_ms: int
    ) -> tuple[Offset, int] | None:
        try:
            records = decode_records(data, 0, header)
        except (CodecMissing, TooLarge):
            # A whole batch that this process cannot open: its first record that may be an answer
            # stands for all of them, so that nothing late enough is passed over.
            return max(header.base_offset, self.begin), header.max_timestamp
        for record in records:
            if self.begin <= record.offset < self.end and record.timestamp >= timestamp_ms:
                return record.offset, record.timestamp
        return None
