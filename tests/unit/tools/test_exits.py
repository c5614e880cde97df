"""Exit codes and error lines."""

import errno
import os

import pytest

from ringlog.broker.config import ConfigError
from ringlog.client import errors as client
from ringlog.storage import errors as storage
from ringlog.storage.types import Offset
from ringlog.tools.cli.exits import Exit, exit_of, one_line

CASES: list[tuple[BaseException, Exit]] = [
    (client.InvalidArgument("x"), Exit.USAGE),
    (client.RecordTooLarge("x"), Exit.FAILED),
    (client.NoBrokerReachable("x"), Exit.UNREACHABLE),
    (client.DeliveryUnknown("x"), Exit.UNKNOWN),
    (client.OutcomeUnknown("x"), Exit.UNKNOWN),
    (client.DeadlineExceeded("x"), Exit.FAILED),
    (client.CorruptRecord("x"), Exit.DAMAGED),
    (client.UnknownTopic("x"), Exit.REFUSED),
    (client.UnknownPartition("x"), Exit.REFUSED),
    (client.InvalidTopicName("x"), Exit.REFUSED),
    (client.TopicExists("x"), Exit.REFUSED),
    (client.PartitionDamaged("x"), Exit.DAMAGED),
    (client.RequestTimedOut("x"), Exit.UNKNOWN),
    (client.StorageFailed("x"), Exit.UNKNOWN),
    (client.InternalError("x"), Exit.FAILED),
    (client.DiskFull("x"), Exit.FAILED),
    (client.Busy("x"), Exit.FAILED),
    (client.BrokerStopping("x"), Exit.FAILED),
    (ConfigError("x"), Exit.REFUSED),
    (storage.DirectoryInUse("x"), Exit.REFUSED),
    (storage.WrongDirectory("x"), Exit.REFUSED),
    (storage.FileMissing("x"), Exit.REFUSED),
    (storage.DamagedState("x", path="p"), Exit.DAMAGED),
    (
        storage.DamagedLog("x", path="p", position=1, first_offset=Offset(2), end_offset=Offset(3)),
        Exit.DAMAGED,
    ),
    (storage.CorruptBatch("x"), Exit.DAMAGED),
    (storage.ReadFailed("x"), Exit.FAILED),
    (storage.LogDirFailed("x"), Exit.FAILED),
    (storage.DiskFull("x"), Exit.FAILED),
    (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "f"), Exit.REFUSED),
    (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "f"), Exit.FAILED),
    (KeyboardInterrupt(), Exit.INTERRUPTED),
    (ZeroDivisionError("x"), Exit.FAILED),
]


@pytest.mark.parametrize(("error", "code"), CASES, ids=lambda case: type(case).__name__)
def test_the_code_of_an_error(error: BaseException, code: Exit) -> None:
    assert exit_of(error) is code


def test_the_numbers_programs_rely_on() -> None:
    assert [int(code) for code in Exit] == [0, 1, 2, 3, 4, 5, 6, 130]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (client.UnknownTopic("no topic 'x'", hint="make it"), "no topic 'x'; make it"),
        (client.UnknownTopic("no topic\n 'x'"), "no topic 'x'"),
        (storage.DirectoryInUse("in use", hint="stop it"), "in use; stop it"),
        (PermissionError(errno.EACCES, "Permission denied", "f"), "f: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (ZeroDivisionError("x"), "ZeroDivisionError: x; RINGLOG_DEBUG=1 shows where"),
        (client.UnknownTopic("\x1b[31m\x9b"), r"\x1b[31m\x9b"),
    ],
)
def test_one_line_names_cause_and_next_step(error: BaseException, line: str) -> None:
    assert one_line(error) == line
