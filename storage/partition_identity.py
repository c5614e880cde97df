"""`partition.json`: which partition a directory holds.

Owns its fields and what is derived from them: the key of the durable mark and the seed of
checksums over whole files. Must not know names of directories; those can be renamed, a topic's
UUID cannot change, and a topic made again under the same name has another one.

Invariants:
    PI1  The file is written once. Key and seed depend on the topic's UUID and the partition
         alone, so they hold for the life of the directory.
"""

from uuid import UUID

import msgspec
from crc32c import crc32c

from ringlog.storage.durable_marks import MarkKey
from ringlog.storage.files import Directory
from ringlog.storage.state_file import read_state, write_state
from ringlog.storage.types import TopicPartition

PARTITION_IDENTITY_NAME = "partition.json"
PARTITION_IDENTITY_FORMAT = 1


class PartitionIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Written once, when the partition is made."""

    topic: str
    topic_uuid: UUID
    partition: int
    created_ms: int
    """Milliseconds since 1970, for people; nothing is decided by it."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition by name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def mark_key(self) -> MarkKey:
        """Key in `durable-marks`."""
        return MarkKey(self.topic_uuid, self.partition)

    @property
    def checksum_seed(self) -> int:
        """CRC-32C that seeds whole-file checksums, so that no file passes for another's."""
        return crc32c(self.topic_uuid.bytes + self.partition.to_bytes(4, "big"))


def save_partition_identity(directory: Directory, identity: PartitionIdentity) -> None:
    """Write the file. Durable when it returns. Raises LogDirFailed, DiskFull."""
    write_state(directory, PARTITION_IDENTITY_NAME, identity, format=PARTITION_IDENTITY_FORMAT)


def load_partition_identity(directory: Directory) -> PartitionIdentity:
    """Read the file.

    Raises:
        DamagedState: both copies are damaged.
        FileMissing: there is none: the directory is not one of a partition.
    """
    return read_state(
        directory, PARTITION_IDENTITY_NAME, PartitionIdentity, format=PARTITION_IDENTITY_FORMAT
    )
