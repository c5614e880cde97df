"""Every request and response body, typed, and the table of APIs.

Owns the field order on the wire (structs travel as arrays). Must not know frames or sockets.
A version adds trailing fields with defaults; an older reader ignores what it does not know.
`docs/protocol.md` is generated from this module.

Invariants:
    M1  Structs decode strictly: wrong types and missing fields are refused by msgspec.
    M2  Produce: `partitions[i]` goes with payload frame i, which holds exactly one batch.
    M3  Fetch response: a result with data names its payload frame by index; frames hold whole
        batches, the first of which contains the offset asked for.
    M4  Topic UUIDs are 16 bytes, or empty for "whatever topic has this name now".
"""

import enum
from typing import NamedTuple

import msgspec

from ringlog.client.errors import ErrorInfo

LATEST = -1
"""ListOffsets timestamp: the high watermark."""

EARLIEST = -2
"""ListOffsets timestamp: the log start offset."""

ACKS_ALL = -1
"""Answer when flushed on a majority."""


class ApiKey(enum.IntEnum):
    """What a request asks for. Numbers are never reused."""

    VERSIONS = 0
    METADATA = 1
    CREATE_TOPIC = 2
    DELETE_TOPIC = 3
    DESCRIBE_TOPIC = 4
    ALTER_TOPIC = 5
    ADD_PARTITIONS = 6
    INIT_PRODUCER_ID = 7
    PRODUCE = 8
    FETCH = 9
    LIST_OFFSETS = 10
    DELETE_RECORDS = 11
    DESCRIBE_BROKER = 12


class Message(msgspec.Struct, array_like=True):
    """Base of all bodies."""


# -- Versions: the first request on a connection -----------------------------------------


class VersionsRequest(Message):
    """Who asks. Names are for logs only; never an identity."""

    client_name: str
    client_version: str


class ApiVersions(Message):
    """One API with the versions this broker speaks, both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


class VersionsResponse(Message):
    """What the broker is and what it accepts."""

    cluster_id: str
    broker_id: int
    broker_version: str
    apis: list[ApiVersions]
    max_message_bytes: int
    """Largest payload frame, in bytes."""
    max_payload_frames: int
    now_ms: int
    """Wall clock of the broker, milliseconds since 1970."""


# -- Metadata -----------------------------------------------------------------------------


class MetadataRequest(Message):
    """`topics` None means all (without internal ones)."""

    topics: list[str] | None = None


class BrokerEndpoint(Message):
    """A broker and the address its clients should use."""

    broker_id: int
    endpoint: str
    """`host:port`, as advertised."""
    rack: str = ""


class PartitionMetadata(Message):
    """Who leads one partition. `leader` -1: nobody; then `error` says why."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    error: ErrorInfo | None = None


class TopicMetadata(Message):
    """One topic; with an `error` the rest is empty."""

    name: str
    topic_uuid: bytes
    partitions: list[PartitionMetadata]
    error: ErrorInfo | None = None


class MetadataResponse(Message):
    """Brokers and the topics asked for, in the order asked."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerEndpoint]
    topics: list[TopicMetadata]


# -- Topics -------------------------------------------------------------------------------


class CreateTopicRequest(Message):
    """`request_id` (16 random bytes) makes a retry after a lost answer succeed once."""

    name: str
    partitions: int
    replication_factor: int
    """-1: the default."""
    config: dict[str, str]
    request_id: bytes
    timeout_ms: int


class CreateTopicResponse(Message):
    """The topic is online."""

    topic_uuid: bytes


class DeleteTopicRequest(Message):
    """Delete by name; a `topic_uuid` that is not the present one is refused."""

    name: str
    topic_uuid: bytes
    timeout_ms: int


class Done(Message):
    """Answer of requests that have nothing to say but success."""


class DescribeTopicRequest(Message):
    """One topic, in full."""

    name: str


class PartitionDescription(Message):
    """State of one partition on this broker. Offsets as in design words; sizes in bytes."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    log_start: int
    high_watermark: int
    log_end: int
    size_bytes: int
    error: ErrorInfo | None = None


class DescribeTopicResponse(Message):
    """`config` holds every setting with its value in force; `overrides` those set by hand."""

    name: str
    topic_uuid: bytes
    state: str
    replication_factor: int
    config: dict[str, str]
    overrides: list[str]
    partitions: list[PartitionDescription]


class AlterTopicRequest(Message):
    """Settings to change; None takes a setting back to its default."""

    name: str
    config: dict[str, str | None]
    timeout_ms: int


class AddPartitionsRequest(Message):
    """`total` is the new number of partitions, larger than the present one."""

    name: str
    total: int
    timeout_ms: int


