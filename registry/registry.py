"""The protocol between a broker and whatever remembers topics and brokers.

Owns the contract only. `standalone` implements it with a file; a cluster's registry keeps the
same contract over a service.

Invariants:
    G1  `view` never waits, may be called from any thread, and gives an immutable value. A
        handler takes it once, so that it does not see half of a change.
    G2  A change method waits (call it on a worker). It returns after the change is durable and
        visible in `view`; before that nobody sees it.
    G3  A refused change changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ringlog.registry.model import Assignment, BrokerInfo, RegistryState, TopicInfo


class Registry(Protocol):
    """Topics and brokers. Every change method raises RegistryError or StorageError.

    Only a refusal (RegistryError) leaves the broker going; a StorageError means that the state
    could not be kept and is fatal. An empty `topic_uuid` means "whatever has this name now".
    """

    def view(self) -> RegistryState:
        """The state as of the last durable change."""

    def brokers(self) -> Sequence[BrokerInfo]:
        """Brokers that are alive, by id."""

    def controller_id(self) -> int:
        """Broker that administers topics; -1 when nobody does."""

    def create_topic(self, topic: TopicInfo) -> TopicInfo:
        """Add a topic in state `creating`. A repeated request id gives the topic made first."""

    def set_online(self, name: str, topic_uuid: bytes) -> TopicInfo:
        """All partitions, added ones too, are durable on all replicas."""

    def alter_topic(
        self, name: str, topic_uuid: bytes, changes: Mapping[str, str | None]
    ) -> TopicInfo:
        """Set settings, or with None take them back. Values were checked by the caller."""

    def add_partitions(
        self, name: str, topic_uuid: bytes, added: Sequence[Assignment]
    ) -> TopicInfo:
        """Append partitions, `creating` until `set_online`."""

    def mark_deleting(self, name: str, topic_uuid: bytes) -> TopicInfo:
        """Take a topic out of use. Its name is free after `remove_topic`."""

    def remove_topic(self, name: str, topic_uuid: bytes) -> None:
        """Forget a topic whose directories are gone."""
