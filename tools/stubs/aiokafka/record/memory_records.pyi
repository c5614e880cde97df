"""The part of aiokafka that tests/interop uses."""

from collections.abc import Iterator

class _Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

class _Batch:
    base_offset: int
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
