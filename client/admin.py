"""`Admin`: topics, partitions and brokers, one blocking call each.

Owns the public shape of administration and what a retry after a lost answer means for each
call. Must not know sockets: `connection` sends and waits.

Invariants:
    A1  Every call ends within `request_timeout_ms` with a result or a named error.
    A2  A retry never does a thing twice, and never fails because the first attempt succeeded.
    A3  When a call that changes something ends without an answer, the error says that it may
        have been carried out.
"""

import os
import types
from collections.abc import Mapping, Sequence
from typing import Self, TypeAlias, TypeVar

import msgspec

from ringlog.client.arguments import topic_name
from ringlog.client.config import (
    ClientConfig,
    bootstrap_addresses,
    check_number,
    check_text,
    parse_address,
)
from ringlog.client.connection import Client
from ringlog.client.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidPartitions,
    OutcomeUnknown,
    RinglogError,
    UnknownTopic,
    error_from,
)
from ringlog.client.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicRequest,
    DescribeBrokerRequest,
    DescribeBrokerResponse,
    DescribeTopicRequest,
    DescribeTopicResponse,
    Done,
    Message,
    MetadataRequest,
    MetadataResponse,
    TopicMetadata,
)
from ringlog.client.requests import (
    ANY_BROKER,
    Answer,
    AtAddress,
    AtBroker,
    AtLeader,
    Route,
)

M = TypeVar("M", bound=Message)

CLUSTER_DEFAULT = -1
HIGH_WATERMARK = -1
"""`before_offset` of `delete_records`: everything that is committed now."""

PARTITION_MS = 50
"""How much longer a call may take for each partition that it makes."""

_MAX_INT32 = 2**31 - 1
_Change: TypeAlias = (
    CreateTopicRequest
    | AlterTopicRequest
    | DeleteTopicRequest
    | AddPartitionsRequest
    | DeleteRecordsRequest
)


class CreatedTopic(msgspec.Struct, frozen=True):
    """A topic that is online."""

    name: str
    topic_uuid: bytes
    partitions: int


class PartitionInfo(msgspec.Struct, frozen=True):
    """One partition. `log_end` and `high_watermark` are exclusive; sizes in bytes."""

    partition: int
    leader: int
    """Broker id, -1: nobody; then `error` says why."""
    leader_epoch: int
    replicas: tuple[int, ...]
    log_start: int
    high_watermark: int
    log_end: int
    size_bytes: int
    error: RinglogError | None = None


class TopicInfo(msgspec.Struct, frozen=True):
    """One topic in full."""

    name: str
    topic_uuid: bytes
    state: str
    replication_factor: int
    config: Mapping[str, str]
    """Every setting with the value in force."""
    overrides: tuple[str, ...]
    """Settings that were set by hand."""
    partitions: tuple[PartitionInfo, ...]


class BrokerInfo(msgspec.Struct, frozen=True):
    """One broker and the address it advertises."""

    broker_id: int
    endpoint: str
    rack: str


class ClusterInfo(msgspec.Struct, frozen=True):
    """The brokers, and which of them is the controller (a broker id, -1: none)."""

    cluster_id: str
    controller: int
    brokers: tuple[BrokerInfo, ...]


