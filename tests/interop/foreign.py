"""Independent readers and writers of Kafka's record format, held against ours.

`assert_all_read(data, ours)` is the comparison: every reader gets the same bytes, each must find
the CRC good, and all must agree on each header field and record. Bytes may be one batch or
any number, such as a whole segment file.
"""

import warnings
from collections.abc import Sequence
from typing import Protocol

import msgspec
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

from ringlog.storage.record_batch import check_batch, iter_batches
from ringlog.storage.record_codec import Record, decode_records
from ringlog.storage.types import Offset

with warnings.catch_warnings():
    # kafka-python 3.0.12 loads its schemas by a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
    from kafka.record.memory_records import MemoryRecordsBuilder

BATCH_LIMIT_BYTES = 64 * 1024 * 1024
CODEC_NONE, CODEC_GZIP, CODEC_LZ4 = 0, 1, 3


class ForeignBatch(msgspec.Struct, frozen=True):
    """What any reader says of one batch."""

    base_offset: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[Record, ...]


class Producer(msgspec.Struct, frozen=True):
    """Producer fields to write into a batch."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_PRODUCER = Producer()


def read_with_ringlog(data: bytes) -> list[ForeignBatch]:
    """All whole batches by our own decoder, each with its CRC checked."""
    found = []
    for position, _ in iter_batches(data):
        header = check_batch(data, position, max_bytes=BATCH_LIMIT_BYTES)
        found.append(
            ForeignBatch(
                base_offset=header.base_offset,
                attributes=header.attributes,
                last_offset_delta=header.last_offset_delta,
                base_timestamp=header.base_timestamp,
                max_timestamp=header.max_timestamp,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                records=tuple(decode_records(data, position, header)),
            )
        )
    return found


def _read(reader: KafkaPythonRecords | AiokafkaRecords) -> list[ForeignBatch]:
    found = []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch is not None
        assert batch.validate_crc(), f"bad CRC in the batch at offset {batch.base_offset}"
        found.append(
            ForeignBatch(
                base_offset=batch.base_offset,
                attributes=batch.attributes,
                last_offset_delta=batch.last_offset_delta,
                base_timestamp=batch.first_timestamp,
                max_timestamp=batch.max_timestamp,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                records=tuple(
                    Record(
                        Offset(record.offset),
                        record.timestamp,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )
                    for record in batch
                ),
            )
        )
    return found


def read_with_kafka_python(data: bytes) -> list[ForeignBatch]:
    """All whole batches by kafka-python (pure Python)."""
    return _read(KafkaPythonRecords(data))


def read_with_aiokafka(data: bytes) -> list[ForeignBatch]:
    """All whole batches by aiokafka (its compiled reader)."""
    return _read(AiokafkaRecords(data))


FOREIGN_READERS = (read_with_kafka_python, read_with_aiokafka)


def assert_all_read(data: bytes) -> list[ForeignBatch]:
    """Read `data` with every reader, ours first; fail on the first difference; return ours."""
    ours = read_with_ringlog(data)
    for reader in FOREIGN_READERS:
        theirs = reader(data)
        assert len(theirs) == len(ours), f"{reader.__name__} finds {len(theirs)} batches"
        for mine, other in zip(ours, theirs, strict=True):
            assert other == mine, f"{reader.__name__} reads offset {mine.base_offset} otherwise"
    return ours


class Writer(Protocol):
    """Writes one batch with offsets from 0."""

    def __call__(self, records: Sequence[Record], *, codec: int, producer: Producer) -> bytes:
        """The batch as that library's producer sends it."""


def write_with_kafka_python(
    records: Sequence[Record], *, codec: int = CODEC_NONE, producer: Producer = NO_PRODUCER
) -> bytes:
    """One batch with offsets from 0, as kafka-python's producer sends it."""
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=codec,
        batch_size=BATCH_LIMIT_BYTES,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
    for record in records:
        assert builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    return bytes(builder.buffer())


def write_with_aiokafka(
    records: Sequence[Record], *, codec: int = CODEC_NONE, producer: Producer = NO_PRODUCER
) -> bytes:
    """One batch with offsets from 0, as aiokafka's producer sends it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
        batch_size=BATCH_LIMIT_BYTES,
    )
    for number, record in enumerate(records):
        assert builder.append(
            number, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())
