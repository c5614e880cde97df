"""The handle of one record."""

import gc

import pytest

from ringlog.client.batch import Batch
from ringlog.client.delivery import Delivery, RecordMetadata
from ringlog.client.errors import DeadlineExceeded, DeliveryUnknown


def opened(count: int = 3) -> tuple[Batch, list[Delivery]]:
    batch = Batch("t", 4, count, 0)
    deliveries = []
    for index in batch.slots:
        batch.values[index] = b"x"
        deliveries.append(Delivery(batch, index))
    batch.take_columns(1000)
    return batch, deliveries


def test_a_result_is_computed_from_the_batch() -> None:
    batch, deliveries = opened()
    assert not deliveries[0].done()
    batch.finish(10, None)
    assert all(delivery.done() for delivery in deliveries)
    assert deliveries[2].result() == RecordMetadata("t", 4, 12, 1000)
    assert deliveries[2].exception() is None


def test_waiting_has_a_deadline_and_the_delivery_goes_on() -> None:
    batch, deliveries = opened()
    with pytest.raises(DeadlineExceeded, match="still open"):
        deliveries[0].result(timeout=0)
    with pytest.raises(TimeoutError):
        deliveries[0].exception(timeout=0)
    batch.finish(1, None)
    assert deliveries[0].result(timeout=0).offset == 1


def test_an_error_may_be_raised_often_without_growing() -> None:
    batch, deliveries = opened()
    batch.finish(-1, DeliveryUnknown("no answer"))
    depths = set()
    for _ in range(5):
        with pytest.raises(DeliveryUnknown) as caught:
            deliveries[1].result()
        depths.add(len(caught.traceback))
    assert len(depths) == 1
    assert isinstance(deliveries[1].exception(), DeliveryUnknown)


def test_callbacks_get_the_delivery() -> None:
    batch, deliveries = opened()
    got: list[Delivery] = []
    deliveries[1].add_done_callback(got.append)
    batch.finish(1, None)
    deliveries[2].add_done_callback(got.append)
    assert got == [deliveries[1], deliveries[2]]


def test_handles_are_no_work_for_the_garbage_collector() -> None:
    _, deliveries = opened()
    assert not gc.is_tracked(deliveries[0])


def test_handles_are_equal_only_to_themselves() -> None:
    batch, deliveries = opened()
    assert deliveries[0] != Delivery(batch, 0)
    assert len(set(deliveries)) == 3
