"""`Consumer`: records of topics, in offset order per partition.

Owns the façade: arguments, waiting, callbacks. The core is `client.fetcher`; decoding is
`client.hand_out`. Without a group it reads all partitions it is given and commits nothing.

Invariants:
    CN1 Every call has a deadline; waits end at once on Ctrl-C, close or an error.
    CN2 Callbacks and deserializers run on the thread that polls, without the fetcher's lock, and
        may call the consumer. What a callback raises comes out of the call, and loses nothing.
    CN3 `position` is the offset of the next record this consumer hands out (or yields).
    CN4 Each record is handed out once, whichever threads poll and iterate.
"""

import os
import random
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self

from ringlog.client.arguments import check_timeout, one_partition, several_partitions, topic_names
from ringlog.client.config import ClientConfig, bootstrap_addresses, check_number
from ringlog.client.connection import Client, forked_error, monotonic_ms
from ringlog.client.consumer_config import ConsumerConfig, Deserializer, OffsetReset
from ringlog.client.errors import ClientClosed, UnknownPartition, error_from
from ringlog.client.fetch_agent import Callback, FetchAgent
from ringlog.client.fetch_slot import NO_OFFSET, Slot
from ringlog.client.fetcher import RESETS, Fetcher, Lost
from ringlog.client.health import Health, health_of
from ringlog.client.messages import EARLIEST, LATEST, MetadataRequest, MetadataResponse
from ringlog.client.offsets import await_positions, find_offsets, refuse_unknown, unknown_topics
from ringlog.client.poller import Poller
from ringlog.client.record import Record
from ringlog.client.replay import Replay
from ringlog.client.requests import ANY_BROKER
from ringlog.client.retry import Backoff
from ringlog.storage.types import TopicPartition

MAX_TIMESTAMP_MS = 2**48 - 1
MAX_WAIT_S = 86_400
"""Longest `poll`."""

CLOSE_TIMEOUT_S = 5.0
"""Longest time `close` waits for the IO thread, unless told otherwise."""

_consumers: "weakref.WeakSet[Consumer]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for consumer in list(_consumers):
        consumer.on_forked()


# Behind that of `client.connection`, which marks the client as forked.
os.register_at_fork(after_in_child=_after_fork_in_child)


