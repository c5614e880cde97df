"""The words every layer shares: offsets, epochs, positions, topic partitions.

Owns names only. Must not know files, sockets or any rule that needs more than arithmetic.

Invariants:
    T1  Offsets are counts of records since the partition was made; every end is exclusive.
    T2  A `Position` orders by offset first, then by number of own entries (raft-log order).

Source: Raft log layout of ringlog (docs/ARCHITECTURE.md, "The log"); names from Kafka.
"""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""Number of a record in its partition, from 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Raft term under which a batch was appended. `replication` calls the same number term."""

ProducerId = NewType("ProducerId", int)
"""63-bit id of an idempotent producer; `NO_PRODUCER_ID` when the batch has none."""

BrokerId = NewType("BrokerId", int)
"""Address of a broker within its cluster; data directories, not broker ids, hold votes."""

NO_PRODUCER_ID = ProducerId(-1)
NO_TIMESTAMP = -1
"""Timestamp of a record that carries none, in milliseconds since 1970."""

Buffer = bytes | bytearray | memoryview
"""Contiguous bytes, item size 1."""

MAX_TOPIC_NAME_LENGTH = 249


class Position(NamedTuple):
    """A place between entries of a partition's Raft log.

    `offset` is the next offset, `own` the number of own entries before this place since the
    partition was made, those no longer kept included. Tuple order is log order.
    """

    offset: Offset
    own: int


LOG_BEGIN = Position(Offset(0), 0)


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's spelling, also the name of the partition's directory."""
        return f"{self.topic}-{self.partition}"
