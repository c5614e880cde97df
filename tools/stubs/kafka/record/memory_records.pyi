"""The part of kafka-python that tests/interop uses."""

from collections.abc import Iterator, Sequence

class _Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

class _Batch:
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    def validate_crc(self) -> bool: ...
    def __iter__(self) -> Iterator[_Record]: ...

class MemoryRecords:
    def __init__(self, bytes_data: bytes) -> None: ...
    def has_next(self) -> bool: ...
    def next_batch(self) -> _Batch | None: ...

class MemoryRecordsBuilder:
    def __init__(
        self,
        magic: int,
        compression_type: int,
        batch_size: int,
        offset: int = ...,
        transactional: bool = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        base_sequence: int = ...,
    ) -> None: ...
    def append(
        self,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None = ...,
    ) -> object | None: ...
    def close(self) -> None: ...
    def buffer(self) -> bytes: ...
