"""Every byte of a partition is flipped and every file is cut at every length.

Whatever is served afterwards is what was appended, byte for byte. Damage is refused by name, or
it was in a cache or a second copy and is made good again.
"""

import functools
import random
from collections.abc import Iterator

import pytest

from ringlog.storage.durable_marks import DURABLE_MARKS_NAME
from ringlog.storage.errors import DamagedLog, StorageError
from ringlog.storage.findings import Severity
from ringlog.storage.log import PartitionLog
from ringlog.storage.producer_replay import PRODUCER_CACHES
from ringlog.storage.raft_log import RAFT_LOG_NAME
from ringlog.storage.record_batch import read_header
from ringlog.storage.record_codec import decode_records, encode_batch
from ringlog.storage.segment import CACHE_SUFFIXES, segment_base
from ringlog.storage.simulated_files import Call, SimulatedDisk
from ringlog.storage.types import Offset
from ringlog.storage.verify import verify_data_directory
from tests.crash.log_harness import KILL, NAME, Harness, check, open_on, read_all

NOWHERE = random.Random(0)


def fill(harness: Harness) -> None:
    """Three segments, a moved log start, three terms, a truncation, producers."""
    harness.start()
    for i in range(3):
        harness.append(2, 1, 100 + i, 120)
    harness.append_voters(["a", "b"])
    harness.flush()
    for i in range(2):
        harness.append(1, 2, 200 + i, 150)
    harness.flush()
    harness.append_own()
    harness.append(2, 1, 300, 120)
    harness.move_log_start(Offset(7))
    harness.flush()
    harness.append(1, None, 400, 10)
    harness.append(3, 2, 410, 10)
    harness.append_voters(["b", "c"])
    harness.flush()
    assert len(list(harness.log._segments)) == 2
    assert harness.log.base.offset > 0


@functools.cache
def stopped() -> Harness:
    harness = Harness(SimulatedDisk())
    fill(harness)
    harness.drain()
    harness.job = harness.log.close_job()
    harness.drain()
    harness.log.close()
    harness.marks.flush()
    return harness


@functools.cache
def killed() -> Harness:
    """The same with one group above the mark, written and never flushed."""
    harness = Harness(SimulatedDisk())
    fill(harness)
    harness.append(2, 1, 500, 30)
    harness.append_own()
    harness.append(1, 1, 500, 30)
    harness.drain()
    harness.job = harness.log.take_job()
    assert harness.job is not None
    harness.job.write()
    return harness


def files_of(disk: SimulatedDisk) -> Iterator[tuple[str, int]]:
    directory = disk.directory().subdirectory(NAME)
    for name in directory.names():
        yield name, directory.open(name).size_bytes()


def content(disk: SimulatedDisk, name: str) -> bytes:
    file = disk.directory().subdirectory(NAME).open(name)
    return file.pread(file.size_bytes(), 0)


def refused_by(disk: SimulatedDisk, harness: Harness) -> StorageError | None:
    """Open and read everything; return what refused it, or None when all of it came back."""
    try:
        _marks, opened = open_on(disk)
        check(opened.log, harness.model.versions())
    except StorageError as error:
        return error
    return None


def worst(disk: SimulatedDisk, name: str) -> Severity | None:
    """The worst that verify says about the file, having changed nothing: it may only flush."""
    disk.fail(Call.WRITE)
    disk.fail(Call.TRUNCATE)
    disk.fail(Call.UNLINK)
    disk.fail(Call.RENAME)
    disk.fail(Call.CREATE)
    found = [
        finding.severity
        for verdict in verify_data_directory(disk.directory())
        for finding in verdict.findings
        if finding.path in {name, name.replace(".timeindex", ".index")}
    ]
    disk._faults.clear()
    return min(found, key=list(Severity).index) if found else None


