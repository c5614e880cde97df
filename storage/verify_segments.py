"""Reading every segment of a partition to its end, beyond damage too.

Owns the walk of `storage.verify` over `.log` files, their seals and indexes. Must not know
own entries beyond what epoch they give an offset. Changes nothing.

Behind a bad batch the walk goes on at the next place that an index entry or the next segment
names, if a good batch begins there.

Invariants (VF1, VF2 are those of `storage.verify`):
    VS1 What is found behind damage never moves the end of the log: that is where the chain
        from the base breaks first.
"""

from ringlog.storage.batch_scan import BrokenChain, EpochAt, scan_batches
from ringlog.storage.findings import PartitionVerdict, Severity
from ringlog.storage.index import Coverage, SparseIndex
from ringlog.storage.seal import Seal
from ringlog.storage.segment import (
    CACHE_SUFFIXES,
    INDEX_SUFFIX,
    SEAL_SUFFIX,
    Place,
    Segment,
    load_seal,
    read_index,
    segment_base,
    segment_name,
    whole_crc,
)
from ringlog.storage.segment_owner import end_in_other_log
from ringlog.storage.types import Offset
from ringlog.storage.whole_file import crc_of


class SegmentVerifier:
    """Walks the segments of one partition and adds to its verdict."""

    __slots__ = ("_bases", "_epoch_at", "_index", "_index_entries", "_mark_offset",
                 "_mark_segment", "_place", "_verdict")  # fmt: skip

    def __init__(
        self,
        place: Place,
        epoch_at: EpochAt,
        mark_offset: Offset,
        mark_segment: Offset,
        verdict: PartitionVerdict,
    ) -> None:
        """Take what the walk needs.

        Args:
            place: of the partition.
            epoch_at: of its Raft log.
            mark_offset: everything below was flushed (exclusive).
            mark_segment: base of the segment in which that offset lies.
            verdict: findings and counts are added to it.
        """
        self._place = place
        self._epoch_at = epoch_at
        self._mark_offset = mark_offset
        self._mark_segment = mark_segment
        self._verdict = verdict
        self._bases: list[Offset] = []
        self._index: SparseIndex | None = None
        self._index_entries: list[tuple[Offset, int]] = []

    def run(self, base_offset: Offset) -> Offset:
        """Read all segments from `base_offset` on; return where the chain of batches ends."""
        names = self._place.directory.names()
        found = sorted(base for name in names if (base := segment_base(name)) is not None)
        self._bases = [base for base in found if base >= base_offset]
        self._leftovers(names, base_offset)
        offset, chain_end = base_offset, None
        for i, base in enumerate(self._bases):
            if base != offset:
                chain_end = offset if chain_end is None else chain_end
                self._gap(self._bases[i - 1] if i else None, offset, base)
            next_base = self._bases[i + 1] if i + 1 < len(self._bases) else None
            offset, broken_at = self._segment(base, next_base)
            if broken_at is not None and chain_end is None:
                chain_end = broken_at
        if chain_end is None:
            chain_end = offset
            if offset < self._mark_offset:
                self._short_end(base_offset, offset)
        return chain_end

    def _leftovers(self, names: list[str], base_offset: Offset) -> None:
        """Name segments below the base, and caches without a segment."""
        kept = set(self._bases)
        for name in names:
            bases = [segment_base(name, suffix) for suffix in (".log", *CACHE_SUFFIXES)]
            base = next((base for base in bases if base is not None), None)
            if base is not None and base not in kept:
                text = (
                    f"is below the base {base_offset}" if base < base_offset else "has no segment"
                )
                self._verdict.add(Severity.HARMLESS, name, text)

    def _gap(self, before: Offset | None, offset: Offset, base: Offset) -> None:
        """Say that the segment at `base` does not begin where the one at `before` ends."""
        if offset >= self._mark_offset and base > offset:
            self._left_behind(offset, base)
            return
        path = segment_name(offset if before is None else before)
        if base < offset:
            text = f"runs into the segment that begins at offset {base}"
        elif before is None:
            text = "is missing"
        else:
            text = f"ends early: the next segment begins at offset {base}"
        self._verdict.add(
            Severity.DAMAGE if offset < self._mark_offset else Severity.TORN_TAIL,
            path,
            text,
            position=0 if before is None else self._file_size(before),
            first_offset=offset,
            end_offset=max(offset, base),
        )

    def _left_behind(self, offset: Offset, base: Offset) -> None:
        """Name a segment behind the end. Nothing is said of the hole: it was not flushed as a hole.

        What filled it may never have been there, or a repair has cut it.
        """
        self._verdict.add(
            Severity.TORN_TAIL if self._file_size(base) else Severity.HARMLESS,
            segment_name(base),
            f"lies behind the end of the log, which is offset {offset}; the next start removes it",
            first_offset=base,
            end_offset=base,
        )

    def _short_end(self, base_offset: Offset, offset: Offset) -> None:
        last = self._bases[-1] if self._bases else base_offset
        is_missing = self._mark_segment == offset and offset not in self._bases
        last = offset if is_missing else last
        self._verdict.add(
            Severity.DAMAGE,
            segment_name(last),
            "is missing" if is_missing else "the file ends here, but more had been flushed",
            position=self._file_size(last),
            first_offset=offset,
            end_offset=self._mark_offset,
        )

    def _file_size(self, base: Offset) -> int:
        if base not in self._bases:
            return 0
        file = self._place.directory.open(segment_name(base))
        try:
            return file.size_bytes()
        finally:
            file.close()

    def _segment(self, base: Offset, next_base: Offset | None) -> tuple[Offset, Offset | None]:
        """Read one segment; return the offset behind it, and where its chain broke first."""
        segment = Segment(base, created_ms=0, index=None, size_bytes=self._file_size(base))
        seal = load_seal(self._place, base)
        covered = self._load_index(segment, is_closed=next_base is not None)
        offset, position, broken_at = base, 0, None
        while position < segment.size_bytes:
            error, offset = self._stretch(segment, position, offset)
            if error is None:
                break
            broken_at = offset if broken_at is None else broken_at
            again = self._next_good(segment, error.position)
            self._broken(segment, error, again, next_base)
            if again is None:
                offset = next_base if next_base is not None else offset
                break
            offset, position = again
            while self._index_entries and self._index_entries[-1][1] < position:
                self._index_entries.pop()
        segment.next_offset = offset
        if broken_at is None:
            theirs = end_in_other_log(self._place, segment, segment.size_bytes)
            if theirs is not None:
                self._other_bytes(segment, theirs)
            elif next_base is not None:
                self._check_seal(segment, seal)
            elif covered is not None:
                self._check_covered(segment, covered)
        segment.close()
        return offset, broken_at

    def _stretch(
        self, segment: Segment, position: int, offset: Offset
    ) -> tuple[BrokenChain | None, Offset]:
        """Read good batches from `position` on; return what ended them, and the offset there."""
        batches = scan_batches(
            segment.file(self._place),
            begin=position,
            end=segment.size_bytes,
            first_offset=offset,
            epoch_at=self._epoch_at,
        )
        try:
            for header, at, _data in batches:
                self._compare_index(segment, header.base_offset, at)
                offset = header.next_offset
                segment.max_timestamp = max(segment.max_timestamp, header.max_timestamp)
                self._verdict.batch_count += 1
                self._verdict.record_count += header.record_count
                self._verdict.size_bytes += header.size_bytes
        except BrokenChain as error:
            return error, offset
        return None, offset

    def _next_good(self, segment: Segment, position: int) -> tuple[Offset, int] | None:
        """Find the first index entry behind `position` at which a good batch begins."""
        if self._index is None:
            return None
        for offset, at in self._index.entries():
            if at > position:
                batches = scan_batches(
                    segment.file(self._place),
                    begin=at,
                    end=segment.size_bytes,
                    first_offset=offset,
                    epoch_at=self._epoch_at,
                )
                try:
                    next(batches)
                except (BrokenChain, StopIteration):
                    continue
                return offset, at
        return None

    def _broken(
        self,
        segment: Segment,
        error: BrokenChain,
        again: tuple[Offset, int] | None,
        next_base: Offset | None,
    ) -> None:
        is_torn = error.offset >= self._mark_offset and next_base is None
        end = self._mark_offset if next_base is None else next_base
        if again is not None:
            end = again[0]
        self._verdict.add(
            Severity.TORN_TAIL if is_torn else Severity.DAMAGE,
            segment_name(segment.base_offset),
            str(error),
            position=error.position,
            first_offset=error.offset,
            end_offset=max(end, error.offset),
        )

    def _load_index(self, segment: Segment, *, is_closed: bool) -> Coverage | None:
        """Load the index; return what it covers, or None when there is no good one."""
        loaded = read_index(self._place, segment.base_offset)
        self._index, self._index_entries = None, []
        name = segment_name(segment.base_offset, INDEX_SUFFIX)
        if loaded is not None and loaded[1].size_bytes <= segment.size_bytes:
            self._index = loaded[0]
            self._index_entries = list(loaded[0].entries())[::-1]
            return loaded[1]
        if is_closed or self._place.directory.exists(name):
            self._verdict.add(Severity.HARMLESS, name, "is missing or fails its check; a cache")
        return None

    def _compare_index(self, segment: Segment, offset: Offset, position: int) -> None:
        """Check the entry of the batch at `position`, and that none lies between batches."""
        entries = self._index_entries
        while entries and entries[-1][1] <= position:
            entry = entries.pop()
            if entry != (offset, position):
                name = segment_name(segment.base_offset, INDEX_SUFFIX)
                self._verdict.add(Severity.HARMLESS, name, "does not fit its segment; a cache")
                entries.clear()

    def _check_covered(self, segment: Segment, covered: Coverage) -> None:
        """Check the active segment against what the last clean stop noted of it."""
        crc = crc_of(segment.file(self._place), covered.size_bytes, self._place.seed)
        if crc != covered.segment_crc:
            self._other_bytes(segment, covered.next_offset)

    def _other_bytes(self, segment: Segment, end_offset: Offset) -> None:
        self._verdict.add(
            Severity.DAMAGE,
            segment_name(segment.base_offset),
            "every batch is good, but the file is not the one that this partition wrote: batches "
            "of another log or of an older copy stand in it",
            first_offset=segment.base_offset,
            end_offset=end_offset,
        )

    def _check_seal(self, segment: Segment, seal: Seal | None) -> None:
        name = segment_name(segment.base_offset, SEAL_SUFFIX)
        if seal is None:
            self._verdict.add(Severity.HARMLESS, name, "is missing or fails its check; a cache")
        elif (seal.size_bytes, seal.next_offset) != (segment.size_bytes, segment.next_offset):
            self._verdict.add(Severity.HARMLESS, name, "does not fit its segment; a cache")
        elif seal.segment_crc != whole_crc(self._place, segment):
            self._other_bytes(segment, segment.next_offset)