class Consumer:
    """Reads records. Thread-safe; usable as a context manager and as an iterator.

    An example::

        with Consumer("orders", auto_offset_reset="earliest") as consumer:
            for record in consumer:
                print(record.offset, record.value)
    """

    def __init__(  # noqa: PLR0913 the settings, by keyword
        self,
        topics: str | Sequence[str] = (),
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        group_id: str | None = None,
        client_id: str = "ringlog-consumer",
        auto_offset_reset: OffsetReset = "latest",
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        max_partition_fetch_bytes: int = 1024 * 1024,
        buffer_memory: int = 64 * 1024 * 1024,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_lost: Callable[[Lost], object] | None = None,
        request_timeout_ms: int = 30_000,
        bootstrap_timeout_ms: int = 10_000,
        connect_timeout_ms: int = 5_000,
        retry_backoff_ms: int = 50,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 60_000,
    ) -> None:
        """Subscribe to `topics` (one name or several) when there are any, positions included.

        `on_lost` is called with each `Lost` range of records that were deleted before they were
        read; without it a warning is logged. `ConsumerConfig` explains the other settings.

        Raises:
            InvalidArgument: an address or a setting that no consumer can use.
            UnknownTopic, NoBrokerReachable, DeadlineExceeded: with `topics` only.
        """
        config = ConsumerConfig(
            group_id=group_id,
            auto_offset_reset=auto_offset_reset,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_wait_ms=fetch_max_wait_ms,
            fetch_max_bytes=fetch_max_bytes,
            max_partition_fetch_bytes=max_partition_fetch_bytes,
            buffer_memory=buffer_memory,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        io_config = ClientConfig(
            bootstrap_addresses(bootstrap_servers, os.environ),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            bootstrap_timeout_ms=bootstrap_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        )
        self._set_up(config, io_config, on_lost)
        try:
            if topics:
                self.subscribe(topics)
        except BaseException:
            self.close(0)
            raise

    def _set_up(
        self,
        config: ConsumerConfig,
        io_config: ClientConfig,
        on_lost: Callable[[Lost], object] | None = None,
    ) -> None:
        self._config = config
        self._client = Client(io_config)
        self._fetcher = Fetcher(
            config.limits,
            reset=config.auto_offset_reset,
            backoff=Backoff(io_config.retry_backoff_ms, io_config.retry_backoff_max_ms),
            # Jitter only: nothing secret depends on it.
            rng=random.Random(),  # noqa: S311 not for cryptography
        )
        self._agent = FetchAgent(self._client, self._fetcher, max_wait_ms=config.fetch_max_wait_ms)
        self._poller = Poller(
            self._agent,
            key=config.key_deserializer,
            value=config.value_deserializer,
            on_lost=on_lost,
            check_open=self._check_open,
        )
        self._ahead = self._poller.ahead
        self._on_revoke: Callback | None = None
        self._known_topics: dict[str, int] = {}
        """Partition counts, as a broker told them last."""
        self._closed = False
        self._client.attach(self._agent)
        _consumers.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else ", ".join(map(str, sorted(self._fetcher.slots)))
        servers = ", ".join(self._client.config.bootstrap)
        return f"<Consumer of {servers}: {state or 'nothing assigned'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    # -- Assignment --------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Sequence[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
    ) -> None:
        """Read all partitions of `topics`, those they gain later too, instead of what was read.

        Raises:
            UnknownTopic: one of them does not exist; nothing is changed then.
            NoBrokerReachable, DeadlineExceeded, ClientClosed, ClientForked.
        """
        names = topic_names(topics)
        self._assign(self._learn(names), names, on_assign, on_revoke)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly `partitions`; those read before go on where they are.

        Raises:
            UnknownTopic: of one of them; nothing is changed then.
            UnknownPartition, NoBrokerReachable, DeadlineExceeded, ClientClosed, ClientForked.
        """
        wanted = several_partitions(partitions)
        self._learn_new(wanted)
        self._assign(wanted, (), None, None)

    def _assign(
        self,
        wanted: list[TopicPartition],
        subscribed: tuple[str, ...],
        on_assign: Callback | None,
        on_revoke: Callback | None,
    ) -> None:
        on_revoke_before = self._on_revoke
        with self._changed:
            self._check_open()
            before = set(self._fetcher.slots)
            reset = RESETS[self._config.auto_offset_reset]
            self._fetcher.assign(wanted, EARLIEST if reset is None else reset)
            self._agent.subscribed = subscribed
            self._poller.on_assign, self._on_revoke = on_assign, on_revoke
            gone = before - self._fetcher.slots.keys()
            new = [one for one in self._fetcher.slots if one not in before]
            self._ahead.drop(gone)
        self._agent.wake()
        if gone and on_revoke_before is not None:
            on_revoke_before(sorted(gone))
        self._await_positions(wanted, leave_errors=True)
        if new and on_assign is not None:
            on_assign(new)

    def _learn(self, topics: Sequence[str]) -> list[TopicPartition]:
        """All partitions of `topics`, as a broker tells them."""
        self._check_open()
        answer = self._client.call(ANY_BROKER, MetadataRequest(list(topics)))
        found: list[TopicPartition] = []
        for topic in answer.expect(MetadataResponse).topics:
            if topic.error is not None:
                raise error_from(topic.error)
            found += [TopicPartition(topic.name, row.partition) for row in topic.partitions]
            self._known_topics[topic.name] = len(topic.partitions)
        return found

    def _learn_new(self, partitions: Collection[TopicPartition]) -> None:
        """Ask for what was not met before, so that a wrong name or address is told at once.

        Raises:
            UnknownPartition: the topic has fewer.
        """
        new = unknown_topics(partitions, self._known_topics)
        if new:
            self._learn(new)
        refuse_unknown(partitions, self._known_topics)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        with self._changed:
            return set(self._fetcher.slots)

    # -- Reading -----------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0, max_records: int = 500) -> list[Record]:
        """Records as soon as there is one; empty when none came within `timeout` seconds.

        Raises:
            OffsetOutOfRange: with `auto_offset_reset="none"`.
            StaleTopic, UnknownTopic: the topic was deleted, and perhaps made again. Raised once
                for each partition, which then stands still: a seek reads the new topic from
                that place, a new `subscribe` from where `auto_offset_reset` says.
            CorruptRecord, PartitionDamaged and the like: one partition cannot go on; the next
                poll goes on with the others. Seek to try it again.
            DeserializationFailed: `record` has the raw record; seek past it to go on.
            InvalidArgument: a negative timeout, or nothing is assigned.
            ClientClosed, ClientForked.
        """
        check_number("max_records", max_records, 1, 2**31 - 1)
        self._client.refuse_io_thread("poll()")
        wait_ms = int(min(check_timeout(timeout), MAX_WAIT_S) * 1000)
        return self._poller.poll(max_records, monotonic_ms() + wait_ms)

    def __iter__(self) -> Iterator[Record]:
        """Records, for ever; ends when the consumer is closed.

        What `poll` raises, this raises too, and ends; a new iteration goes on behind it.
        """
        ahead = self._ahead
        while not self._closed:
            try:
                record = ahead.pop()
            except IndexError:
                try:
                    self._client.refuse_io_thread("an iteration")
                    self._poller.fill(monotonic_ms() + MAX_WAIT_S * 1000)
                except ClientClosed:
                    return
                continue
            yield record

    def replay(
        self,
        topic: str,
        start: Mapping[int, int] | int | None = None,
        end: Mapping[int, int] | int | None = None,
    ) -> Iterator[Record]:
        """Read a bounded range of `topic`, beside and without touching this consumer's positions.

        Args:
            topic: its name.
            start: first offset by partition (inclusive), one timestamp in ms (first record at or
                after it), or None: the earliest.
            end: the same, exclusive; None: what is there when the replay begins.
        """
        self._check_open()
        patience_ms = self._client.config.request_timeout_ms
        return iter(Replay(self._reader, topic, start, end, patience_ms=patience_ms))

    def _reader(self) -> "Consumer":
        """A consumer like this one, with nothing assigned."""
        reader = Consumer.__new__(Consumer)
        config = replace(self._config, auto_offset_reset="none")
        reader._set_up(config, self._client.config)  # noqa: SLF001 another of this class
        return reader

    # -- Positions ---------------------------------------------------------------------------

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at `offset`. One outside the log is reported by the next poll."""
        check_number("offset", offset, 0, 2**63 - 1)
        with self._changed:
            slot = self._slot(topic, partition)
            self._ahead.drop((slot.partition,))
            self._fetcher.seek(slot, offset)
        self._agent.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start of `partitions` (none given: all); `poll` raises what hinders."""
        self._look_for(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record of `partitions` (none given: all)."""
        self._look_for(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record with at least this timestamp; without one, at the end."""
        check_number("timestamp_ms", timestamp_ms, 0, MAX_TIMESTAMP_MS)
        self._look_for(partitions, timestamp_ms)

    def position(self, topic: str, partition: int) -> int:
        """Offset of the next record that is handed out. Waits until it is known."""
        where = TopicPartition(topic, partition)
        with self._changed:
            self._slot(topic, partition)
        self._await_positions([where])
        with self._changed:
            offset = self._position(self._slot(topic, partition))
            trouble = self._fetcher.slots[where].trouble
        if offset == NO_OFFSET and trouble is not None:
            raise trouble
        return offset

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Log start offset of each partition."""
        return self._find(dict.fromkeys(several_partitions(partitions), EARLIEST))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermark of each partition (exclusive)."""
        return self._find(dict.fromkeys(several_partitions(partitions), LATEST))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """First offset with at least that timestamp (ms); None: there is none."""
        found = self._find(times)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def lag(self) -> dict[TopicPartition, int]:
        """Records between each position and the end of its partition, asked now.

        A partition whose position is not known (yet, or because of an error) is left out.
        """
        with self._changed:
            # Positions first: they only move towards the ends that are asked for then.
            known = {one: self._position(slot) for one, slot in self._fetcher.slots.items()}
        positions = {one: offset for one, offset in known.items() if offset != NO_OFFSET}
        ends = self.end_offsets(positions)
        return {one: max(0, ends[one] - offset) for one, offset in positions.items()}

    # -- Flow and state ----------------------------------------------------------------------

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of `partitions` (none given: all) until `resume`."""
        with self._changed:
            slots = self._slots(partitions)
            for slot in slots:
                slot.paused = True
            # What an iteration holds of them is fetched again.
            back = self._ahead.drop({slot.partition for slot in slots})
            for partition, offset in back.items():
                self._fetcher.rewind(self._fetcher.slots[partition], offset)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        with self._changed:
            for slot in self._slots(partitions):
                slot.paused = False
        self._agent.wake()

    @property
    def paused(self) -> set[TopicPartition]:
        """Partitions that `pause` holds back."""
        with self._changed:
            return {one for one, slot in self._fetcher.slots.items() if slot.paused}

    def health(self) -> Health:
        """Whether this consumer gets on, since when, why not, and what to do."""
        with self._changed:
            return health_of(
                self._fetcher.slots.values(), self._agent.failure, self._poller.last_record_ms
            )

    def close(self, timeout: float | None = None) -> None:
        """Stop, within `timeout` seconds (None: 5); what waits in another thread ends at once.

        Idempotent; nothing can be lost by it, whatever the timeout.
        """
        timeout = CLOSE_TIMEOUT_S if timeout is None else check_timeout(timeout)
        self._closed = True
        with self._changed:
            self._changed.notify_all()
        self._client.close(timeout)

    def on_forked(self) -> None:
        """In the child of a fork: refuse, unless nothing was started yet."""
        if self._client.forked:
            self._agent.on_forked()
            self._poller.on_forked()

    # -- Within ------------------------------------------------------------------------------

    @property
    def _changed(self) -> threading.Condition:
        return self._agent.changed

    def _find(self, targets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._client.refuse_io_thread("waiting for an offset")
        self._check_open()
        self._learn_new(several_partitions(targets))
        timeout_ms = self._client.config.request_timeout_ms
        return find_offsets(self._agent, targets, timeout_ms, self._check_open)

    def _look_for(self, partitions: Sequence[TopicPartition], target_ms: int) -> None:
        with self._changed:
            slots = self._slots(partitions)
            for slot in slots:
                self._ahead.drop((slot.partition,))
                self._fetcher.look_for(slot, target_ms)
        self._agent.wake()
        self._await_positions([slot.partition for slot in slots], leave_errors=True)

    def _slots(self, partitions: Sequence[TopicPartition]) -> list[Slot]:
        if not partitions:
            return list(self._fetcher.slots.values())
        return [self._slot(*one_partition(partition)) for partition in partitions]

    def _slot(self, topic: str, partition: int) -> Slot:
        self._check_open()
        slot = self._fetcher.slots.get(one_partition((topic, partition)))
        if slot is None:
            raise UnknownPartition(
                f"{topic}-{partition} is not assigned to this consumer",
                hint="assign or subscribe to it first",
            )
        return slot

    def _position(self, slot: Slot) -> int:
        offset = self._ahead.first_of(slot.partition)
        return slot.position if offset is None else offset

    def _await_positions(
        self, partitions: Sequence[TopicPartition], *, leave_errors: bool = False
    ) -> None:
        self._client.refuse_io_thread("waiting for a position")
        await_positions(
            self._agent,
            self._fetcher,
            partitions,
            self._client.config.request_timeout_ms,
            self._check_open,
            leave_errors=leave_errors,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the consumer is closed", hint="make a new one")
        if self._client.forked:
            raise forked_error()
        if self._agent.failure is not None:
            raise self._agent.failure
