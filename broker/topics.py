"""The life of topics on this broker: create, delete, alter, grow, and what a start finds.

Owns the order between registry and directories. Must not know requests or what is in a log.

    create   registry: creating -> directories durable -> registry: online -> served
    delete   registry: deleting -> served no more -> directories put aside -> registry: gone
             -> bytes removed in the background
    start    deleting: finish; creating: make again from nothing; online: open

Invariants:
    T1  A topic is served only while the registry holds it as online.
    T2  A step begins only after the one before it is durable, so that a stop between any two
        leaves what a start can finish.
    T3  One operation at a time (`broker.admin_queue`).
    T4  A create that fails is taken back; only what the registry refused is left alone.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from ringlog.broker.admin_queue import AdminQueue
from ringlog.broker.error_codes import broker_error
from ringlog.broker.partitions import HostedTopic, Partitions, Slot, identity_of
from ringlog.broker.shell import Shell
from ringlog.broker.topic_settings import TopicSettings, parse_settings, weakness
from ringlog.client.errors import UnknownTopic
from ringlog.registry.model import Assignment, TopicInfo, TopicState
from ringlog.registry.registry import Registry
from ringlog.storage.errors import DiskFull, StorageError
from ringlog.storage.types import TopicPartition

R = TypeVar("R")
Ended = Callable[[TopicInfo | None, Exception | None], None]
"""Called with the topic as it is now, or with an error."""

_log = logging.getLogger(__name__)


class Topics:
    """One per broker, on the reactor thread."""

    def __init__(self, shell: Shell, registry: Registry, partitions: Partitions) -> None:
        self.queue = AdminQueue()
        self._shell = shell
        self._registry = registry
        self._partitions = partitions

    # -- start -----------------------------------------------------------------------------

    def start(self, on_done: Callable[[Exception | None], None]) -> None:
        """Open what the registry names and finish what a stop cut short."""
        topics = list(self._registry.view().topics.values())
        left = len(topics) + 2
        failure: Exception | None = None

        def one_done(error: Exception | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if left == 0:
                on_done(failure)

        def named(strangers: list[str] | None, error: Exception | None) -> None:
            for name in strangers or ():
                _log.warning(
                    "%s holds a partition that the registry does not list: it is left alone, and "
                    "nobody reads it; restore registry.json, or move the directory away",
                    name,
                )
            one_done(error)

        known = frozenset(
            str(TopicPartition(topic.name, number))
            for topic in topics
            for number in range(len(topic.partitions))
        )
        self._shell.run(lambda: self._partitions.files.strangers(known), named)
        for topic in topics:
            match topic.state:
                case TopicState.DELETING:
                    self._finish_delete(topic, one_done)
                case TopicState.CREATING:
                    self._create_partitions(topic, lambda _topic, error: one_done(error))
                case TopicState.ONLINE:
                    self._open_online(topic, one_done)
        self._shell.run(self._partitions.files.remove_deleted, lambda _none, error: one_done(error))

    def _open_online(self, topic: TopicInfo, on_done: Callable[[Exception | None], None]) -> None:
        hosted = self._hosted(topic)
        self._partitions.topics[topic.name] = hosted
        weak = weakness(topic.name, hosted.settings)
        if weak:
            _log.warning("%s", weak)
        kept = [i for i, assignment in enumerate(topic.partitions) if not assignment.creating]
        slots = [hosted.slots[i] for i in kept]

        def opened(error: Exception | None) -> None:
            if error is None and len(kept) < len(topic.partitions):
                self._grow(topic, lambda _topic, failure: on_done(failure))
            else:
                on_done(error)

        # Slots that are still creating come with `_grow`.
        del hosted.slots[len(kept) :]
        self._partitions.open(hosted, slots, create=False, on_done=opened)

    # -- operations ------------------------------------------------------------------------

    def create(self, topic: TopicInfo, ended: Ended) -> None:
        """Create a topic in state `creating`; a repeated request id gives the one made first."""

        def operation(done: Callable[[], None]) -> None:
            def registered(made: TopicInfo | None, error: Exception | None) -> None:
                if made is None or made.state is TopicState.ONLINE:
                    finish(made, error)
                else:
                    self._create_partitions(made, finish)

            finish = _both(ended, done)
            self._change(lambda: self._registry.create_topic(topic), registered)

        self.queue.add(operation)

    def delete(self, name: str, topic_uuid: bytes, ended: Ended) -> None:
        """Delete a topic: nothing of it can be read or written when `ended` is called."""

        def operation(done: Callable[[], None]) -> None:
            def marked(topic: TopicInfo | None, error: Exception | None) -> None:
                if topic is None:
                    finish(None, error)
                else:
                    self._finish_delete(
                        topic, lambda failure: finish(topic if failure is None else None, failure)
                    )

            finish = _both(ended, done)
            self._change(lambda: self._registry.mark_deleting(name, topic_uuid), marked)

        self.queue.add(operation)

    def alter(self, name: str, changes: Mapping[str, str | None], ended: Ended) -> None:
        """Put changed settings, checked by the caller, in force."""

        def operation(done: Callable[[], None]) -> None:
            def altered(topic: TopicInfo | None, error: Exception | None) -> None:
                hosted = self._partitions.topics.get(name)
                if topic is not None and hosted is not None:
                    before = weakness(name, hosted.settings)
                    hosted.settings = settings = settings_of(topic)
                    _note_alteration(name, changes)
                    weak = weakness(name, settings)
                    if weak and weak != before:
                        _log.warning("%s", weak)
                    for slot in hosted.slots:
                        if slot.partition is not None:
                            slot.partition.alter(settings)
                finish(topic, error)

            finish = _both(ended, done)
            self._change(lambda: self._registry.alter_topic(name, b"", changes), altered)

        self.queue.add(operation)

    def add_partitions(self, name: str, total: int, broker_id: int, ended: Ended) -> None:
        """Grow a topic to `total` partitions; one that was cut short by a failure goes on."""

        def operation(done: Callable[[], None]) -> None:
            def added(topic: TopicInfo | None, error: Exception | None) -> None:
                if topic is None:
                    finish(None, error)
                else:
                    self._grow(topic, finish)

            finish = _both(ended, done)
            present = self._registry.view().topics.get(name)
            count = len(present.partitions) if present is not None else 0
            if present is not None and count == total and present.partitions[-1].creating:
                self._grow(present, finish)
                return
            new = [Assignment((broker_id,))] * max(0, total - count)
            self._change(lambda: self._registry.add_partitions(name, b"", new), added)

        self.queue.add(operation)

    # -- steps -----------------------------------------------------------------------------

    def _create_partitions(self, topic: TopicInfo, ended: Ended) -> None:
        hosted = self._hosted(topic)

        def opened(error: Exception | None) -> None:
            if error is None:
                self._change(
                    lambda: self._registry.set_online(topic.name, topic.topic_uuid), online
                )
            else:
                undo(error)

        def online(made: TopicInfo | None, error: Exception | None) -> None:
            if made is None:
                assert error is not None, "a change gives a topic or an error"
                undo(error)
                return
            self._partitions.topics[topic.name] = hosted
            _log.info("topic %s created, partitions: %d", topic.name, len(topic.partitions))
            weak = weakness(topic.name, hosted.settings)
            if weak:
                _log.warning("%s", weak)
            ended(made, None)

        def undo(error: Exception) -> None:
            # Whoever asked gets the error that came first; a start finishes what fails here.
            self._partitions.topics[topic.name] = hosted
            self._change(
                lambda: self._registry.mark_deleting(topic.name, topic.topic_uuid),
                lambda marked, _error: self._finish_delete(
                    marked or topic, lambda _failure: ended(None, error)
                ),
            )

        self._partitions.open(hosted, hosted.slots, create=True, on_done=opened)

    def _grow(self, topic: TopicInfo, ended: Ended) -> None:
        hosted = self._partitions.topics[topic.name]
        new = [
            Slot(identity_of(topic.name, topic.topic_uuid, number, topic.created_ms))
            for number in range(len(hosted.slots), len(topic.partitions))
        ]

        def opened(error: Exception | None) -> None:
            if error is not None:
                undo(error)
                return
            self._change(lambda: self._registry.set_online(topic.name, topic.topic_uuid), online)

        def online(grown: TopicInfo | None, error: Exception | None) -> None:
            if grown is None:
                assert error is not None, "a change gives a topic or an error"
                undo(error)
                return
            hosted.slots.extend(new)
            _log.info("topic %s grew, partitions: %d", topic.name, len(hosted.slots))
            ended(grown, None)

        def undo(error: Exception) -> None:
            # The next attempt opens these directories again: no two logs may have one.
            self._partitions.drop(new, broker_error(error), lambda: ended(None, error))

        self._partitions.open(hosted, new, create=True, on_done=opened)

    def _finish_delete(self, topic: TopicInfo, on_done: Callable[[Exception | None], None]) -> None:
        hosted = self._partitions.topics.get(topic.name)
        in_memory = (hosted or self._hosted(topic)).settings.in_memory
        identities = [
            identity_of(topic.name, topic.topic_uuid, number, topic.created_ms)
            for number in range(len(topic.partitions))
        ]
        files = self._partitions.files

        def forget() -> TopicInfo:
            for identity in identities:
                files.put_aside(identity, in_memory=in_memory)
            self._registry.remove_topic(topic.name, topic.topic_uuid)
            return topic

        def remove() -> None:
            for identity in identities:
                files.remove_aside(identity, in_memory=in_memory)

        def forgotten(_topic: TopicInfo | None, error: Exception | None) -> None:
            if error is None:
                _log.info("topic %s deleted", topic.name)
                self._shell.run(remove, _note_removal)
            on_done(error)

        self._partitions.close_topic(
            topic.name,
            UnknownTopic(f"topic {topic.name!r} was deleted"),
            lambda: self._change(forget, forgotten),
        )

    def _change(
        self, fn: Callable[[], R], on_done: Callable[[R | None, Exception | None], None]
    ) -> None:
        """Run a durable change on a worker. What could not be kept ends the broker."""

        def changed(result: R | None, error: Exception | None) -> None:
            if isinstance(error, StorageError) and not isinstance(error, DiskFull):
                self._shell.fatal(error)
            on_done(result, error)

        self._shell.run(fn, changed)

    def _hosted(self, topic: TopicInfo) -> HostedTopic:
        hosted = HostedTopic(topic.name, topic.topic_uuid, settings_of(topic))
        hosted.slots = [
            Slot(identity_of(topic.name, topic.topic_uuid, number, topic.created_ms))
            for number in range(len(topic.partitions))
        ]
        return hosted


def settings_of(topic: TopicInfo) -> TopicSettings:
    """Settings in force for a topic of the registry."""
    return parse_settings(topic.config, replication_factor=replication_factor_of(topic))


def replication_factor_of(topic: TopicInfo) -> int:
    """Replicas of each of its partitions."""
    return len(topic.partitions[0].replicas)


def _both(ended: Ended, done: Callable[[], None]) -> Ended:
    def finish(topic: TopicInfo | None, error: Exception | None) -> None:
        ended(topic, error)
        done()

    return finish


def _note_alteration(name: str, changes: Mapping[str, str | None]) -> None:
    told = ", ".join(
        f"{key} back to its default" if value is None else f"{key}={value}"
        for key, value in changes.items()
    )
    _log.info("topic %s altered: %s", name, told)


def _note_removal(_result: object, error: Exception | None) -> None:
    if error is not None:
        _log.warning("a deleted partition's files are still there; a start removes them: %s", error)
