"""Who leads what, as far as this client knows.

Owns the cache of brokers and topics. Must not know connections or requests: the
session asks for metadata and applies the answers.

Invariants:
    D1  Lookups cost O(1), whatever the number of topics.
    D2  An answer replaces a topic whole; a leader of an older epoch never replaces a newer one
        of the same topic UUID.
    D3  A topic that a broker says does not exist is forgotten, so nothing is routed by a ghost.
    D4  What the cache says against a partition is believed when a broker said it after somebody
        came to ask: an older word may be about damage that was repaired since.
"""

from typing import NamedTuple

from ringlog.client.errors import BrokerError, ErrorCode, ErrorInfo, error_from
from ringlog.client.messages import MetadataResponse, PartitionMetadata, TopicMetadata

NO_LEADER = -1


class PartitionView(NamedTuple):
    """One partition: `leader` is a broker id, or NO_LEADER with `error` saying why."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    error: ErrorInfo | None = None


class TopicView(NamedTuple):
    """One topic; partition p is `partitions[p]`."""

    name: str
    topic_uuid: bytes
    partitions: tuple[PartitionView, ...]


class BrokerView(NamedTuple):
    """One broker and the address it advertises."""

    broker_id: int
    endpoint: str
    rack: str


class SecondLook:
    """One user's way to D4: the first view it meets is not believed, the next one is."""

    __slots__ = ("_first", "_has_looked")

    def __init__(self) -> None:
        self._has_looked = False
        self._first: TopicView | None = None

    def believes(self, view: TopicView | None) -> bool:
        """Whether `view` was learned after the first call."""
        if not self._has_looked:
            self._has_looked, self._first = True, view
        return view is not self._first

    def forget(self) -> None:
        """Begin anew."""
        self._has_looked = False


class MetadataCache:
    """The newest metadata. One thread owns it; views it hands out are immutable."""

    __slots__ = ("_brokers", "_missing", "_topics", "cluster_id", "controller_id")

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        self._brokers: dict[int, BrokerView] = {}
        self._topics: dict[str, TopicView] = {}
        self._missing: dict[str, ErrorInfo] = {}

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        """Every broker known, by id."""
        return tuple(self._brokers[broker_id] for broker_id in sorted(self._brokers))

    @property
    def names(self) -> tuple[str, ...]:
        """Every topic known."""
        return tuple(self._topics)

    def endpoint(self, broker_id: int) -> str | None:
        """The address a broker advertises."""
        broker = self._brokers.get(broker_id)
        return None if broker is None else broker.endpoint

    def topic(self, name: str) -> TopicView | None:
        """A topic, when known."""
        return self._topics.get(name)

    def missing(self, name: str) -> ErrorInfo | None:
        """What the newest answer said about a topic that does not exist; None: it may exist."""
        return self._missing.get(name)

    def leader(self, topic: str, partition: int) -> int:
        """Broker id of a partition's leader, or NO_LEADER when unknown."""
        view = self._topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return NO_LEADER
        return view.partitions[partition].leader

    def trouble(self, topic: str, partition: int) -> BrokerError | None:
        """Why a partition has no leader, as a broker said it; None when nobody has said."""
        view = self._topics.get(topic)
        if view is None or not 0 <= partition < len(view.partitions):
            return None
        row = view.partitions[partition]
        return error_from(row.error) if row.leader == NO_LEADER and row.error else None

    def refusal(self, topic: str, partition: int, look: SecondLook) -> BrokerError | None:
        """The trouble of a partition when waiting does not mend it, and it is believed (D4)."""
        believed = look.believes(self._topics.get(topic))
        error = self.trouble(topic, partition)
        return error if believed and error is not None and not error.retriable else None

    def apply(self, response: MetadataResponse) -> None:
        """Take over an answer."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self._brokers = {
                broker.broker_id: BrokerView(broker.broker_id, broker.endpoint, broker.rack)
                for broker in response.brokers
            }
        for topic in response.topics:
            self._apply_topic(topic)

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic, also that it is missing; the next lookup asks again."""
        self._topics.pop(topic, None)
        self._missing.pop(topic, None)

    def _apply_topic(self, topic: TopicMetadata) -> None:
        if topic.error is not None:
            if topic.error.code == ErrorCode.UNKNOWN_TOPIC:
                self.forget(topic.name)
                self._missing[topic.name] = topic.error
            return
        self._missing.pop(topic.name, None)
        old = self._topics.get(topic.name)
        same = old is not None and old.topic_uuid == topic.topic_uuid
        before = old.partitions if old is not None and same else ()
        rows = sorted(topic.partitions, key=lambda row: row.partition)
        self._topics[topic.name] = TopicView(
            topic.name,
            topic.topic_uuid,
            tuple(_newer(before, index, row) for index, row in enumerate(rows)),
        )


def _newer(before: tuple[PartitionView, ...], index: int, row: PartitionMetadata) -> PartitionView:
    view = PartitionView(row.leader, row.leader_epoch, tuple(row.replicas), row.error)
    if index < len(before) and before[index].leader_epoch > view.leader_epoch:
        return before[index]
    return view