def assert_names_the_place(error: StorageError, name: str, position: int) -> None:
    assert name in str(error)
    if isinstance(error, DamagedLog):
        assert error.position <= position
        assert error.first_offset < error.end_offset or name == RAFT_LOG_NAME


def is_log(name: str) -> bool:
    return segment_base(name) is not None or name == RAFT_LOG_NAME


def is_cache(name: str) -> bool:
    is_of_segment = any(segment_base(name, suffix) is not None for suffix in CACHE_SUFFIXES)
    return is_of_segment or name in PRODUCER_CACHES


def assert_judged(
    name: str, what: str, error: StorageError | None, severity: Severity | None
) -> None:
    """Logs are refused, caches made again; a state file has a second copy, or is refused."""
    if is_log(name):
        assert error is not None, f"{name} {what} was served or cut"
    if is_cache(name):
        assert error is None, f"{name} {what}: {error}"
    if error is None:
        assert severity is Severity.HARMLESS, f"{name} {what}: {severity}"
    else:
        assert severity is Severity.DAMAGE, f"{name} {what}: {severity}"
        assert name in str(error)


def flip_all(harness: Harness, name: str, size: int, stride: int = 1) -> None:
    original = content(harness.disk.image(NOWHERE, KILL), name)
    for position in range(0, size, stride):
        image = harness.disk.image(NOWHERE, KILL)
        flipped = bytes([original[position] ^ (1 << position % 8)])
        image.damage(f"{NAME}/{name}", position, flipped)
        severity = worst(image, name)
        error = refused_by(image, harness)
        assert_judged(name, f"flipped at {position}", error, severity)
        assert is_log(name) or error is None
        if error is not None:
            assert_names_the_place(error, name, position)


def test_every_flipped_byte_of_a_stopped_partition_is_refused_or_harmless() -> None:
    harness = stopped()
    for name, size in files_of(harness.disk.image(NOWHERE, KILL)):
        flip_all(harness, name, size)


def test_every_flipped_byte_of_the_durable_marks_is_harmless() -> None:
    harness = stopped()
    root = harness.disk.image(NOWHERE, KILL).directory()
    file = root.open(DURABLE_MARKS_NAME)
    original = file.pread(file.size_bytes(), 0)
    used = [i for i, byte in enumerate(original) if byte]
    for position in range(used[0], used[-1] + 1):
        if position % 4096 >= 128:
            continue  # other partitions' slots
        image = harness.disk.image(NOWHERE, KILL)
        image.damage(DURABLE_MARKS_NAME, position, bytes([original[position] ^ 1]))
        assert refused_by(image, harness) is None


def cut_all(harness: Harness, name: str, size: int) -> None:
    for length in range(size):
        image = harness.disk.image(NOWHERE, KILL)
        image.directory().subdirectory(NAME).open(name).truncate(length)
        severity = worst(image, name)
        error = refused_by(image, harness)
        assert_judged(name, f"cut to {length}", error, severity)


def test_every_cut_of_a_stopped_partition_is_refused_or_harmless() -> None:
    harness = stopped()
    for name, size in files_of(harness.disk.image(NOWHERE, KILL)):
        cut_all(harness, name, size)


@pytest.mark.parametrize("fill_byte", [0, 0xFF])
def test_a_missing_file_is_refused_or_made_again(fill_byte: int) -> None:
    """Missing, empty, and as long as before but all one byte."""
    harness = stopped()
    for name, size in files_of(harness.disk.image(NOWHERE, KILL)):
        for missing in (True, False):
            image = harness.disk.image(NOWHERE, KILL)
            if missing:
                image.directory().subdirectory(NAME).unlink(name)
            else:
                image.damage(f"{NAME}/{name}", 0, bytes([fill_byte]) * size)
            if name == "partition.json" and missing:
                continue  # such a directory is none of a partition
            severity = worst(image, name)
            error = refused_by(image, harness)
            if missing and is_cache(name):
                assert error is None
            else:
                assert_judged(name, f"missing={missing}", error, severity)


