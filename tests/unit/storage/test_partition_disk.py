"""The files of a partition: what is flushed before what."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from ringlog.storage.durable_marks import DurableMarks, Mark, MarkKey
from ringlog.storage.index import SparseIndex
from ringlog.storage.partition_disk import PartitionDisk, mark_at
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.segment import Place, Segment, segment_name, write_whole
from ringlog.storage.simulated_files import Call, SimulatedDisk
from ringlog.storage.types import Offset, Position
from tests.crash.log_harness import IDENTITY


class RecordingDisk(SimulatedDisk):
    """Notes every call that changes something, as `kind name`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    @contextlib.contextmanager
    def counted(self, call: Call, path: str) -> Iterator[Any]:
        self.calls.append(f"{call.name} {path.rsplit('/', 1)[-1]}")
        with super().counted(call, path) as fault:
            yield fault

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


def make_disk(identity: PartitionIdentity = IDENTITY) -> tuple[RecordingDisk, PartitionDisk]:
    recording = RecordingDisk()
    root = recording.directory()
    root.create()
    directory = root.subdirectory("p")
    directory.create()
    place = Place(directory, identity.checksum_seed, 100)
    disk = PartitionDisk(place, DurableMarks.open(root), identity.mark_key)
    disk.replace_own(b"")
    recording.taken()
    return recording, disk


def make_segment(disk: PartitionDisk, base: int = 0) -> Segment:
    segment = Segment(Offset(base), created_ms=0, index=SparseIndex(Offset(base), 100))
    segment.create_file(disk.place)
    return segment


def test_own_entries_are_flushed_before_a_batch_behind_them_is_written() -> None:
    recording, disk = make_disk()
    segment = make_segment(disk)
    recording.taken()
    disk.append_own(b"own")
    disk.write_batches(segment, 0, [b"batch"])
    disk.write_batches(segment, 5, [b"batch"])
    log = segment_name(Offset(0))
    assert recording.taken() == [
        "WRITE raft-log", "SYNC raft-log", f"WRITE {log}", f"WRITE {log}",
    ]  # fmt: skip
    assert [file.name.rsplit("/", 1)[-1] for file in disk.dirty_files()] == [log]


def test_dirty_files_are_those_not_flushed_yet() -> None:
    _recording, disk = make_disk()
    segment = make_segment(disk)
    disk.write_batches(segment, 0, [b"batch"])
    disk.append_own(b"own")
    assert len(disk.dirty_files()) == 2
    disk.sync_segment(segment)
    disk.sync_own()
    assert disk.dirty_files() == []
    disk.append_own(b"own")
    disk.note_synced()
    assert disk.dirty_files() == []


def test_a_new_raft_log_takes_the_place_of_the_old_one_only_when_it_is_flushed() -> None:
    recording, disk = make_disk()
    disk.replace_own(b"rest")
    disk.append_own(b"more")
    assert recording.taken() == [
        "CREATE raft-log.new", "TRUNCATE raft-log.new", "WRITE raft-log.new", "SYNC raft-log.new",
        "RENAME raft-log.new", "SYNC_DIRECTORY p", "WRITE raft-log",
    ]  # fmt: skip
    file = disk.place.directory.open("raft-log")
    assert file.pread(100, 0) == b"restmore"
    disk.truncate_own(4)
    assert file.pread(100, 0) == b"rest"


def test_segments_go_from_the_last_to_the_first_each_log_after_its_caches() -> None:
    recording, disk = make_disk()
    for base in (0, 5):
        make_segment(disk, base)
        write_whole(disk.place.directory, segment_name(Offset(base), ".seal"), b"x")
    recording.taken()
    disk.remove_segments([Offset(0), Offset(5)])
    assert recording.taken() == [
        f"UNLINK {segment_name(Offset(base), suffix)}"
        for base in (5, 0)
        for suffix in (".timeindex", ".index", ".seal", ".log")
    ] + ["SYNC_DIRECTORY p"]
    assert disk.segment_bases() == []


def test_a_mark_is_put_upwards_and_set_both_ways() -> None:
    _recording, disk = make_disk()
    segment = make_segment(disk)
    segment.size_bytes = 40
    disk.put_mark(mark_at(Position(Offset(3), 1), segment))
    with pytest.raises(AssertionError, match="K2"):
        disk.put_mark(mark_at(Position(Offset(2), 1), segment))
    disk.set_mark(mark_at(Position(Offset(1), 0), segment))
    assert disk.marks.get(disk.key) == Mark(Position(Offset(1), 0), Offset(0), 40, clean=False)
    assert isinstance(disk.key, MarkKey)
