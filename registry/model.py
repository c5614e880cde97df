"""The registry's state as a value, and every change of it as a pure function.

Owns which topics exist, in which state, with which settings and assignment. Must not know
where the state is kept: `registry.standalone` keeps it in a file.

Invariants:
    R1  Names are unique after folding case and "." to "_", so that no two topics share a
        directory on any file system, nor a metric's name.
    R2  A topic's UUID never changes. A change that names another UUID is refused.
    R3  creating -> online -> deleting -> gone; deleting may follow creating. Nothing goes back.
    R4  A state value is never changed in place; each change gives a new one.
    R5  The same non-empty request id creates a topic once, however often it is sent.

Topic life (a partition that `add_partitions` appends is `creating` inside an online topic):

    | state    | create (same request) | set_online | alter, add | mark_deleting | remove |
    |----------|-----------------------|------------|------------|---------------|--------|
    | absent   | creating              | missing    | missing    | missing       | absent |
    | creating | creating              | online     | creating   | deleting      | absent |
    | online   | online                | online     | online     | deleting      | absent |
    | deleting | exists                | missing    | missing    | deleting      | absent |
"""

import enum
import re
from collections.abc import Mapping, Sequence

import msgspec

from ringlog.registry.errors import (
    BadPartitionCount,
    BadTopicName,
    TopicExists,
    TopicMissing,
    TopicReplaced,
)
from ringlog.storage.types import MAX_TOPIC_NAME_LENGTH

INTERNAL_PREFIX = "__"
"""Topics of the broker itself begin so; users cannot make or list them."""

_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


