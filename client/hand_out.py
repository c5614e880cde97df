"""Buffered batches to records, on the thread of whoever polls.

Owns decoding, deserializers and the move of a position past what is handed out. Must not know
requests. Called with the consumer's lock held.

Invariants:
    HO1 A position moves past a record exactly when the record is handed out.
    HO2 A batch that fails a check halts its partition before any record of it is handed out.
    HO3 A record whose deserializer raises is not passed: the error comes again until a seek.
"""

from ringlog.client.consumer_config import Deserializer
from ringlog.client.errors import CorruptRecord, DeserializationFailed
from ringlog.client.fetch_slot import Chunk
from ringlog.client.fetcher import Fetcher
from ringlog.client.record import Record
from ringlog.storage.errors import CodecMissing, CorruptBatch
from ringlog.storage.record_batch import check_batch
from ringlog.storage.record_codec import decode_records


class HandOut:
    """Takes records out of a fetcher. One per consumer."""

    def __init__(
        self, fetcher: Fetcher, key: Deserializer | None, value: Deserializer | None
    ) -> None:
        self._fetcher = fetcher
        self._key = key
        self._value = value

    def take(self, max_records: int) -> list[Record]:
        """Up to `max_records` records that are buffered now, in order per partition.

        Raises:
            DeserializationFailed: the next record's deserializer raised, and nothing came before.
        """
        records: list[Record] = []
        while len(records) < max_records:
            chunk = self._fetcher.next_chunk()
            if chunk is None:
                break
            if chunk.index >= len(chunk.batch) and not self._decode_next(chunk):
                continue
            taken = chunk.batch[chunk.index : chunk.index + max_records - len(records)]
            if self._key is not None or self._value is not None:
                taken, error = self._deserialized(taken)
                if not taken and error is not None:
                    if records:
                        break
                    raise error
            records += taken
            chunk.index += len(taken)
            if chunk.is_done:
                self._fetcher.finish(chunk)
            elif taken:
                chunk.slot.position = taken[-1].offset + 1
        return records

    def _decode_next(self, chunk: Chunk) -> bool:
        """Decode the chunk's next batch. False: nothing in it to hand out."""
        if chunk.is_done:
            self._fetcher.finish(chunk)
            return False
        slot = chunk.slot
        topic, partition = slot.partition
        try:
            header = check_batch(chunk.data, chunk.position_bytes, max_bytes=len(chunk.data))
            stored = decode_records(
                chunk.data, chunk.position_bytes, header, from_offset=chunk.offset
            )
        except (CorruptBatch, CodecMissing) as error:
            problem = CorruptRecord(
                f"{slot.partition} at offset {slot.position}: {error}",
                hint=error.hint or "nothing of the batch was handed out; seek past it to go on",
            )
            problem.__cause__ = error
            self._fetcher.fail(slot, problem)
            return False
        chunk.position_bytes += header.size_bytes
        chunk.batch = [
            Record(topic, partition, one.offset, one.timestamp, one.key, one.value, one.headers)
            for one in stored
        ]
        chunk.index = 0
        return bool(stored)

    def _deserialized(
        self, records: list[Record]
    ) -> tuple[list[Record], DeserializationFailed | None]:
        """Records up to the first whose deserializer raises, and that error."""
        done: list[Record] = []
        for record in records:
            try:
                key = record.key if self._key is None else self._key(record.key)
                value = record.value if self._value is None else self._value(record.value)
            except Exception as cause:  # noqa: BLE001  (whatever a user's function raises)
                error = DeserializationFailed(
                    f"a deserializer raised {type(cause).__name__} for {record.topic}-"
                    f"{record.partition} at offset {record.offset}: {cause}",
                    record=record,
                    hint=f"seek to offset {record.offset + 1} to skip it",
                )
                error.__cause__ = cause
                return done, error
            done.append(
                Record(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp,
                    key,
                    value,
                    record.headers,
                )
            )
        return done, None
