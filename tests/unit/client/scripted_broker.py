"""A broker of one thread that keeps records in memory, and misbehaves as told.

For tests of the network edge only: what it decides, the real broker decides elsewhere.
"""

import threading
from collections.abc import Callable

import msgspec
import zmq

from ringlog.client import wire
from ringlog.client.errors import BrokerError, ErrorInfo, OffsetOutOfRange
from ringlog.client.messages import (
    APIS,
    EARLIEST,
    LATEST,
    ApiKey,
    ApiVersions,
    BrokerEndpoint,
    CreateTopicResponse,
    Done,
    FetchRequest,
    FetchResponse,
    FetchResult,
    InitProducerIdResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
    Message,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    TopicMetadata,
    VersionsResponse,
)
from ringlog.client.wire import RequestHeader
from ringlog.storage.record_batch import check_batch
from ringlog.storage.record_codec import Record, decode_records, encode_records
from ringlog.storage.types import Offset

Script = Callable[[RequestHeader, int], object]
"""(request, how many of its api came before) -> what to do with it.

"drop": no answer; "disconnect": every connection is closed; an error, a body, or a body with
frames: that; None: what a kind broker does. A fetch of nothing new is left without an answer.
"""

RECORDS_PER_FETCH = 100


class ScriptedBroker:
    """Serves topic -> number of partitions on a port of its own until closed."""

    def __init__(self, topics: dict[str, int], *, broker_id: int = 1, port: int = 0) -> None:
        self.topics = topics
        self.broker_id = broker_id
        self.script: Script = lambda _request, _count: None
        self.seen: list[ApiKey] = []
        self.bodies: list[Message] = []
        self.logs: dict[tuple[str, int], list[Record]] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        self.version = "0.1.0"
        self.apis = {int(key): (api.min_version, api.max_version) for key, api in APIS.items()}
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self.port = port
        self._bind()
        self._stop_in = self._context.socket(zmq.PAIR)
        self._stop_in.bind("inproc://stop")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "ScriptedBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._context.closed:
            stop = self._context.socket(zmq.PAIR)
            stop.connect("inproc://stop")
            stop.send(b"")
            self._thread.join()
            stop.close(linger=0)
            self._context.term()

    def fill(self, topic: str, partition: int, count: int) -> None:
        """`count` more records; value `<partition>:<offset>`, timestamp 1,000 x offset."""
        log = self.logs.setdefault((topic, partition), [])
        for offset in range(len(log), len(log) + count):
            value = b"%d:%d" % (partition, offset)
            log.append(Record(Offset(offset), 1_000 * offset, None, value))

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.logs.get((topic, partition), [])]

    def _run(self) -> None:
        self._poller.register(self._stop_in, zmq.POLLIN)
        try:
            while self._stop_in not in dict(self._poller.poll()):
                peer, header, *frames = self._router.recv_multipart()
                self._serve(peer, wire.decode_request(header), frames)
        finally:
            self._router.close(linger=0)
            self._stop_in.close(linger=0)

    def _bind(self) -> None:
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        if self.port:
            self._router.bind(f"tcp://127.0.0.1:{self.port}")
        else:
            self.port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self._poller.register(self._router, zmq.POLLIN)

    def _rebind(self) -> None:
        self._poller.unregister(self._router)
        self._router.close(linger=0)
        while True:
            try:
                return self._bind()
            except zmq.ZMQError as error:
                # The old socket is closed by another thread: the port comes free in a moment.
                if error.errno != zmq.EADDRINUSE:
                    raise
                self._router.close(linger=0)

    def _serve(self, peer: bytes, request: RequestHeader, frames: list[bytes]) -> None:
        api = ApiKey(request.api_key)
        answer = self.script(request, self.seen.count(api))
        self.seen.append(api)
        if api not in {ApiKey.VERSIONS, ApiKey.METADATA}:
            self.bodies.append(msgspec.msgpack.decode(request.body, type=APIS[api].request))
        if answer == "drop":
            return
        if answer == "disconnect":
            self._rebind()
            return
        error: ErrorInfo | None = None
        payload: list[bytes] = []
        if answer is None:
            answer = self._normal(api, request, frames)
        if answer is None:
            return
        if isinstance(answer, tuple):
            answer, payload = answer
        if isinstance(answer, BrokerError):
            error, answer = answer.info(), None
        reply = wire.encode_response(request.correlation_id, error, answer)
        self._router.send_multipart([peer, reply, *payload])

    def _normal(self, api: ApiKey, request: RequestHeader, frames: list[bytes]) -> object:
        body = msgspec.msgpack.decode(request.body, type=APIS[api].request)
        match api:
            case ApiKey.VERSIONS:
                rows = [ApiVersions(key, *versions) for key, versions in self.apis.items()]
                return VersionsResponse(
                    "cluster", self.broker_id, self.version, rows, 10 << 20, 1024, 0
                )
            case ApiKey.METADATA:
                assert isinstance(body, MetadataRequest)
                return self.metadata(body.topics)
            case ApiKey.INIT_PRODUCER_ID:
                return InitProducerIdResponse(1000 + self.seen.count(api), 0)
            case ApiKey.PRODUCE:
                assert isinstance(body, ProduceRequest)
                return self._produce(body, frames)
            case ApiKey.FETCH:
                assert isinstance(body, FetchRequest)
                return self._fetch(body)
            case ApiKey.LIST_OFFSETS:
                assert isinstance(body, ListOffsetsRequest)
                return ListOffsetsResponse([self._look(row) for row in body.partitions])
            case ApiKey.CREATE_TOPIC:
                return CreateTopicResponse(b"u" * 16)
            case _:
                return Done()

    def metadata(self, names: list[str] | None) -> MetadataResponse:
        rows = []
        for name in self.topics if names is None else names:
            if name in self.topics:
                parts = [
                    PartitionMetadata(index, self.broker_id, 1, [self.broker_id])
                    for index in range(self.topics[name])
                ]
                rows.append(TopicMetadata(name, b"u" * 16, parts))
            else:
                info = ErrorInfo(4, f"topic {name!r} does not exist", "create it")
                rows.append(TopicMetadata(name, b"", [], info))
        endpoint = BrokerEndpoint(self.broker_id, self.address)
        return MetadataResponse("cluster", self.broker_id, [endpoint], rows)

    def _produce(self, body: ProduceRequest, frames: list[bytes]) -> ProduceResponse | None:
        results = []
        for row, frame in zip(body.partitions, frames, strict=True):
            check_batch(frame, max_bytes=10 << 20)
            log = self.logs.setdefault((row.topic, row.partition), [])
            results.append(ProduceResult(len(log), 0))
            log.extend(decode_records(frame))
        return ProduceResponse(results) if body.acks else None

    def _fetch(self, body: FetchRequest) -> tuple[FetchResponse, list[bytes]] | None:
        frames: list[bytes] = []
        results = []
        for row in body.partitions:
            log = self.logs.get((row.topic, row.partition), [])
            start = self.log_starts.get((row.topic, row.partition), 0)
            if not start <= row.offset <= len(log):
                gone = OffsetOutOfRange(f"offset {row.offset}, the log starts at {start}").info()
                results.append(FetchResult(len(log), start, -1, gone))
            elif records := log[row.offset : row.offset + RECORDS_PER_FETCH]:
                frames.append(encode_records(records))
                results.append(FetchResult(len(log), start, len(frames) - 1))
            else:
                results.append(FetchResult(len(log), start, -1))
        if not frames and not any(result.error for result in results):
            return None
        return FetchResponse(results), frames

    def _look(self, row: ListOffsetsPartition) -> ListOffsetsResult:
        log = self.logs.get((row.topic, row.partition), [])
        start = self.log_starts.get((row.topic, row.partition), 0)
        if row.timestamp_ms in {EARLIEST, LATEST}:
            return ListOffsetsResult(start if row.timestamp_ms == EARLIEST else len(log), -1)
        young = (one.offset for one in log[start:] if one.timestamp >= row.timestamp_ms)
        return ListOffsetsResult(next(young, -1), -1)