def cuts_after_kill(harness: Harness, name: str, position: int, image: SimulatedDisk) -> None:
    """Below the mark: refused. Above it: cut, reported, and the rest is what it was."""
    try:
        _marks, opened = open_on(image)
    except StorageError as error:
        assert_names_the_place(error, name, position)
        return
    check(opened.log, harness.model.versions())
    assert opened.log.end < harness.model.end
    assert opened.report.cut_reason or opened.report.cut_bytes or opened.report.cut_own_entries
    assert any(note.startswith("cut ") for note in opened.report.notes())


def test_after_a_kill_flips_below_the_mark_are_refused_and_above_it_cut() -> None:
    harness = killed()
    image = harness.disk.image(NOWHERE, KILL)
    flushed = dict(files_of(image))
    marked = harness.log._limit_bytes
    last = max(name for name in flushed if segment_base(name) is not None)
    refused = 0
    for name in (last, RAFT_LOG_NAME):
        original = content(image, name)
        for position in range(len(original)):
            broken = harness.disk.image(NOWHERE, KILL)
            broken.damage(f"{NAME}/{name}", position, bytes([original[position] ^ 0x40]))
            if name == last and position < marked:
                error = refused_by(broken, harness)
                assert isinstance(error, DamagedLog)
                assert_names_the_place(error, name, position)
                refused += 1
            else:
                cuts_after_kill(harness, name, position, broken)
    assert refused == marked


def test_after_a_kill_a_cut_below_the_mark_is_refused_and_above_it_shortens() -> None:
    harness = killed()
    image = harness.disk.image(NOWHERE, KILL)
    marked = harness.log._limit_bytes
    last = max(name for name, _size in files_of(image) if segment_base(name) is not None)
    for length in range(len(content(image, last))):
        broken = harness.disk.image(NOWHERE, KILL)
        broken.directory().subdirectory(NAME).open(last).truncate(length)
        error = refused_by(broken, harness)
        assert (error is not None) == (length < marked)


def test_a_good_batch_of_another_place_or_partition_is_never_served() -> None:
    """A misdirected write: a valid batch stands where another one was."""
    harness = stopped()
    image = harness.disk.image(NOWHERE, KILL)
    name = min(name for name, _size in files_of(image) if segment_base(name) is not None)
    batches = [entry.data for entry in harness.model.entries if entry.header is not None]
    original = content(image, name)
    for at in {original.find(data) for data in batches if data in original}:
        for data in batches:
            if original[at : at + len(data)] == data or at + len(data) > len(original):
                continue
            broken = harness.disk.image(NOWHERE, KILL)
            broken.damage(f"{NAME}/{name}", at, data)
            assert isinstance(refused_by(broken, harness), DamagedLog)
            assert worst(broken, name) is Severity.DAMAGE


def test_a_stale_copy_of_a_closed_segment_is_found_by_its_seal() -> None:
    """Batches that are good in themselves, with the right offsets and epochs, but not ours."""
    harness = stopped()
    image = harness.disk.image(NOWHERE, KILL)
    name = min(name for name, _size in files_of(image) if segment_base(name) is not None)
    other = Harness(SimulatedDisk())
    fill(other)
    log: PartitionLog = other.log
    ours, theirs = content(image, name), content(other.disk, name)
    assert ours == theirs
    assert read_all(log, log.base.offset).startswith(ours)
    twin = bytearray(ours)
    # the same batch with another value: its CRC is made good
    header = read_header(ours)
    records = decode_records(ours)
    again = encode_batch(
        [b"!" + (record.value or b"")[1:] for record in records],
        timestamps=[record.timestamp for record in records],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    assert len(again) == header.size_bytes
    twin[: len(again)] = again
    image.damage(f"{NAME}/{name}", 0, bytes(twin))
    assert worst(image, name) is Severity.DAMAGE
