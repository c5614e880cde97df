"""The one table of errors: every class of the layers below has a row, and texts survive."""

from collections.abc import Iterator

import pytest

from ringlog.broker.error_codes import TABLE, broker_error, is_known
from ringlog.client import errors as wire
from ringlog.registry import errors as registry
from ringlog.storage import errors as storage
from ringlog.storage.batch_scan import BrokenChain
from ringlog.storage.types import Offset

AT_START_ONLY = {storage.DirectoryInUse}
"""Raised before the first request; INTERNAL if ever met later."""

INSIDE_STORAGE = {BrokenChain}
"""Tells where a walk over batches ends, and becomes DamagedLog before it leaves a read."""


def descendants(root: type[Exception]) -> Iterator[type[Exception]]:
    for child in root.__subclasses__():
        yield child
        yield from descendants(child)


def leaves() -> list[type[Exception]]:
    found = {*descendants(storage.StorageError), *descendants(registry.RegistryError)}
    return sorted((kind for kind in found if kind.__module__.startswith("ringlog.")),
                  key=lambda kind: kind.__name__)  # fmt: skip


@pytest.mark.parametrize("kind", leaves(), ids=lambda kind: kind.__name__)
def test_every_error_below_has_its_own_row(kind: type[Exception]) -> None:
    assert (kind in TABLE) != (kind in AT_START_ONLY | INSIDE_STORAGE)


def test_rows_lead_to_errors_with_a_wire_code() -> None:
    for row in TABLE.values():
        assert row.error_code in wire.ErrorCode


def test_the_nearest_class_decides() -> None:
    class TornBatch(storage.TooLarge):
        """Some later error."""

    assert type(broker_error(TornBatch("x"))) is wire.BatchTooLarge
    assert type(broker_error(storage.ProducerFenced("x", expected=1))) is wire.ProducerFenced
    assert type(broker_error(storage.SequenceError("x", expected=1))) is wire.OutOfOrderSequence


def test_cause_and_hint_survive() -> None:
    error = broker_error(storage.OffsetOutOfRange(Offset(9), Offset(1), Offset(5)))
    assert type(error) is wire.OffsetOutOfRange
    assert error.cause == "offset 9 is outside [1, 5]"
    assert "auto_offset_reset" in error.hint


def test_a_wire_error_stays_itself() -> None:
    error = wire.Busy("too much")
    assert broker_error(error) is error


def test_our_bugs_are_internal_and_tell_no_detail() -> None:
    error = broker_error(KeyError("secret"))
    assert type(error) is wire.InternalError
    assert "secret" not in str(error)
    assert not is_known(KeyError("secret"))
    assert is_known(storage.DiskFull("full"))
    assert is_known(registry.TopicMissing("no"))
    assert is_known(wire.Busy("no"))
