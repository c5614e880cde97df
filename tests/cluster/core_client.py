"""A small client with a method for each request that tests use most: one DEALER, no retries.

For tests of the broker that must not depend on the client library's retries. Must not be used
where ordering over many requests in flight matters.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import zmq

from ringlog.client import messages as m
from ringlog.client import wire
from ringlog.client.errors import error_from
from ringlog.storage.record_batch import iter_batches
from ringlog.storage.record_codec import Record, decode_records
from ringlog.storage.types import Buffer

R = TypeVar("R", bound=m.Message)


class CoreClient:
    """A connection to one broker. Raises the broker's error, or TimeoutError."""

    def __init__(self, endpoint: str, *, timeout_ms: int = 30_000) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"tcp://{endpoint}")
        self._correlation_id = 0
        self.timeout_ms = timeout_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the socket back. Idempotent."""
        self._socket.close()
        self._context.term()

    def send(self, key: m.ApiKey, body: m.Message, frames: Sequence[Buffer] = ()) -> int:
        """Send a request and return its correlation id."""
        self._correlation_id += 1
        header = wire.encode_request(int(key), 0, self._correlation_id, body)
        self._socket.send_multipart([header, *frames])
        return self._correlation_id

    def receive(self) -> tuple[wire.ResponseHeader, list[bytes]]:
        """Return the next response and its payload frames."""
        if not self._socket.poll(self.timeout_ms):
            raise TimeoutError(f"no response within {self.timeout_ms} ms")
        header, *frames = self._socket.recv_multipart()
        return wire.decode_response(header), frames

    def is_silent(self, for_ms: int) -> bool:
        """Whether nothing comes for that long."""
        return not self._socket.poll(for_ms)

    def call(
        self, key: m.ApiKey, body: m.Message, kind: type[R], frames: Sequence[Buffer] = ()
    ) -> tuple[R, list[bytes]]:
        """Send a request and return its answer and frames."""
        correlation_id = self.send(key, body, frames)
        while True:
            header, answer_frames = self.receive()
            if header.correlation_id == correlation_id:
                break
        if header.error is not None:
            raise error_from(header.error)
        return msgspec.msgpack.decode(header.body, type=kind), answer_frames

    # -- the requests tests use most -------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: dict[str, str] | None = None,
        request_id: bytes = b"",
    ) -> bytes:
        """Create a topic and return its UUID."""
        body = m.CreateTopicRequest(name, partitions, -1, config or {}, request_id, 30_000)
        return self.call(m.ApiKey.CREATE_TOPIC, body, m.CreateTopicResponse)[0].topic_uuid

    def produce(
        self,
        topic: str,
        batch: Buffer,
        *,
        partition: int = 0,
        topic_uuid: bytes = b"",
        acks: int = m.ACKS_ALL,
        timeout_ms: int = 30_000,
    ) -> int:
        """Produce one batch and return its base offset."""
        target = m.ProducePartition(topic, topic_uuid, partition)
        body = m.ProduceRequest(acks, timeout_ms, [target])
        answer, _frames = self.call(m.ApiKey.PRODUCE, body, m.ProduceResponse, [batch])
        (result,) = answer.results
        if result.error is not None:
            raise error_from(result.error)
        return result.base_offset

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        topic_uuid: bytes = b"",
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> tuple[m.FetchResult, bytes]:
        """Fetch one partition and return its result and bytes."""
        target = m.FetchPartition(topic, topic_uuid, partition, offset, max_bytes)
        body = m.FetchRequest(max_wait_ms, min_bytes, max_bytes, [target])
        answer, frames = self.call(m.ApiKey.FETCH, body, m.FetchResponse)
        (result,) = answer.results
        if result.error is not None:
            raise error_from(result.error)
        return result, frames[result.frame] if result.frame >= 0 else b""

    def list_offset(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> int:
        """Return the offset for a time, `LATEST` or `EARLIEST`."""
        target = m.ListOffsetsPartition(topic, b"", partition, timestamp_ms)
        body = m.ListOffsetsRequest([target])
        answer, _frames = self.call(m.ApiKey.LIST_OFFSETS, body, m.ListOffsetsResponse)
        (result,) = answer.results
        if result.error is not None:
            raise error_from(result.error)
        return result.offset

    def delete_records(self, topic: str, before_offset: int, *, partition: int = 0) -> int:
        """Move the log start and return where it is."""
        body = m.DeleteRecordsRequest(topic, b"", partition, before_offset, 30_000)
        answer, _frames = self.call(m.ApiKey.DELETE_RECORDS, body, m.DeleteRecordsResponse)
        return answer.log_start

    def delete_topic(self, name: str, topic_uuid: bytes = b"") -> None:
        """Delete a topic."""
        body = m.DeleteTopicRequest(name, topic_uuid, 30_000)
        self.call(m.ApiKey.DELETE_TOPIC, body, m.Done)

    def describe_topic(self, name: str) -> m.DescribeTopicResponse:
        """Describe a topic."""
        body = m.DescribeTopicRequest(name)
        return self.call(m.ApiKey.DESCRIBE_TOPIC, body, m.DescribeTopicResponse)[0]


def records_in(data: bytes) -> list[Record]:
    """Every record of the batches in one fetched frame, in order."""
    return [
        record
        for position, header in iter_batches(data)
        for record in decode_records(data[position : position + header.size_bytes])
    ]
