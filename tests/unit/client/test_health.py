"""The worst partition decides."""

from ringlog.client.errors import Busy, ClientClosed, PartitionDamaged, RinglogError
from ringlog.client.fetch_slot import Slot
from ringlog.client.health import Health, health_of
from ringlog.storage.types import TopicPartition


def slot(number: int, *, waits: bool = False, error: RinglogError | None = None) -> Slot:
    one = Slot(TopicPartition("t", number))
    one.start_at(0)
    if waits:
        one.back_off(Busy("full", hint="later"), 50)
    if error is not None:
        one.halt(error)
    return one


def test_no_trouble_is_ok() -> None:
    assert health_of([], None, 5) == Health("ok", 5, "", "")
    assert health_of([slot(0)], None, 5) == Health("ok", 5, "", "")


def test_a_partition_that_backs_off_waits() -> None:
    slots = [slot(0), slot(1, waits=True), slot(2, waits=True)]
    assert health_of(slots, None, 5) == Health("waiting", 5, "t-1: full", "later")


def test_a_halted_partition_is_worse_than_one_that_waits() -> None:
    bad = slot(1, error=PartitionDamaged("bad bytes"))
    expected = Health("stuck", 5, "t-1: bad bytes", "seek to try it again", (bad.partition,))
    assert health_of([slot(0, waits=True), bad], None, 5) == expected
    told = slot(1, error=PartitionDamaged("bad bytes", hint="repair it"))
    assert health_of([told], None, 5).hint == "repair it"


def test_an_error_that_was_raised_still_counts() -> None:
    bad = slot(0, error=PartitionDamaged("bad bytes"))
    bad.error = None
    assert health_of([bad], None, 5).state == "stuck"


def test_an_io_thread_that_ended_is_the_worst() -> None:
    failure = ClientClosed("the client is closed", hint="make a new one")
    bad = slot(0, error=PartitionDamaged("bad bytes"))
    assert health_of([bad], failure, 5) == Health("stuck", 5, failure.cause, "make a new one")