class TopicState(enum.StrEnum):
    """Where a topic is in its life."""

    CREATING = "creating"
    ONLINE = "online"
    DELETING = "deleting"


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker as its clients see it. `endpoint` is `host:port`, as advertised."""

    broker_id: int
    endpoint: str
    rack: str = ""


class Assignment(msgspec.Struct, frozen=True):
    """Who holds one partition. The first of `replicas` (broker ids) is the preferred leader."""

    replicas: tuple[int, ...]
    generation: int = 0
    creating: bool = False
    """Added to an online topic and not yet durable on each replica."""


class TopicInfo(msgspec.Struct, frozen=True):
    """One topic. `config` holds only what was set by hand; `partitions[i]` is partition i."""

    name: str
    topic_uuid: bytes
    state: TopicState
    config: dict[str, str]
    partitions: tuple[Assignment, ...]
    created_ms: int
    request_id: bytes = b""

    @property
    def is_internal(self) -> bool:
        """Whether the broker made it for itself."""
        return self.name.startswith(INTERNAL_PREFIX)


class RegistryState(msgspec.Struct, frozen=True):
    """Everything the registry knows, at one moment. `version` grows by one with each change."""

    version: int = 0
    topics: dict[str, TopicInfo] = {}


def check_topic_name(name: str) -> None:
    """Refuse a name that is no topic name. Raises BadTopicName."""
    if not name or len(name) > MAX_TOPIC_NAME_LENGTH:
        raise BadTopicName(
            f"a topic name has 1 to {MAX_TOPIC_NAME_LENGTH} characters, this one {len(name)}"
        )
    if name in {".", ".."} or _NAME.fullmatch(name) is None:
        raise BadTopicName(
            f"{name!r} is no topic name",
            hint="use letters, digits, '.', '_' and '-' only (and neither '.' nor '..')",
        )


def folded_name(name: str) -> str:
    """What two topic names must not have in common (R1)."""
    return name.lower().replace(".", "_")


def create_topic(state: RegistryState, topic: TopicInfo) -> RegistryState:
    """Add a topic in state `creating`; the same state again for a request seen before (R5).

    Raises:
        BadTopicName: see `check_topic_name`.
        BadPartitionCount: no partition.
        TopicExists: the name or one that collides with it is taken.
    """
    assert topic.state is TopicState.CREATING, "R3: a topic starts in creating"
    assert len(topic.topic_uuid) == 16, "a topic UUID has 16 bytes"
    check_topic_name(topic.name)
    if not topic.partitions:
        raise BadPartitionCount("a topic has at least one partition")
    present = state.topics.get(topic.name)
    if present is not None:
        _check_same_request(present, topic)
        return state
    folded = folded_name(topic.name)
    for other in state.topics:
        if folded_name(other) == folded:
            raise TopicExists(
                f"topic {topic.name!r} collides with {other!r}: names that differ only in case, "
                f"or in '.' against '_', are the same"
            )
    return _replaced(state, topic)


def set_online(state: RegistryState, name: str, topic_uuid: bytes) -> RegistryState:
    """All partitions are durable on all replicas. Raises TopicMissing, TopicReplaced."""
    topic = _living(state, name, topic_uuid)
    partitions = tuple(
        msgspec.structs.replace(assignment, creating=False) for assignment in topic.partitions
    )
    return _replaced(
        state, msgspec.structs.replace(topic, state=TopicState.ONLINE, partitions=partitions)
    )


def alter_topic(
    state: RegistryState, name: str, topic_uuid: bytes, changes: Mapping[str, str | None]
) -> RegistryState:
    """Set settings, or with None take them back. Raises TopicMissing, TopicReplaced."""
    topic = _living(state, name, topic_uuid)
    config = {key: value for key, value in topic.config.items() if key not in changes}
    config.update((key, value) for key, value in changes.items() if value is not None)
    return _replaced(state, msgspec.structs.replace(topic, config=config))


def add_partitions(
    state: RegistryState, name: str, topic_uuid: bytes, added: Sequence[Assignment]
) -> RegistryState:
    """Append partitions, each `creating` until `set_online`.

    Raises:
        TopicMissing, TopicReplaced: no such topic.
        BadPartitionCount: nothing to add.
    """
    topic = _living(state, name, topic_uuid)
    if not added:
        raise BadPartitionCount(
            f"topic {name!r} has {len(topic.partitions)} partitions; the new total must be larger"
        )
    partitions = topic.partitions + tuple(
        msgspec.structs.replace(assignment, creating=True) for assignment in added
    )
    return _replaced(state, msgspec.structs.replace(topic, partitions=partitions))


def mark_deleting(state: RegistryState, name: str, topic_uuid: bytes) -> RegistryState:
    """Take a topic out of use; its name is free after `remove_topic`.

    Raises TopicMissing, TopicReplaced; marking twice is no error.
    """
    topic = _present(state, name, topic_uuid)
    return _replaced(state, msgspec.structs.replace(topic, state=TopicState.DELETING))


def remove_topic(state: RegistryState, name: str, topic_uuid: bytes) -> RegistryState:
    """Forget a topic whose directories are gone. No error when it is forgotten already."""
    present = state.topics.get(name)
    if present is None or present.topic_uuid != topic_uuid:
        return state
    topics = {key: value for key, value in state.topics.items() if key != name}
    return msgspec.structs.replace(state, version=state.version + 1, topics=topics)


def _replaced(state: RegistryState, topic: TopicInfo) -> RegistryState:
    topics = {**state.topics, topic.name: topic}
    return msgspec.structs.replace(state, version=state.version + 1, topics=topics)


def _check_same_request(present: TopicInfo, asked: TopicInfo) -> None:
    if present.state is TopicState.DELETING:
        raise TopicExists(
            f"topic {present.name!r} is still being deleted", hint="try again in a moment"
        )
    if not asked.request_id or present.request_id != asked.request_id:
        raise TopicExists(
            f"topic {present.name!r} exists",
            hint=f"ringlog topic describe {present.name} shows it",
        )


def _present(state: RegistryState, name: str, topic_uuid: bytes) -> TopicInfo:
    topic = state.topics.get(name)
    if topic is None:
        raise TopicMissing(f"topic {name!r} does not exist", hint="ringlog topic list shows all")
    if topic_uuid and topic.topic_uuid != topic_uuid:
        raise TopicReplaced(
            f"topic {name!r} was deleted and made again", hint="look the topic up again"
        )
    return topic


def _living(state: RegistryState, name: str, topic_uuid: bytes) -> TopicInfo:
    topic = _present(state, name, topic_uuid)
    if topic.state is TopicState.DELETING:
        raise TopicMissing(f"topic {name!r} is being deleted")
    return topic
