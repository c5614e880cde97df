"""A batch that is too large for the broker, in two.

Owns how a sealed batch is divided. Must not know why, nor where the halves go.

Invariants:
    S1  The halves hold the same records in the same order, with the same timestamps; each has at
        least one.
    S2  A batch of one record is not divided.
"""

from ringlog.client.batch import Batch
from ringlog.client.errors import RecordTooLarge
from ringlog.storage.record_codec import Record, decode_records, encode_body


def split_batch(batch: Batch, compression: str | None) -> tuple[Batch, ...]:
    """The two halves, encoded, as parts of `batch`; empty when it cannot be divided."""
    records = decode_records(batch.payload)
    if len(records) < 2:
        return ()
    middle = len(records) // 2
    halves = (records[:middle], records[middle:])
    parts = tuple(_part(batch, half, compression) for half in halves)
    batch.parts = ((0, parts[0]), (middle, parts[1]))
    batch.payload = b""
    batch.body = None
    return parts


def too_large(batch: Batch, limit_bytes: int) -> RecordTooLarge:
    """The error of a batch that is never sent: its one record exceeds what brokers take in."""
    return RecordTooLarge(
        f"{batch.topic}-{batch.partition}: the record takes {batch.encoded().batch_size_bytes} "
        f"bytes as a batch, the brokers take at most {limit_bytes}; it was not sent",
        hint="raise max_message_bytes of the brokers, or store the value elsewhere and send a "
        "reference",
    )


def _part(batch: Batch, records: list[Record], compression: str | None) -> Batch:
    part = Batch(batch.topic, batch.partition, len(records), batch.opened_ms, None)
    part.deadline_ms = batch.deadline_ms
    part.close()
    part.free_records()
    part.parent = batch
    part.timestamp = batch.timestamp
    part.body = encode_body(
        [record.value for record in records],
        keys=[record.key for record in records],
        headers=[record.headers for record in records],
        timestamps=[record.timestamp for record in records],
        compression=compression,
    )
    return part
