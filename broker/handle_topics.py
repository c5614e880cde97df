"""Create, delete, describe, alter and grow topics, and Metadata.

Owns what a request may ask for: names, counts, settings, caps. Must not know directories: the
steps are those of `broker.topics`.

Invariants:
    U1  What is refused here changed nothing. Names and counts are the registry's to refuse.
    U2  An answer that comes behind its deadline says that the outcome is unknown; the operation
        goes on, and the same request id succeeds once.
"""

import random
from collections.abc import Callable, Mapping

from ringlog.broker.config import BrokerConfig
from ringlog.broker.context import Context
from ringlog.broker.disk_space import NEW_PARTITION_BYTES
from ringlog.broker.error_codes import broker_error
from ringlog.broker.partitions import Partitions, Slot, unknown_topic
from ringlog.broker.shell import Reply, Timer
from ringlog.broker.topic_settings import check_alteration, parse_settings
from ringlog.broker.topics import Ended, Topics, replication_factor_of, settings_of
from ringlog.client.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    LimitExceeded,
    RequestTimedOut,
    StaleTopic,
)
from ringlog.client.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    BrokerEndpoint,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DescribeTopicRequest,
    DescribeTopicResponse,
    Done,
    Message,
    MetadataRequest,
    MetadataResponse,
    PartitionDescription,
    PartitionMetadata,
    TopicMetadata,
)
from ringlog.registry.errors import RegistryError
from ringlog.registry.model import (
    INTERNAL_PREFIX,
    Assignment,
    TopicInfo,
    TopicState,
)

MAX_TIMEOUT_MS = 600_000
REQUEST_ID_BYTES = 16
MAX_AUTO_CREATED = 16
"""Unknown topics that one Metadata request may create."""


