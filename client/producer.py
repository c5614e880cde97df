"""`BatchProducer`: records from any thread into acknowledged batches.

Owns the public shape of sending, the fast path of `send`, blocking, closing and draining at
exit. Decides nothing about batches on their way: `producer_core` does, on the IO thread.

Invariants:
    BP1 `send` returns a `Delivery` or raises; when it raises, the record was not taken.
    BP2 Every call ends within its deadline; every delivery ends within `delivery_timeout_ms`.
    BP3 What was sent before `close` or the end of the program is delivered or reported, as far
        as the timeout allows.
    BP4 Callbacks run on the IO thread under no lock.
"""

import atexit
import logging
import os
import random
import time
import types
import weakref
from collections.abc import Sequence
from typing import Self

from ringlog.client.accumulator import ANY_PARTITION, Accumulator, Record, Topic
from ringlog.client.arguments import existing_topic, optional_timeout
from ringlog.client.config import ClientConfig, bootstrap_addresses, check_number
from ringlog.client.connection import Client, forked_error, monotonic_ms
from ringlog.client.delivery import Delivery
from ringlog.client.errors import (
    ClientClosed,
    ClientForked,
    DeadlineExceeded,
    InvalidArgument,
    RecordTooLarge,
    RinglogError,
    UnknownPartition,
    error_from,
)
from ringlog.client.messages import MetadataRequest, MetadataResponse
from ringlog.client.partitioners import Partitioner, PartitionerName
from ringlog.client.partitioners import partitioner as chosen_partitioner
from ringlog.client.producer_agent import ProducerAgent
from ringlog.client.producer_config import MIB, Acks, Compression, ProducerConfig
from ringlog.client.requests import ANY_BROKER
from ringlog.client.serializers import HeadersLike, Serializer, to_bytes, to_headers
from ringlog.storage.record_batch import HEADER_SIZE
from ringlog.storage.record_codec import MAX_TIMESTAMP, record_size_bound
from ringlog.storage.types import NO_TIMESTAMP

log = logging.getLogger("ringlog.client")

DEFAULT_MAX_MESSAGE_BYTES = 10 * MIB
"""A broker's payload limit as long as none has said its own."""

EXIT_TIMEOUT_S = 30.0
"""Longest time the end of the program waits for open deliveries."""

INTERRUPTED_TIMEOUT_S = 5.0
"""The same for a `with` block that is left by Ctrl-C or by the end of the program."""

CLOSE_TIMEOUT_S = 5.0
"""Longest time `close` waits for the IO thread once nothing is open."""

_PLAIN_OVERHEAD_BYTES = record_size_bound(b"x" * 8192, b"x" * 8192) - 2 * 8192
"""What a record without headers takes beside its key and value, at most."""


class _Never:
    """No value has this type: serializers send everything past the fast path."""


_producers: "weakref.WeakSet[BatchProducer]" = weakref.WeakSet()


def _drain_at_exit() -> None:
    for producer in list(_producers):
        try:
            producer.close(EXIT_TIMEOUT_S)
        except RinglogError as error:
            log.error("at exit: %s", error)


atexit.register(_drain_at_exit)