# -- Produce ------------------------------------------------------------------------------


class InitProducerIdRequest(Message):
    """Ask for a fresh producer id."""


class InitProducerIdResponse(Message):
    """43 random bits drawn by the broker and a 20-bit counter; epochs are the client's."""

    producer_id: int
    producer_epoch: int


class ProducePartition(Message):
    """Where payload frame i goes. The same partition may be named more than once, in order."""

    topic: str
    topic_uuid: bytes
    partition: int


class ProduceRequest(Message):
    """`acks` 0: no answer at all; 1: flushed on the leader; -1: flushed on a majority."""

    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]


class ProduceResult(Message):
    """Result of one batch. `base_offset` -1 with an error."""

    base_offset: int
    log_start: int
    error: ErrorInfo | None = None


class ProduceResponse(Message):
    """`results[i]` belongs to `partitions[i]` of the request."""

    results: list[ProduceResult]


# -- Fetch --------------------------------------------------------------------------------


class FetchPartition(Message):
    """Read from `offset` (inclusive). `max_bytes` is a target: one batch always fits."""

    topic: str
    topic_uuid: bytes
    partition: int
    offset: int
    max_bytes: int


class FetchRequest(Message):
    """Wait up to `max_wait_ms` until `min_bytes` can be read over all partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: list[FetchPartition]


class FetchResult(Message):
    """`frame` is the index of the payload frame, -1 when nothing came."""

    high_watermark: int
    log_start: int
    frame: int
    error: ErrorInfo | None = None


class FetchResponse(Message):
    """`results[i]` belongs to `partitions[i]` of the request."""

    results: list[FetchResult]


class ListOffsetsPartition(Message):
    """First record with timestamp >= `timestamp_ms`, or LATEST, or EARLIEST."""

    topic: str
    topic_uuid: bytes
    partition: int
    timestamp_ms: int


class ListOffsetsRequest(Message):
    """Offsets of many partitions at once."""

    partitions: list[ListOffsetsPartition]


class ListOffsetsResult(Message):
    """`offset` -1: no such record. `timestamp_ms` -1 for LATEST and EARLIEST."""

    offset: int
    timestamp_ms: int
    error: ErrorInfo | None = None


class ListOffsetsResponse(Message):
    """`results[i]` belongs to `partitions[i]` of the request."""

    results: list[ListOffsetsResult]


class DeleteRecordsRequest(Message):
    """Move the log start to `before_offset` (exclusive end of what goes); -1: high watermark."""

    topic: str
    topic_uuid: bytes
    partition: int
    before_offset: int
    timeout_ms: int


class DeleteRecordsResponse(Message):
    """The log start offset now in force, committed."""

    log_start: int


# -- Broker -------------------------------------------------------------------------------


class DescribeBrokerRequest(Message):
    """Ask one broker about itself, for `ringlog doctor`."""


class DescribeBrokerResponse(Message):
    """Facts that `doctor` judges. Sizes in bytes, times in milliseconds."""

    broker_id: int
    broker_version: str
    cluster_id: str
    pid: int
    started_ms: int
    now_ms: int
    listen: str
    advertise: str
    data_directory: str
    free_bytes: int
    reserve_bytes: int
    open_files: int
    open_files_limit: int
    flush_policy: str
    partitions: int
    damaged: list[str]
    warnings: list[str]


class Api(NamedTuple):
    """One row of the API table: versions are inclusive at both ends."""

    request: type[Message]
    response: type[Message]
    min_version: int = 0
    max_version: int = 0


APIS: dict[ApiKey, Api] = {
    ApiKey.VERSIONS: Api(VersionsRequest, VersionsResponse),
    ApiKey.METADATA: Api(MetadataRequest, MetadataResponse),
    ApiKey.CREATE_TOPIC: Api(CreateTopicRequest, CreateTopicResponse),
    ApiKey.DELETE_TOPIC: Api(DeleteTopicRequest, Done),
    ApiKey.DESCRIBE_TOPIC: Api(DescribeTopicRequest, DescribeTopicResponse),
    ApiKey.ALTER_TOPIC: Api(AlterTopicRequest, Done),
    ApiKey.ADD_PARTITIONS: Api(AddPartitionsRequest, Done),
    ApiKey.INIT_PRODUCER_ID: Api(InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.PRODUCE: Api(ProduceRequest, ProduceResponse),
    ApiKey.FETCH: Api(FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: Api(ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.DELETE_RECORDS: Api(DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.DESCRIBE_BROKER: Api(DescribeBrokerRequest, DescribeBrokerResponse),
}
