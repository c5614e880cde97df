"""The envelope of state files: both copies, one copy, none, and formats."""

import errno
import os

import crc32c
import msgspec
import pytest

from ringlog.storage.errors import (
    DamagedState,
    DiskFull,
    FileMissing,
    LogDirFailed,
    StorageError,
    WrongDirectory,
)
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.simulated_files import Call, SimulatedDisk
from ringlog.storage.state_file import encode_state, load_state, read_state, write_state


class Vote(msgspec.Struct):
    term: int
    voted_for: str = ""


class OlderVote(msgspec.Struct):
    term: int


def make() -> MemoryDirectory:
    root = MemoryDirectory()
    root.create()
    return root


def put(root: MemoryDirectory, data: bytes) -> None:
    root.unlink("raft-state")
    root.open("raft-state", create=True).pwrite([data], 0)


def line_of(body: bytes, *, format_: int = 1) -> bytes:
    rest = b'"format":%d,"body":%b}' % (format_, body)
    return b'{"crc32c":"%08x",%b\n' % (crc32c.crc32c(rest), rest)


def test_what_is_written_is_read() -> None:
    root = make()
    write_state(root, "raft-state", Vote(7, "ä\n"), format=1)
    assert read_state(root, "raft-state", Vote, format=1) == Vote(7, "ä\n")
    loaded = load_state(root, "raft-state", Vote, format=1)
    assert loaded == (Vote(7, "ä\n"), 1, False)
    assert root.names() == ["raft-state"]


def test_the_file_is_one_line_twice_and_a_person_can_read_it() -> None:
    data = encode_state(Vote(7, "b"), format=3)
    rest = b'"format":3,"body":{"term":7,"voted_for":"b"}}'
    line = b'{"crc32c":"%08x",%b\n' % (crc32c.crc32c(rest), rest)
    assert data == line + line
    assert msgspec.json.decode(line)["body"] == {"term": 7, "voted_for": "b"}


def test_a_longer_value_and_a_leftover_do_not_shine_through() -> None:
    root = make()
    root.open("raft-state.tmp", create=True).pwrite([b"left over " * 1000], 0)
    write_state(root, "raft-state", Vote(1, "x" * 1000), format=1)
    write_state(root, "raft-state", Vote(2), format=1)
    assert read_state(root, "raft-state", Vote, format=1) == Vote(2)


def test_a_leftover_alone_is_no_state() -> None:
    root = make()
    root.open("raft-state.tmp", create=True).pwrite([encode_state(Vote(1), format=1)], 0)
    with pytest.raises(FileMissing, match="raft-state"):
        read_state(root, "raft-state", Vote, format=1)


@pytest.mark.parametrize(
    "make_data",
    [
        lambda line: line + line[:-5],
        lambda line: line + b"x" * len(line),
        lambda line: b"x" * len(line) + line,
        lambda line: line,
        lambda line: line + line + b"garbage",
        lambda line: line + bytes(len(line)),
    ],
    ids=["cut", "second bad", "first bad", "one only", "garbage behind", "second zeros"],
)
def test_one_good_copy_is_enough_and_the_other_is_reported(make_data: object) -> None:
    assert callable(make_data)
    root = make()
    put(root, make_data(line_of(b'{"term":7}')))
    assert load_state(root, "raft-state", Vote, format=1) == (Vote(7), 1, True)


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n", b"{}", bytes(100), b"x" * 100])
def test_no_good_copy_is_damage_that_names_the_file(data: bytes) -> None:
    root = make()
    put(root, data)
    with pytest.raises(DamagedState, match="/memory/raft-state: both copies") as damaged:
        read_state(root, "raft-state", Vote, format=1)
    assert damaged.value.path == "/memory/raft-state"


def test_two_good_copies_that_differ_are_damage() -> None:
    root = make()
    put(root, line_of(b'{"term":7}') + line_of(b'{"term":8}'))
    with pytest.raises(DamagedState, match="differ"):
        read_state(root, "raft-state", Vote, format=1)


@pytest.mark.parametrize("body", [b'{"term":"x"}', b"{}", b"[7]", b"7", b'{"term":7', b""])
def test_a_good_crc_over_a_wrong_body_is_damage(body: bytes) -> None:
    root = make()
    put(root, line_of(body) * 2)
    with pytest.raises(DamagedState, match="not as expected"):
        read_state(root, "raft-state", Vote, format=1)


def test_a_newer_format_is_not_guessed_at() -> None:
    root = make()
    put(root, line_of(b'{"quorum":7}', format_=2) * 2)
    with pytest.raises(WrongDirectory, match=r"newer ringlog \(format 2.*up to 1") as refused:
        read_state(root, "raft-state", Vote, format=1)
    assert "/memory/raft-state" in str(refused.value)
    assert refused.value.hint


def test_an_older_format_is_read_with_defaults_and_named() -> None:
    root = make()
    write_state(root, "raft-state", OlderVote(7), format=1)
    assert load_state(root, "raft-state", Vote, format=2) == (Vote(7, ""), 1, False)


def test_the_format_is_under_the_crc() -> None:
    root = make()
    put(root, line_of(b'{"term":7}', format_=2).replace(b'"format":2', b'"format":1') * 2)
    with pytest.raises(DamagedState):
        read_state(root, "raft-state", Vote, format=2)


@pytest.mark.parametrize("call", [Call.CREATE, Call.TRUNCATE, Call.WRITE, Call.SYNC, Call.RENAME])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_replacement_leaves_the_old_value(call: Call, code: int) -> None:
    root = SimulatedDisk()
    directory = root.directory()
    directory.create()
    write_state(directory, "raft-state", Vote(1), format=1)
    root.fail(call, name="raft-state", code=code, short=9)
    with pytest.raises((DiskFull, LogDirFailed)):
        write_state(directory, "raft-state", Vote(2), format=1)
    assert read_state(directory, "raft-state", Vote, format=1) == Vote(1)


def test_a_full_disk_is_waited_out() -> None:
    disk = SimulatedDisk(capacity_bytes=300)
    directory = disk.directory()
    directory.create()
    write_state(directory, "raft-state", Vote(1), format=1)
    filler = directory.open("filler", create=True)
    with pytest.raises(DiskFull):
        filler.pwrite([bytes(300)], 0)
    with pytest.raises(DiskFull):
        write_state(directory, "raft-state", Vote(2), format=1)
    filler.truncate(0)
    write_state(directory, "raft-state", Vote(3), format=1)
    assert read_state(directory, "raft-state", Vote, format=1) == Vote(3)


def test_a_failed_flush_of_the_name_is_a_failure() -> None:
    disk = SimulatedDisk()
    directory = disk.directory()
    directory.create()
    disk.fail(Call.SYNC_DIRECTORY)
    with pytest.raises(StorageError):
        write_state(directory, "raft-state", Vote(1), format=1)


def test_a_large_state() -> None:
    root = make()
    value = Vote(1, os.urandom(100_000).hex())
    write_state(root, "raft-state", value, format=1)
    assert read_state(root, "raft-state", Vote, format=1) == value
