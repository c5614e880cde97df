"""`Consumer`: records of topics, in offset order per partition.

Owns the façade: arguments, waiting, callbacks. The core is `client.fetcher`; decoding is
`client.hand_out`. Without a group it reads all partitions it is given and commits nothing.

Invariants:
    CN1 Every call has a deadline; waits end at once on Ctrl-C, close or an error.
    CN2 Callbacks run on the thread that polls, without a lock held.
    CN3 `position` is the offset of the next record this consumer hands out (or yields).
"""

import logging
import os
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

from ringlog.client.config import ClientConfig, bootstrap_addresses, check_number
from ringlog.client.connection import Client, forked_error, monotonic_ms
from ringlog.client.consumer_config import ConsumerConfig, Deserializer
from ringlog.client.errors import (
    ClientClosed,
    DeadlineExceeded,
    InvalidArgument,
    RinglogError,
    UnknownPartition,
    error_from,
)
from ringlog.client.fetch_agent import Callback, FetchAgent
from ringlog.client.fetch_slot import Slot, SlotState
from ringlog.client.fetcher import RESETS, Fetcher, Lost
from ringlog.client.hand_out import HandOut
from ringlog.client.health import Health, health_of
from ringlog.client.messages import EARLIEST, LATEST, MetadataRequest, MetadataResponse
from ringlog.client.offsets import find_offsets
from ringlog.client.record import Record
from ringlog.client.replay import Replay
from ringlog.client.requests import ANY_BROKER
from ringlog.client.retry import Backoff
from ringlog.storage.types import TopicPartition

MAX_TIMESTAMP_MS = 2**48 - 1

