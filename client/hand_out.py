"""Buffered batches to records, on the thread of whoever polls.

Owns decoding, deserializers and the move of a position past what is handed out. Must not know
requests or waiting. The owner's lock is held only where state is shared, never while a batch
is decoded or a deserializer runs: one thread takes at a time.

Invariants:
    HO1 A position moves past a record exactly when the record is handed out; both happen in one
        step under the lock, so that a seek or pause comes before or after it.
    HO2 A batch that fails a check halts its partition before any record of it is handed out.
    HO3 A record whose deserializer raises is not passed: the error comes again until a seek,
        and the other partitions have their turn in between.
    HO4 At most one batch at a time is decoded and not handed out, unless its partition is paused.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from ringlog.client.consumer_config import Deserializer
from ringlog.client.errors import CorruptRecord, DeserializationFailed, InvalidArgument
from ringlog.client.fetch_slot import Chunk
from ringlog.client.fetcher import Fetcher
from ringlog.client.record import Record
from ringlog.storage.errors import CodecMissing, CorruptBatch
from ringlog.storage.record_batch import check_batch
from ringlog.storage.record_codec import decode_as

Sink = Callable[[list[Record]], object]
"""Gets records, in order per partition, with the lock held."""


class HandOut:
    """Takes records out of a fetcher. One per consumer."""

    def __init__(
        self,
        fetcher: Fetcher,
        lock: AbstractContextManager[object],
        key: Deserializer | None,
        value: Deserializer | None,
    ) -> None:
        self._fetcher = fetcher
        self._lock = lock
        self._key = key
        self._value = value
        self._open: Chunk | None = None
        """Where a batch was handed out in part."""
        self._is_busy = False

    def take(self, max_records: int, sink: Sink) -> int:
        """Give `sink` up to `max_records` records that are buffered now; returns how many.

        Raises:
            DeserializationFailed: the next record's deserializer raised, and nothing came before.
            InvalidArgument: called by a deserializer.
        """
        if self._is_busy:
            raise InvalidArgument(
                "a deserializer asked for records while its own is being handed out",
                hint="read other topics with a consumer of their own",
            )
        self._is_busy = True
        try:
            return self._take(max_records, sink)
        finally:
            self._is_busy = False

    def _take(self, max_records: int, sink: Sink) -> int:
        count = 0
        while count < max_records:
            chunk = self._next_chunk()
            if chunk is None:
                break
            if chunk.index >= len(chunk.batch) and not self._decode_next(chunk):
                continue
            raw = chunk.batch[chunk.index : chunk.index + max_records - count]
            records, error = self._deserialized(raw)
            if not self._commit(chunk, records, sink):
                continue
            count += len(records)
            if error is not None:
                # The others first: they have nothing to do with it.
                self._open = None
                if not count:
                    raise error
                break
        return count

    def _next_chunk(self) -> Chunk | None:
        with self._lock:
            chunk = self._open
            goes_on = chunk is not None and chunk.index < len(chunk.batch)
            if chunk is None or not goes_on or not chunk.is_live or chunk.slot.paused:
                chunk = self._open = self._fetcher.next_chunk()
            return chunk

    def _commit(self, chunk: Chunk, records: list[Record], sink: Sink) -> bool:
        """Hand `records` out; False: a seek or a pause came first."""
        with self._lock:
            if not chunk.is_live or chunk.slot.paused:
                return False
            chunk.index += len(records)
            if chunk.is_done:
                self._fetcher.finish(chunk)
            elif records:
                chunk.slot.position = records[-1].offset + 1
            sink(records)
            return True

    def _decode_next(self, chunk: Chunk) -> bool:
        """Decode the chunk's next batch. False: nothing in it to hand out."""
        slot = chunk.slot
        problem: CorruptRecord | None = None
        try:
            header = check_batch(chunk.data, chunk.position_bytes, max_bytes=len(chunk.data))
            chunk.batch = decode_as(
                partial(Record, *slot.partition),
                chunk.data,
                chunk.position_bytes,
                header,
                from_offset=chunk.offset,
            )
        except (CorruptBatch, CodecMissing) as error:
            problem = CorruptRecord(
                f"{slot.partition} at offset {slot.position}: {error}",
                hint=error.hint or "nothing of the batch was handed out; seek past it to go on",
            )
            problem.__cause__ = error
        else:
            chunk.index = 0
            chunk.position_bytes += header.size_bytes
            if chunk.batch:
                return True
        with self._lock:
            if chunk.is_live:
                if problem is not None:
                    self._fetcher.fail(slot, problem)
                elif chunk.is_done:
                    self._fetcher.finish(chunk)
        return False

    def _deserialized(
        self, records: list[Record]
    ) -> tuple[list[Record], DeserializationFailed | None]:
        """Records up to the first whose deserializer raises, and that error."""
        if self._key is None and self._value is None:
            return records, None
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