class TopicHandlers:
    """One method per request. One per broker."""

    def __init__(self, context: Context, partitions: Partitions, topics: Topics) -> None:
        self._context = context
        self._config: BrokerConfig = context.config
        self._rng: random.Random = context.rng
        self._partitions = partitions
        self._topics = topics
        self._answers: set[_Answer] = set()

    def abandon(self, error: BrokerError) -> None:
        """Answer everything under way with `error` at once."""
        for answer in list(self._answers):
            answer.fail(error)

    # -- create ----------------------------------------------------------------------------

    def create(
        self, request: CreateTopicRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """CreateTopic: answered once the topic is online."""
        del frames
        if len(request.request_id) not in {0, REQUEST_ID_BYTES}:
            raise InvalidRequest(
                f"request_id has {len(request.request_id)} bytes", hint="use 16 random bytes"
            )
        info = self._new_topic(
            request.name,
            request.partitions,
            request.replication_factor,
            request.config,
            request.request_id,
            now_ms,
        )
        answer = self._answer(reply, request.timeout_ms, "create")
        self._topics.create(info, answer.ended(lambda topic: CreateTopicResponse(topic.topic_uuid)))

    def _new_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: dict[str, str],
        request_id: bytes,
        now_ms: int,
    ) -> TopicInfo:
        _refuse_internal(name)
        if replication_factor not in {-1, 1}:
            raise InvalidReplicationFactor(
                f"replication factor {replication_factor} was asked for; broker "
                f"{self._context.broker_id} stands alone and holds 1 replica",
                hint="leave the replication factor out, or start a cluster",
            )
        present = self._context.registry.view().topics.get(name)
        if present is None or present.request_id != request_id:
            self._check_caps(partitions, new_topic=True)
        parse_settings(config, replication_factor=1)
        self._check_batch_size(config)
        self._partitions.check_space(max(0, partitions) * NEW_PARTITION_BYTES)
        return TopicInfo(
            name=name,
            topic_uuid=self._rng.getrandbits(128).to_bytes(16, "big"),
            state=TopicState.CREATING,
            config=dict(config),
            partitions=(Assignment((self._context.broker_id,)),) * partitions,
            created_ms=now_ms,
            request_id=request_id,
        )

    def _check_batch_size(self, config: Mapping[str, str | None]) -> None:
        asked = config.get("max.message.bytes")
        largest = self._config.max_message_bytes
        if asked is not None and int(asked) > largest:
            raise InvalidConfig(
                f"max.message.bytes={asked} does not fit a frame: max_message_bytes of the broker "
                f"is {largest}",
                hint="raise max_message_bytes of the broker first",
            )

    def _check_caps(self, new_partitions: int, *, new_topic: bool) -> None:
        config = self._config
        topics = len(self._context.registry.view().topics)
        if new_topic and topics >= config.max_topics:
            raise LimitExceeded(
                f"the broker has {topics} topics, max_topics is {config.max_topics}",
                hint="delete topics or raise max_topics",
            )
        total = self._partitions.count() + new_partitions
        if total > config.max_partitions:
            raise LimitExceeded(
                f"the broker would have {total} partitions, max_partitions is "
                f"{config.max_partitions}",
                hint="use fewer partitions or raise max_partitions",
            )

    # -- delete, alter, grow ---------------------------------------------------------------

    def delete(
        self, request: DeleteTopicRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """DeleteTopic: answered once nothing of it can be read or written."""
        del frames, now_ms
        _refuse_internal(request.name)
        answer = self._answer(reply, request.timeout_ms, "delete")
        self._topics.delete(request.name, request.topic_uuid, answer.ended(lambda _topic: Done()))

    def alter(
        self, request: AlterTopicRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """AlterTopic: answered once the settings are durable and in force."""
        del frames, now_ms
        _refuse_internal(request.name)
        topic = self._online(request.name)
        check_alteration(
            topic.config, request.config, replication_factor=replication_factor_of(topic)
        )
        self._check_batch_size(request.config)
        answer = self._answer(reply, request.timeout_ms, "alteration")
        self._topics.alter(request.name, request.config, answer.ended(lambda _topic: Done()))

    def add_partitions(
        self, request: AddPartitionsRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """AddPartitions: answered once the new ones are online."""
        del frames, now_ms
        _refuse_internal(request.name)
        topic = self._online(request.name)
        present = sum(not assignment.creating for assignment in topic.partitions)
        if request.total <= present:
            raise InvalidPartitions(
                f"topic {request.name!r} has {present} partitions, {request.total} is not more",
                hint="partitions can be added, never taken away",
            )
        self._check_caps(request.total - present, new_topic=False)
        self._partitions.check_space((request.total - present) * NEW_PARTITION_BYTES)
        answer = self._answer(reply, request.timeout_ms, "growth")
        self._topics.add_partitions(
            request.name,
            request.total,
            self._context.broker_id,
            answer.ended(lambda _topic: Done()),
        )

    # -- describe, metadata ----------------------------------------------------------------

    def describe(
        self, request: DescribeTopicRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """DescribeTopic."""
        del frames, now_ms
        topic = self._present(request.name)
        settings = settings_of(topic)
        hosted = self._partitions.topics.get(request.name)
        slots = hosted.slots if hosted is not None else []
        reply.send(
            DescribeTopicResponse(
                name=topic.name,
                topic_uuid=topic.topic_uuid,
                state=str(topic.state),
                replication_factor=replication_factor_of(topic),
                config=dict(settings.values),
                overrides=sorted(topic.config),
                partitions=[self._description(slot, topic) for slot in slots],
            )
        )

    def metadata(
        self, request: MetadataRequest, frames: list[memoryview], reply: Reply, now_ms: int
    ) -> None:
        """Metadata; with `auto_create_topics` unknown topics asked for by name are created."""
        del frames
        names = request.topics
        if names is not None and self._config.auto_create_topics:
            known = self._context.registry.view().topics
            unknown = [name for name in dict.fromkeys(names) if name not in known]
            if unknown:
                self._auto_create(unknown[:MAX_AUTO_CREATED], names, reply, now_ms)
                return
        self._send_metadata(names, {}, reply)

    def _auto_create(self, unknown: list[str], names: list[str], reply: Reply, now_ms: int) -> None:
        errors: dict[str, BrokerError] = {}
        left = len(unknown)

        def one_done(name: str, error: Exception | None) -> None:
            nonlocal left
            if error is not None:
                errors[name] = broker_error(error)
            left -= 1
            if left == 0 and not reply.done:
                self._send_metadata(names, errors, reply)

        def create(name: str) -> None:
            try:
                info = self._new_topic(name, self._config.default_partitions, -1, {}, b"", now_ms)
            except (BrokerError, RegistryError) as error:
                one_done(name, error)
                return
            self._topics.create(info, lambda _topic, error: one_done(name, error))

        for name in unknown:
            create(name)

    def _send_metadata(
        self, names: list[str] | None, errors: dict[str, BrokerError], reply: Reply
    ) -> None:
        registry = self._context.registry
        topics = registry.view().topics
        if names is None:
            names = [topic.name for topic in topics.values() if not topic.is_internal]
        reply.send(
            MetadataResponse(
                cluster_id=self._context.cluster_id,
                controller_id=registry.controller_id(),
                brokers=[
                    BrokerEndpoint(broker.broker_id, broker.endpoint, broker.rack)
                    for broker in registry.brokers()
                ],
                topics=[self._topic_metadata(name, topics.get(name), errors) for name in names],
            )
        )

    def _topic_metadata(
        self, name: str, topic: TopicInfo | None, errors: dict[str, BrokerError]
    ) -> TopicMetadata:
        hosted = self._partitions.topics.get(name)
        if topic is None or topic.state is not TopicState.ONLINE or hosted is None:
            error = errors.get(name) or unknown_topic(name)
            return TopicMetadata(name, b"", [], error.info())
        return TopicMetadata(
            name,
            topic.topic_uuid,
            [self._partition_metadata(slot, topic) for slot in hosted.slots],
        )

    def _partition_metadata(self, slot: Slot, topic: TopicInfo) -> PartitionMetadata:
        number = slot.identity.partition
        replicas = list(topic.partitions[number].replicas)
        error = slot.failure
        if slot.partition is None or error is not None:
            info = error.info() if error is not None else None
            return PartitionMetadata(number, -1, -1, replicas, info)
        return PartitionMetadata(
            number, self._context.broker_id, slot.partition.leader_epoch, replicas
        )

    def _description(self, slot: Slot, topic: TopicInfo) -> PartitionDescription:
        number = slot.identity.partition
        replicas = list(topic.partitions[number].replicas)
        error = slot.failure
        partition = slot.partition
        if partition is None or error is not None:
            info = error.info() if error is not None else None
            return PartitionDescription(number, -1, -1, replicas, -1, -1, -1, 0, info)
        log = partition.log
        return PartitionDescription(
            partition=number,
            leader=self._context.broker_id,
            leader_epoch=partition.leader_epoch,
            replicas=replicas,
            log_start=log.log_start,
            high_watermark=partition.high_watermark,
            log_end=log.end.offset,
            size_bytes=log.size_bytes,
        )

    # -- shared ----------------------------------------------------------------------------

    def _present(self, name: str) -> TopicInfo:
        topic = self._context.registry.view().topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    def _online(self, name: str) -> TopicInfo:
        topic = self._present(name)
        if topic.state is not TopicState.ONLINE:
            raise StaleTopic(f"topic {name!r} is {topic.state}", hint="try again when it is online")
        return topic

    def _answer(self, reply: Reply, timeout_ms: int, what: str) -> "_Answer":
        if timeout_ms < 0:
            raise InvalidRequest(f"timeout_ms is {timeout_ms}", hint="use 0 or more")
        answer = _Answer(reply, what, self._answers)
        shell = self._context.shell
        deadline_ms = shell.monotonic_ms() + min(timeout_ms, MAX_TIMEOUT_MS)
        answer.timer = shell.call_at(deadline_ms, answer.expired)
        return answer


class _Answer:
    """The answer to one operation: its result, or that its deadline has passed (U2)."""

    __slots__ = ("_open", "_reply", "_what", "timer")

    def __init__(self, reply: Reply, what: str, open_answers: "set[_Answer]") -> None:
        """Be one of `open_answers` until it is given."""
        self._reply = reply
        self._what = what
        self._open = open_answers
        self._open.add(self)
        self.timer: Timer | None = None

    def ended(self, body: Callable[[TopicInfo], Message]) -> Ended:
        """Return what the operation calls; `body` makes the answer from the topic."""

        def end(topic: TopicInfo | None, error: Exception | None) -> None:
            if self not in self._open:
                return
            if topic is None:
                assert error is not None, "an operation gives a topic or an error"
                self.fail(broker_error(error))
            else:
                self._close()
                self._reply.send(body(topic))

        return end

    def expired(self) -> None:
        """The deadline has come; the operation goes on."""
        self.fail(
            RequestTimedOut(
                f"the {self._what} of the topic did not end in time; the outcome is unknown",
                hint="send the request again, a create with the same request_id",
            )
        )

    def fail(self, error: BrokerError) -> None:
        """Answer with an error."""
        self._close()
        self._reply.fail(error)

    def _close(self) -> None:
        self._open.discard(self)
        if self.timer is not None:
            self.timer.cancel()


def _refuse_internal(name: str) -> None:
    if name.startswith(INTERNAL_PREFIX):
        raise InvalidTopicName(
            f"names that begin with {INTERNAL_PREFIX!r} are the broker's own: {name!r}",
            hint="choose another name",
        )