log = logging.getLogger(__name__)


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
        auto_offset_reset: str = "latest",
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
        if group_id is not None:
            raise InvalidArgument(
                "group_id is set, and consumer groups are not built yet",
                hint="leave it out: the consumer then reads all partitions and commits nothing",
            )
        self._config = ConsumerConfig(
            auto_offset_reset=auto_offset_reset,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_wait_ms=fetch_max_wait_ms,
            fetch_max_bytes=fetch_max_bytes,
            max_partition_fetch_bytes=max_partition_fetch_bytes,
            buffer_memory=buffer_memory,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        self._client = Client(
            ClientConfig(
                bootstrap_addresses(bootstrap_servers, os.environ),
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                bootstrap_timeout_ms=bootstrap_timeout_ms,
                connect_timeout_ms=connect_timeout_ms,
                retry_backoff_ms=retry_backoff_ms,
                retry_backoff_max_ms=retry_backoff_max_ms,
                metadata_max_age_ms=metadata_max_age_ms,
            )
        )
        # Jitter only: nothing secret depends on it.
        rng = random.Random()  # noqa: S311 not for cryptography
        self._fetcher = Fetcher(
            self._config.limits,
            reset=auto_offset_reset,
            backoff=Backoff(retry_backoff_ms, retry_backoff_max_ms),
            rng=rng,
        )
        self._agent = FetchAgent(self._client, self._fetcher, max_wait_ms=fetch_max_wait_ms)
        self._changed = self._agent.changed
        self._hand_out = HandOut(self._fetcher, key_deserializer, value_deserializer)
        self._on_lost = on_lost or _warn_lost
        self._on_assign: Callback | None = None
        self._on_revoke: Callback | None = None
        self._yielding: deque[Record] = deque()
        """Taken by the iterator, not yet yielded."""
        self._last_record_ms = monotonic_ms()
        self._closed = False
        self._client.attach(self._agent)
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:
                self.close(0)
                raise

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
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        self._check_open()
        answer = self._client.call(ANY_BROKER, MetadataRequest(list(names)))
        wanted: list[TopicPartition] = []
        for found in answer.expect(MetadataResponse).topics:
            if found.error is not None:
                raise error_from(found.error)
            wanted += [TopicPartition(found.name, row.partition) for row in found.partitions]
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._assign(wanted, names)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly `partitions`; those read before go on where they are.

        Raises:
            DeadlineExceeded, ClientClosed, ClientForked, or what a broker says of a partition.
        """
        self._check_open()
        self._assign([TopicPartition(*one) for one in partitions], ())

    def _assign(self, wanted: list[TopicPartition], subscribed: tuple[str, ...]) -> None:
        with self._changed:
            before = list(self._fetcher.slots)
            reset = RESETS[self._config.auto_offset_reset]
            self._fetcher.assign(wanted, EARLIEST if reset is None else reset)
            self._agent.subscribed = subscribed
            self._drop_yielding(one for one in before if one not in self._fetcher.slots)
        self._wake()
        gone = [one for one in before if one not in wanted]
        new = [one for one in wanted if one not in before]
        if gone and self._on_revoke is not None:
            self._on_revoke(gone)
        self._await_positions(new)
        if new and self._on_assign is not None:
            self._on_assign(new)

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
            CorruptRecord, PartitionDamaged, UnknownTopic, StaleTopic and the like: one partition
                cannot go on; the next poll goes on with the others. Seek to try it again.
            DeserializationFailed: `record` has the raw record; seek past it to go on.
            ClientClosed, ClientForked.
        """
        check_number("max_records", max_records, 1, 2**31 - 1)
        self._client.refuse_io_thread("poll()")
        until_ms = monotonic_ms() + int(timeout * 1000)
        while True:
            records, lost, gained = self._poll_once(until_ms, max_records)
            for event in lost:
                self._on_lost(event)
            if gained and self._on_assign is not None:
                self._on_assign(gained)
            if records or (not lost and not gained) or monotonic_ms() >= until_ms:
                return records

    def _poll_once(
        self, until_ms: int, max_records: int
    ) -> tuple[list[Record], list[Lost], list[TopicPartition]]:
        """Wait for records or events; raises a partition's error when nothing else is there."""
        with self._changed:
            while True:
                self._check_open()
                records = self._take(max_records)
                lost, self._fetcher.lost = self._fetcher.lost, []
                gained, self._agent.gained = self._agent.gained, []
                if records or lost or gained:
                    break
                error = self._fetcher.take_error()
                if error is not None:
                    raise error
                left_ms = until_ms - monotonic_ms()
                if left_ms <= 0:
                    break
                self._changed.wait(left_ms / 1000)
        if records:
            self._last_record_ms = monotonic_ms()
            self._wake()
        return records, lost, gained

    def _take(self, max_records: int) -> list[Record]:
        if not self._yielding:
            return self._hand_out.take(max_records)
        count = min(max_records, len(self._yielding))
        return [self._yielding.popleft() for _ in range(count)]

    def __iter__(self) -> Iterator[Record]:
        """Records, for ever; ends when the consumer is closed by another thread."""
        while True:
            try:
                records = self.poll(3600.0)
            except ClientClosed:
                return
            with self._changed:
                self._yielding.extendleft(reversed(records))
            while True:
                with self._changed:
                    if not self._yielding:
                        break
                    record = self._yielding.popleft()
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
        return iter(Replay(self._reader, topic, start, end))

    def _reader(self) -> "Consumer":
        """A consumer like this one, with nothing assigned."""
        config, io = self._config, self._client.config
        return Consumer(
            bootstrap_servers=io.bootstrap,
            client_id=io.client_id,
            auto_offset_reset="none",
            max_partition_fetch_bytes=config.max_partition_fetch_bytes,
            buffer_memory=config.buffer_memory,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            request_timeout_ms=io.request_timeout_ms,
            bootstrap_timeout_ms=io.bootstrap_timeout_ms,
        )

    # -- Positions ---------------------------------------------------------------------------

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at `offset`. An offset that is gone is reported by the next poll."""
        check_number("offset", offset, 0, 2**63 - 1)
        with self._changed:
            slot = self._slot(topic, partition)
            self._drop_yielding((slot.partition,))
            self._fetcher.seek(slot, offset)
        self._wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start of `partitions` (none given: all)."""
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
            for record in self._yielding:
                if (record.topic, record.partition) == where:
                    return record.offset
            return self._slot(topic, partition).position

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Log start offset of each partition."""
        return self._find(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermark of each partition (exclusive)."""
        return self._find(partitions, LATEST)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """First offset with at least that timestamp (ms); None: there is none."""
        self._check_open()
        found = find_offsets(self._client, times)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def lag(self) -> dict[TopicPartition, int]:
        """Records between each position and the end of its partition, asked now."""
        ends = self.end_offsets(self.assignment)
        return {one: max(0, end - self.position(*one)) for one, end in ends.items()}

    # -- Flow and state ----------------------------------------------------------------------

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of `partitions` (none given: all) until `resume`."""
        with self._changed:
            for slot in self._slots(partitions):
                slot.paused = True
                self._rewind_yielding(slot)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        with self._changed:
            for slot in self._slots(partitions):
                slot.paused = False
        self._wake()

    @property
    def paused(self) -> set[TopicPartition]:
        """Partitions that `pause` holds back."""
        with self._changed:
            return {one for one, slot in self._fetcher.slots.items() if slot.paused}

    def health(self) -> Health:
        """Whether this consumer gets on, since when, why not, and what to do."""
        with self._changed:
            return health_of(
                self._fetcher.slots.values(), self._agent.failure, self._last_record_ms
            )

    def close(self, timeout: float | None = None) -> None:
        """Stop. Idempotent; a poll in another thread ends with ClientClosed."""
        self._closed = True
        with self._changed:
            self._changed.notify_all()
        self._client.close(timeout)

    # -- Within ------------------------------------------------------------------------------

    def _find(
        self, partitions: Iterable[TopicPartition], target_ms: int
    ) -> dict[TopicPartition, int]:
        self._check_open()
        return find_offsets(self._client, dict.fromkeys(partitions, target_ms))

    def _look_for(self, partitions: Sequence[TopicPartition], target_ms: int) -> None:
        with self._changed:
            slots = self._slots(partitions)
            for slot in slots:
                self._drop_yielding((slot.partition,))
                self._fetcher.look_for(slot, target_ms)
        self._wake()
        self._await_positions([slot.partition for slot in slots])

    def _slots(self, partitions: Sequence[TopicPartition]) -> list[Slot]:
        if not partitions:
            return list(self._fetcher.slots.values())
        return [self._slot(*partition) for partition in partitions]

    def _slot(self, topic: str, partition: int) -> Slot:
        self._check_open()
        slot = self._fetcher.slots.get(TopicPartition(topic, partition))
        if slot is None:
            raise UnknownPartition(
                f"{topic}-{partition} is not assigned to this consumer",
                hint="assign or subscribe to it first",
            )
        return slot

    def _await_positions(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait until no partition of these is looked for any more; raises what hinders one."""
        self._client.refuse_io_thread("waiting for a position")
        until_ms = monotonic_ms() + self._client.config.request_timeout_ms
        with self._changed:
            while True:
                self._check_open()
                slots = [
                    self._fetcher.slots[one] for one in partitions if one in self._fetcher.slots
                ]
                waiting = [slot for slot in slots if slot.state is SlotState.LOOKING]
                for slot in slots:
                    if slot.state is SlotState.HALTED and slot.error is not None:
                        error, slot.error = slot.error, None
                        raise error
                left_ms = until_ms - monotonic_ms()
                if not waiting:
                    return
                if left_ms <= 0:
                    raise _no_position(waiting[0], self._client.config.request_timeout_ms)
                self._changed.wait(left_ms / 1000)

    def _rewind_yielding(self, slot: Slot) -> None:
        """Take back what the iterator holds of a partition: it is fetched again."""
        for record in self._yielding:
            if (record.topic, record.partition) == slot.partition:
                self._fetcher.seek(slot, record.offset)
                self._drop_yielding((slot.partition,))
                return

    def _drop_yielding(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        if gone and self._yielding:
            self._yielding = deque(
                one for one in self._yielding if (one.topic, one.partition) not in gone
            )

    def _wake(self) -> None:
        self._client.post(_nothing)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the consumer is closed", hint="make a new one")
        if self._client.forked:
            raise forked_error()
        if self._agent.failure is not None:
            raise self._agent.failure


def _nothing(_now_ms: int) -> None:
    """Makes the IO thread take a turn."""


def _warn_lost(event: Lost) -> None:
    log.warning("%s: offsets %d to %d (exclusive) were deleted before they were read", *event)


def _no_position(slot: Slot, waited_ms: int) -> RinglogError:
    why = slot.trouble.cause if slot.trouble is not None else "no answer came"
    return DeadlineExceeded(
        f"the position in {slot.partition} is not known after {waited_ms} ms: {why}",
        hint="the search goes on; poll again, or raise request_timeout_ms",
    )