class BatchProducer:
    """Sends records in batches. Thread-safe; usable as a context manager.

    An example::

        with BatchProducer("127.0.0.1:5555") as producer:
            delivery = producer.send("orders", b"value", key=b"k")
            print(delivery.result(timeout=5).offset)
    """

    def __init__(  # noqa: PLR0913 the settings, by keyword
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        client_id: str = "ringlog-producer",
        acks: Acks = "all",
        batch_size: int = 1024,
        batch_bytes: int = MIB,
        linger_ms: int = 100,
        compression: Compression | None = None,
        buffer_memory: int = 64 * MIB,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        max_in_flight: int = 16,
        enable_idempotence: bool = True,
        partitioner: PartitionerName | Partitioner = "crc32",
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        request_timeout_ms: int = 30_000,
        bootstrap_timeout_ms: int = 10_000,
        connect_timeout_ms: int = 5_000,
        retry_backoff_ms: int = 50,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
    ) -> None:
        """Nothing is sent before the first record; `ProducerConfig` explains the other settings.

        `partitioner` is "crc32", "murmur2" (as Kafka's Java client), "md5", or a callable
        (key, number of partitions) -> partition; records without a key are spread. A serializer
        gets every key or value, None too, and returns bytes, text (UTF-8) or None.

        Raises:
            InvalidArgument: an address or a setting that no producer can use.
        """
        config = ProducerConfig(
            acks=acks,
            batch_size=batch_size,
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            compression=compression,
            buffer_memory=buffer_memory,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_in_flight=max_in_flight,
            enable_idempotence=enable_idempotence,
        )
        connections = ClientConfig(
            bootstrap_addresses(bootstrap_servers, os.environ),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            bootstrap_timeout_ms=bootstrap_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        )
        self._choose = chosen_partitioner(partitioner)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._assemble(config, connections)

    def _assemble(self, config: ProducerConfig, connections: ClientConfig) -> None:
        self._config = config
        self._client = Client(connections)
        # Jitter and choice of partitions: nothing secret depends on it.
        rng = random.Random()  # noqa: S311 not for cryptography
        self._topics: dict[str, Topic] = {}
        self._agent = ProducerAgent(self._client, config, self._topics, rng, _wall_ms)
        self._accumulator = Accumulator(
            owner=self._agent,
            on_opened=self._agent.opened,
            on_short=self._agent.short,
            clock=monotonic_ms,
            rng=rng,
            config=config,
        )
        self._agent.accumulator = self._accumulator
        self._sticky = self._accumulator.sticky
        # A serializer sees every value, a key serializer also missing keys: no fast path then.
        plain = self._value_serializer is None and self._key_serializer is None
        self._plain_type: type = bytes if plain else _Never
        self._plain_bytes = self._accumulator.small_bytes - _PLAIN_OVERHEAD_BYTES
        self._closed = False
        self._client.attach(self._agent)
        _producers.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._accumulator.live)} open batches"
        return f"<BatchProducer of {', '.join(self._client.config.bootstrap)}: {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        self.close(INTERRUPTED_TIMEOUT_S if interrupted else None)

    # -- sending ----------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: object = None,
        headers: HeadersLike | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Take one record; returns as soon as it has its place in a batch.

        Args:
            topic: its name.
            value: bytes, text (UTF-8), None (a tombstone), or what `value_serializer` takes.
            key: the same with `key_serializer`; equal keys go to the same partition.
            headers: mapping, or (name, value) pairs.
            partition: None: chosen by the key, without one by the batch.
            timestamp_ms: milliseconds since 1970; None: when the batch leaves, which is at most
                `linger_ms` later unless deliveries are held up.

        Raises:
            UnknownTopic, UnknownPartition, RecordTooLarge, InvalidArgument, SerializationFailed,
            BufferFull (no room within `max_block_ms`), NoBrokerReachable, ClientClosed,
            ClientForked. The record was not taken.
        """
        if (
            key is None
            and headers is None
            and partition is None
            and timestamp_ms is None
            and type(value) is self._plain_type
            and len(value) <= self._plain_bytes  # type: ignore[arg-type]  # it is bytes
        ):
            try:
                # Not `get`: a call, and 6 % of all that a record costs here.
                batch = self._sticky[topic]
            except KeyError:
                return self._send(topic, value, key, headers, partition, timestamp_ms)
            # No lock: see `batch`. The loop takes at most one index, in one bytecode.
            for index in batch.slots:
                try:
                    batch.values[index] = value  # type: ignore[call-overload]  # it is bytes
                except IndexError:
                    # This thread was stopped for so long that the batch has left without it.
                    break
                if not batch.closed:
                    return Delivery(batch, index)
                delivery = self._accumulator.confirm(batch, index)
                if delivery is not None:
                    return delivery
                break
        return self._send(topic, value, key, headers, partition, timestamp_ms)

    def _send(
        self,
        topic: str,
        value: object,
        key: object,
        headers: HeadersLike | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        if headers is None and timestamp_ms is None and partition is None:
            delivery = self._send_keyed(topic, value, key)
            if delivery is not None:
                return delivery
        raw_value = to_bytes("value", value, self._value_serializer)
        raw_key = to_bytes("key", key, self._key_serializer)
        pairs = () if headers is None else to_headers(headers)
        moment = NO_TIMESTAMP
        if timestamp_ms is not None:
            moment = check_number("timestamp_ms", timestamp_ms, 0, MAX_TIMESTAMP)
        size_bytes = record_size_bound(raw_value, raw_key, pairs)
        self._check_size(topic, size_bytes)
        place = self._topic(topic)
        record = Record(raw_value, raw_key, pairs, moment, size_bytes)
        return self._accumulator.add(place, self._place(place, raw_key, partition), record)

    def _send_keyed(self, topic: str, value: object, key: object) -> Delivery | None:
        """The fast path of a small record with a key; None: it needs the slow one."""
        place = self._topics.get(topic)
        plain = self._plain_type
        if (
            place is None
            or type(key) is not plain
            or type(value) is not plain
            or len(key) + len(value) > self._plain_bytes  # type: ignore[arg-type]  # both are bytes
        ):
            return None
        # A partition out of range has no open batch; the slow path names it.
        batch = place.open.get(self._choose(key, place.partitions))  # type: ignore[arg-type]  # bytes
        if batch is None or (keys := batch.keys) is None:
            return None
        for index in batch.slots:
            try:
                keys[index] = key  # type: ignore[call-overload]  # it is bytes
                batch.values[index] = value  # type: ignore[call-overload]  # it is bytes
            except IndexError:
                break
            if not batch.closed:
                return Delivery(batch, index)
            return self._accumulator.confirm(batch, index)
        return None

    def _place(self, topic: Topic, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            if isinstance(partition, bool) or not isinstance(partition, int):
                raise InvalidArgument(f"partition is {partition!r}, not an integer")
            chosen = partition
        elif key is None:
            return ANY_PARTITION
        else:
            chosen = self._choose(key, topic.partitions)
        if not 0 <= chosen < topic.partitions:
            raise UnknownPartition(
                f"topic {topic.name!r} has no partition {chosen}, it has {topic.partitions}",
                hint="partitions count from 0",
            )
        return chosen

    def _check_size(self, topic: str, size_bytes: int) -> None:
        limit_bytes = self._agent.max_message_bytes or DEFAULT_MAX_MESSAGE_BYTES
        if size_bytes + HEADER_SIZE > limit_bytes:
            raise RecordTooLarge(
                f"the record takes {size_bytes} bytes uncompressed, a batch of topic {topic!r} "
                f"holds at most {limit_bytes - HEADER_SIZE}",
                hint="raise max.message.bytes of the topic and max_message_bytes of the brokers, "
                "or store the value elsewhere and send a reference",
            )
        if size_bytes > self._config.buffer_memory:
            raise RecordTooLarge(
                f"the record takes {size_bytes} bytes, buffer_memory is "
                f"{self._config.buffer_memory}",
                hint="raise buffer_memory",
            )

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        existing_topic(name)
        if self._closed:
            raise _closed_error()
        body = MetadataRequest([name])
        timeout_ms = max(1, self._config.max_block_ms)
        answer = self._client.call(ANY_BROKER, body, timeout_ms=timeout_ms)
        found = answer.expect(MetadataResponse).topics[0]
        if found.error is not None:
            raise error_from(found.error)
        with_leader = [row.partition for row in found.partitions if row.leader >= 0]
        return self._topics.setdefault(name, Topic(name, len(found.partitions), with_leader))

    # -- waiting and ending -----------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once and wait until every delivery has ended, well or not.

        Args:
            timeout: seconds; None: as long as deliveries take (`delivery_timeout_ms`).

        Raises:
            DeadlineExceeded: some are still open; the text has their number.
        """
        timeout = optional_timeout(timeout)
        batches = list(self._accumulator.live)
        if not batches:
            return
        self._client.refuse_io_thread("flush()")
        self._agent.hurry_all()
        until_ms = None if timeout is None else monotonic_ms() + int(timeout * 1000)
        for batch in batches:
            left_s = None if until_ms is None else max(0, until_ms - monotonic_ms()) / 1000
            if not batch.wait(left_s):
                open_records = sum(one.taken() for one in batches if not one.done)
                raise DeadlineExceeded(
                    f"{open_records} deliveries are still open after {timeout} s",
                    hint="they go on; call flush again, or look at each delivery",
                )

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, flush, and give everything back. Idempotent.

        Args:
            timeout: seconds; None: as long as deliveries take (`delivery_timeout_ms`).

        Raises:
            DeadlineExceeded: some were still open and were given up; each of them has its error,
                DeliveryUnknown where it may be stored.
        """
        timeout = optional_timeout(timeout)
        if self._closed:
            return
        self._closed = True
        self._accumulator.refuse(_closed_error())
        try:
            self.flush(timeout)
        except ClientForked:
            return
        except DeadlineExceeded as error:
            # The end of the client, below, ends them.
            raise DeadlineExceeded(error.cause, hint="they were given up") from error
        finally:
            self._client.close(CLOSE_TIMEOUT_S)

    def on_forked(self) -> None:
        """In the child of a fork: refuse, unless nothing was started yet."""
        if self._client.forked:
            self._accumulator.forked(forked_error())


def _closed_error() -> ClientClosed:
    return ClientClosed("the producer is closed", hint="make a new one")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _after_fork_in_child() -> None:
    for producer in list(_producers):
        producer.on_forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
