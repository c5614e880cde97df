"""A batch in two."""

import pytest

from ringlog.client.batch import Batch
from ringlog.client.split import split_batch
from ringlog.storage.record_codec import Record, decode_records, encode_records, seal_batch


def sealed(count: int) -> tuple[Batch, list[Record]]:
    records = [
        Record(number, 1000 + number, b"k%d" % number, b"v" * number, (("h", b"x"),))  # type: ignore[arg-type]  # offsets are numbers
        for number in range(count)
    ]
    batch = Batch("t", 3, count, 11)
    batch.deadline_ms = 99
    batch.payload = encode_records(records)
    return batch, records


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_the_halves_hold_the_same_records(count: int, compression: str | None) -> None:
    batch, records = sealed(count)
    parts = split_batch(batch, compression)
    assert [part.capacity for part in parts] == [count // 2, count - count // 2]
    found = []
    for part in parts:
        assert (part.topic, part.partition, part.deadline_ms, part.parent) == ("t", 3, 99, batch)
        found += decode_records(seal_batch(part.encoded()))
    fields = [(one.timestamp, one.key, one.value, one.headers) for one in records]
    assert [(one.timestamp, one.key, one.value, one.headers) for one in found] == fields
    assert [first for first, _ in batch.parts] == [0, count // 2]


def test_one_record_is_not_divided() -> None:
    batch, _ = sealed(1)
    assert split_batch(batch, None) == ()
    assert batch.parts == ()
    assert batch.payload
