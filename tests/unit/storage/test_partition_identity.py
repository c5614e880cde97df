"""`partition.json` and what is derived from it."""

from uuid import UUID

import pytest
from crc32c import crc32c

from ringlog.storage.durable_marks import MarkKey
from ringlog.storage.errors import FileMissing
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.partition_identity import (
    PARTITION_IDENTITY_NAME,
    PartitionIdentity,
    load_partition_identity,
    save_partition_identity,
)

IDENTITY = PartitionIdentity(
    topic="orders", topic_uuid=UUID(int=77), partition=3, created_ms=1_700_000_000_000
)


def test_it_is_read_back_and_can_be_read_by_people() -> None:
    directory = MemoryDirectory()
    directory.create()
    with pytest.raises(FileMissing):
        load_partition_identity(directory)
    save_partition_identity(directory, IDENTITY)
    assert load_partition_identity(directory) == IDENTITY
    file = directory.open(PARTITION_IDENTITY_NAME)
    assert b'"topic":"orders","topic_uuid":"00000000-0000' in file.pread(400, 0)


def test_names_keys_and_seeds() -> None:
    assert str(IDENTITY.topic_partition) == "orders-3"
    assert IDENTITY.mark_key == MarkKey(UUID(int=77), 3)
    assert IDENTITY.checksum_seed == crc32c(UUID(int=77).bytes + b"\0\0\0\3")