class Admin:
    """Administration of a broker or cluster. Thread-safe; usable as a context manager."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        client_id: str = "ringlog-admin",
        request_timeout_ms: int = 30_000,
        bootstrap_timeout_ms: int = 10_000,
        connect_timeout_ms: int = 5_000,
    ) -> None:
        """Nothing is sent before the first call.

        Args:
            bootstrap_servers: list of `host:port`, or one string with commas; None takes
                `RINGLOG_BOOTSTRAP_SERVERS`, then 127.0.0.1:5555.
            client_id: name for the broker's logs.
            request_timeout_ms: whole time of a call, retries included.
            bootstrap_timeout_ms: time after which the first call gives up on finding a broker.
            connect_timeout_ms: time for one attempt to connect.

        Raises:
            InvalidArgument: an address or number that no client can use.
        """
        self._client = Client(
            ClientConfig(
                bootstrap_addresses(bootstrap_servers, os.environ),
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                bootstrap_timeout_ms=bootstrap_timeout_ms,
                connect_timeout_ms=connect_timeout_ms,
            )
        )
        self._timeout_ms = request_timeout_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back. Idempotent."""
        self._client.close(timeout=5)

    # -- topics -----------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> CreatedTopic:
        """Make a topic; returns once it is online.

        Args:
            name: 1 to 249 of `[A-Za-z0-9._-]`.
            partitions: how many.
            replication_factor: None is 3, or all brokers where there are fewer.
            config: topic settings, dotted as in Kafka, such as `retention.ms`.

        Raises:
            TopicExists, InvalidTopicName, InvalidConfig, InvalidPartitions,
            InvalidReplicationFactor, DeadlineExceeded, NoBrokerReachable.
        """
        check_number("partitions", partitions, 1, _MAX_INT32)
        if replication_factor is None:
            replication_factor = CLUSTER_DEFAULT
        else:
            check_number("replication_factor", replication_factor, 1, 32_767)
        body = CreateTopicRequest(
            topic_name(name),
            partitions,
            replication_factor,
            {key: _setting(key, value) for key, value in (config or {}).items()},
            os.urandom(16),
            self._timeout_for(partitions),
        )
        created = self._change(ANY_BROKER, body).expect(CreateTopicResponse)
        return CreatedTopic(name, created.topic_uuid, partitions)

    def list_topics(self) -> list[str]:
        """Names of all topics but internal ones, sorted."""
        found = self._ask(ANY_BROKER, MetadataRequest(None)).expect(MetadataResponse)
        return sorted(topic.name for topic in found.topics)

    def describe_topic(self, name: str) -> TopicInfo:
        """Settings and partitions of a topic. Raises UnknownTopic."""
        body = DescribeTopicRequest(topic_name(name))
        return _topic_info(self._ask(ANY_BROKER, body).expect(DescribeTopicResponse))

    def alter_topic(self, name: str, config: Mapping[str, object]) -> None:
        """Change settings; None takes a setting back to its default.

        Raises:
            UnknownTopic, InvalidConfig.
        """
        changes = {
            check_text("setting name", key): None if value is None else _setting(key, value)
            for key, value in config.items()
        }
        body = AlterTopicRequest(topic_name(name), changes, self._timeout_ms)
        self._change(ANY_BROKER, body).expect(Done)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises UnknownTopic."""
        topic = self._metadata(name)
        answer = self._change(
            ANY_BROKER, DeleteTopicRequest(name, topic.topic_uuid, self._timeout_ms)
        )
        if isinstance(answer.error, UnknownTopic) and answer.lost:
            # It was there above, and an attempt went unanswered: that one deleted it.
            return
        answer.expect(Done)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions. Keys move: see the partitioners.

        Raises:
            UnknownTopic, InvalidPartitions: `total` is not larger than the present number.
        """
        check_number("total", total, 1, _MAX_INT32)
        body = AddPartitionsRequest(topic_name(name), total, self._timeout_for(total))
        answer = self._change(ANY_BROKER, body)
        grown = isinstance(answer.error, InvalidPartitions) and answer.lost
        if not grown or len(self._metadata(name).partitions) != total:
            answer.expect(Done)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Drop the records below `before_offset` (exclusive end; -1: all that is committed).

        Returns:
            The log start offset in force, committed.

        Raises:
            UnknownTopic, UnknownPartition, OffsetOutOfRange.
        """
        check_number("partition", partition, 0, _MAX_INT32)
        check_number("before_offset", before_offset, HIGH_WATERMARK, 2**63 - 1)
        uuid = self._metadata(topic).topic_uuid
        body = DeleteRecordsRequest(topic, uuid, partition, before_offset, self._timeout_ms)
        answer = self._change(AtLeader(topic, partition), body)
        return answer.expect(DeleteRecordsResponse).log_start

    # -- brokers ----------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterInfo:
        """Who is there."""
        found = self._ask(ANY_BROKER, MetadataRequest([])).expect(MetadataResponse)
        brokers = (BrokerInfo(row.broker_id, row.endpoint, row.rack) for row in found.brokers)
        return ClusterInfo(found.cluster_id, found.controller_id, tuple(brokers))

    def describe_broker(self, broker: str | int) -> DescribeBrokerResponse:
        """What one broker says of itself, for `ringlog doctor`.

        Args:
            broker: an address `host:port`, dialled once and exactly, or a broker id.

        Raises:
            NoBrokerReachable: with the reason; UnsupportedVersion.
        """
        if isinstance(broker, str):
            route: Route = AtAddress(parse_address(broker))
            answer = self._ask(route, DescribeBrokerRequest(), retry=False)
        else:
            answer = self._ask(AtBroker(broker), DescribeBrokerRequest())
        return answer.expect(DescribeBrokerResponse)

    # -- sending ----------------------------------------------------------------------------

    def _timeout_for(self, partitions: int) -> int:
        """Time for a call that makes so many partitions, each of them durable."""
        return self._timeout_ms + partitions * PARTITION_MS

    def _ask(
        self, route: Route, body: Message, *, retry: bool = True, timeout_ms: int | None = None
    ) -> Answer:
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        return self._client.call(route, body, timeout_ms=timeout_ms, retry=retry)

    def _change(self, route: Route, body: _Change) -> Answer:
        answer = self._ask(route, body, timeout_ms=body.timeout_ms)
        if isinstance(answer.error, DeadlineExceeded) and answer.lost:
            error = answer.error
            raise OutcomeUnknown(
                f"{error.cause}; it may have been carried out",
                hint="look before you repeat it",
            )
        return answer

    def _metadata(self, name: str) -> TopicMetadata:
        body = MetadataRequest([topic_name(name)])
        topic = self._ask(ANY_BROKER, body).expect(MetadataResponse).topics[0]
        if topic.error is not None:
            raise error_from(topic.error)
        return topic


def _setting(key: str, value: object) -> str:
    check_text("setting name", key)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return check_text(key, str(value))
    raise InvalidArgument(f"{key} is {value!r}", hint="give a text, a number or a boolean")


def _topic_info(found: DescribeTopicResponse) -> TopicInfo:
    return TopicInfo(
        found.name,
        found.topic_uuid,
        found.state,
        found.replication_factor,
        types.MappingProxyType(found.config),
        tuple(found.overrides),
        tuple(
            PartitionInfo(
                row.partition,
                row.leader,
                row.leader_epoch,
                tuple(row.replicas),
                row.log_start,
                row.high_watermark,
                row.log_end,
                row.size_bytes,
                None if row.error is None else error_from(row.error),
            )
            for row in found.partitions
        ),
    )
