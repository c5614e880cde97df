"""Settings of the producer: limits, and what one makes of another."""

import pytest

from ringlog.client.errors import InvalidArgument
from ringlog.client.producer_config import ProducerConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("acks", 2),
        ("acks", "1"),
        ("acks", True),
        ("compression", "gzip"),
        ("batch_size", 0),
        ("batch_bytes", 100),
        ("batch_bytes", 5 * 1024 * 1024),
        ("linger_ms", -1),
        ("buffer_memory", 1024),
        ("max_block_ms", -1),
        ("delivery_timeout_ms", 0),
        ("max_in_flight", 0),
        ("max_in_flight", 17),
    ],
)
def test_bad_values_are_named(field: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=field):
        ProducerConfig(**{field: value})  # type: ignore[arg-type]  # on purpose


def test_acks_as_they_travel() -> None:
    assert [ProducerConfig(acks=acks).wire_acks for acks in ("all", -1, 1, 0)] == [-1, -1, 1, 0]


def test_without_sequences_one_batch_is_under_way_to_keep_the_order() -> None:
    assert ProducerConfig(max_in_flight=8).in_flight == 8
    assert ProducerConfig(max_in_flight=8, enable_idempotence=False).in_flight == 1
    none = ProducerConfig(max_in_flight=8, acks=0)
    assert (none.in_flight, none.idempotent) == (8, False)
