"""Every partition of this broker: which are open, which are not and why.

Owns the map from names to partitions, their opening and closing, what their driver asks of the
shell, and the timers of weak flush policies. Must not know requests, nor who decides that a
topic exists: `broker.topics` tells it.

Invariants:
    H1  A partition is handed out only while its topic is served here under that UUID, and only
        when it is open and ready.
    H2  A damaged partition answers with its damage; the others go on.
    H3  After a failed write or flush the broker stops: `fatal` is called and nothing is retried.
    H4  Nothing here scans all partitions on a request, a commit or a timer's tick.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from ringlog.broker.disk_space import DiskSpace
from ringlog.broker.error_codes import broker_error
from ringlog.broker.metrics import CoreMetrics
from ringlog.broker.partition import Partition
from ringlog.broker.partition_files import Files, Opened
from ringlog.broker.partition_news import PartitionNews
from ringlog.broker.purgatory import ByteWaits
from ringlog.broker.shell import Shell
from ringlog.broker.shell_disk import ShellDisk
from ringlog.broker.topic_settings import TopicSettings
from ringlog.client.errors import (
    BrokerError,
    Busy,
    DiskFull,
    PartitionDamaged,
    StaleTopic,
    UnknownPartition,
    UnknownTopic,
)
from ringlog.replication.driver import Driver
from ringlog.replication.replicator import SoloReplicator
from ringlog.storage.errors import (
    AccessRefused,
    DamagedLog,
    DamagedState,
    FileMissing,
    LogDirFailed,
    ReadFailed,
    WrongDirectory,
)
from ringlog.storage.errors import DiskFull as StorageFull
from ringlog.storage.log_job import LogJob
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.types import Offset, TopicPartition

DAMAGE = (DamagedLog, DamagedState, FileMissing, ReadFailed, WrongDirectory)
"""Errors that cost one partition, not the broker."""

DISK_FULL_RETRY_MS = 500
REOPEN_MS = 5000

_log = logging.getLogger(__name__)


class Sleeper(Protocol):
    """A request that waits for something to read."""

    def wake(self) -> None:
        """Look again: there is something, or a partition has gone."""


class Slot:
    """The place of one partition: open, or why not. `error` counts only while it is not open."""

    __slots__ = ("error", "identity", "partition")

    def __init__(self, identity: PartitionIdentity) -> None:
        self.identity = identity
        self.partition: Partition | None = None
        self.error: BrokerError = Busy(
            f"partition {identity.topic_partition} is being opened", hint="try again in a moment"
        )

    @property
    def failure(self) -> BrokerError | None:
        """Why it serves nothing, or None."""
        return self.error if self.partition is None else self.partition.closed_by


class HostedTopic:
    """A topic of which this broker has partitions; `slots[i]` is partition i."""

    __slots__ = ("name", "settings", "slots", "topic_uuid")

    def __init__(self, name: str, topic_uuid: bytes, settings: TopicSettings) -> None:
        self.name = name
        self.topic_uuid = topic_uuid
        self.settings = settings
        self.slots: list[Slot] = []


class Partitions:
    """The host. On the reactor thread. It is the `Listener` of every partition."""

    def __init__(
        self,
        shell: Shell,
        files: Files,
        *,
        voter: str,
        space: DiskSpace,
        metrics: CoreMetrics,
    ) -> None:
        self.shell = shell
        self.files = files
        self.space = space
        self.metrics = metrics
        self.topics: dict[str, HostedTopic] = {}
        self.readers: ByteWaits[Partition, Sleeper] = ByteWaits()
        self._voter = voter
        self._when_ready: dict[Partition, Callable[[Exception | None], None]] = {}
        self._stopping = False
        self._flush_timers: set[Partition] = set()
        self.news = PartitionNews(shell.monotonic_ms)

    # -- look-up ---------------------------------------------------------------------------

    def find(self, topic: str, topic_uuid: bytes, partition: int) -> Partition:
        """Return a partition that serves requests. An empty UUID takes any.

        Raises:
            UnknownTopic, StaleTopic, UnknownPartition: it is not here under that name.
            PartitionDamaged, Busy: it is not open.
        """
        hosted = self.topics.get(topic)
        if hosted is None:
            raise unknown_topic(topic)
        if topic_uuid and topic_uuid != hosted.topic_uuid:
            raise StaleTopic(
                f"topic {topic!r} was deleted and made again", hint="look the topic up again"
            )
        if not 0 <= partition < len(hosted.slots):
            raise UnknownPartition(
                f"topic {topic!r} has partitions 0 to {len(hosted.slots) - 1}, not {partition}",
                hint="look the topic up again",
            )
        slot = hosted.slots[partition]
        if slot.partition is None:
            raise slot.error
        slot.partition.check_open()
        return slot.partition

    def slots(self) -> Iterator[Slot]:
        """Every slot."""
        for topic in self.topics.values():
            yield from topic.slots

    def count(self) -> int:
        """Number of partitions, damaged ones too."""
        return sum(len(topic.slots) for topic in self.topics.values())

    def damaged(self) -> list[tuple[TopicPartition, BrokerError]]:
        """Partitions that cannot be used, with their damage."""
        found: list[tuple[TopicPartition, BrokerError]] = []
        for slot in self.slots():
            error = slot.failure
            if isinstance(error, PartitionDamaged):
                found.append((slot.identity.topic_partition, error))
        return found

    # -- opening and closing ---------------------------------------------------------------

    def open(
        self,
        topic: HostedTopic,
        slots: Sequence[Slot],
        *,
        create: bool,
        on_done: Callable[[Exception | None], None],
    ) -> None:
        """Open `slots` of `topic`, or with `create` make them from nothing.

        `on_done` gets the first error that is not the damage of one partition.
        """
        left = len(slots)
        failure: Exception | None = None
        if not slots:
            on_done(None)
            return

        def one_done(error: Exception | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if left == 0:
                on_done(failure)

        for slot in slots:
            self._open_slot(topic, slot, create=create, on_done=one_done)

    def _open_slot(
        self,
        topic: HostedTopic,
        slot: Slot,
        *,
        create: bool,
        on_done: Callable[[Exception | None], None],
    ) -> None:
        settings, now_ms = topic.settings, self.shell.now_ms()
        # Nothing in memory survives a stop: opening it means making it.
        is_new = create or settings.in_memory
        work = self.files.create if is_new else self.files.open

        def opened(result: Opened | None, error: Exception | None) -> None:
            if isinstance(error, (*DAMAGE, AccessRefused)) and not create:
                self._note_damage(slot, error)
                on_done(None)
            elif result is None:
                assert error is not None, "a worker gives a result or an error"
                slot.error = broker_error(error)
                if isinstance(error, LogDirFailed):
                    self.shell.fatal(error)
                if isinstance(error, StorageFull) and not create:
                    # Its records are safe: the others serve, and this one when there is space.
                    self._reopen_later(topic, slot)
                    on_done(None)
                else:
                    on_done(error)
            else:
                self._begin(topic, slot, result, ready, is_new=is_new)

        def ready(error: Exception | None) -> None:
            """It serves, or found no space for its first entry."""
            if error is not None and create:
                on_done(error)
                return
            if error is not None and slot.failure is not None:
                slot.partition, slot.error = None, broker_error(error)
                self._reopen_later(topic, slot)
            on_done(None)

        self.shell.run(
            lambda: work(slot.identity, settings.log, in_memory=settings.in_memory, now_ms=now_ms),
            opened,
        )

    def _reopen_later(self, topic: HostedTopic, slot: Slot) -> None:
        def reopen() -> None:
            if self.topics.get(topic.name) is topic:
                self._open_slot(topic, slot, create=False, on_done=lambda _error: None)

        _log.warning("partition %s: %s", slot.identity.topic_partition, slot.error)
        self.shell.call_at(self.shell.monotonic_ms() + REOPEN_MS, reopen)

    def _begin(
        self,
        topic: HostedTopic,
        slot: Slot,
        opened: Opened,
        when_ready: Callable[[Exception | None], None],
        *,
        is_new: bool,
    ) -> None:
        key = slot.identity.topic_partition
        if not is_new:
            self.news.opened(key, opened.report)
        log = opened.log
        driver = Driver(
            log,
            SoloReplicator(opened.state, voter=self._voter, committed=log.base),
            ShellDisk(self.shell, slot.identity, opened.directory),
            flushed=topic.settings.log.flush_policy == "majority",
        )
        partition = Partition(
            key,
            topic.topic_uuid,
            log=log,
            driver=driver,
            settings=topic.settings,
            listener=self,
        )
        slot.partition = partition
        self._when_ready[partition] = when_ready
        partition.start(self.shell.monotonic_ms())

    def close_topic(self, name: str, error: BrokerError, on_done: Callable[[], None]) -> list[Slot]:
        """Serve a topic no more: its waits end with `error`, its readers look again.

        Returns its slots; `on_done` is called once the disk is done with all of them.
        """
        topic = self.topics.pop(name, None)
        slots = topic.slots if topic is not None else []
        self.drop(slots, error, on_done)
        return slots

    def drop(self, slots: Sequence[Slot], error: BrokerError, on_done: Callable[[], None]) -> None:
        """Let go of the open ones of `slots`; `on_done` is called once the disk is done."""
        open_slots = [slot for slot in slots if slot.partition is not None]
        left = len(open_slots)

        def idle() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                on_done()

        for slot in open_slots:
            assert slot.partition is not None
            self._shut(slot.partition, error)
            slot.partition.abandon()
            slot.partition.when_idle(idle)
        if not open_slots:
            on_done()

    def close_all(self, error: BrokerError, on_done: Callable[[], None]) -> None:
        """Graceful stop: flush everything, end every wait, close each log with a clean mark.

        A damaged one gets none, so that the next start looks at it closely; nor does one for
        which there is no space: that costs the next start a read, never a record.
        """
        self._stopping = True
        parts = [slot.partition for slot in self.slots() if slot.partition is not None]
        left = len(parts)
        if not parts:
            on_done()
            return

        def one_closed() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                on_done()

        for partition in parts:
            if partition.waits_for_space:
                self._give_up(partition)
            partition.when_idle(partial(self._close, partition, error, one_closed))

    def _close(self, partition: Partition, error: BrokerError, on_done: Callable[[], None]) -> None:
        def closed(_job: LogJob, failure: Exception | None) -> None:
            if isinstance(failure, StorageFull):
                _log.warning("a log is closed without a clean mark: %s", failure)
            elif failure is not None:
                self.shell.fatal(failure)
                return
            on_done()

        if partition.closed_by is not None or partition.is_abandoned:
            self._shut(partition, partition.closed_by or error)
            on_done()
            return
        self._shut(partition, error)
        self.shell.flush(partition.key, partition.close_job(), closed)

    def abandon(self, error: BrokerError) -> None:
        """End every wait with `error` at once."""
        for slot in self.slots():
            if slot.partition is not None:
                self._shut(slot.partition, error)

    def _shut(self, partition: Partition, error: BrokerError) -> None:
        partition.close(error)
        for reader in self.readers.gone(partition):
            reader.wake()

    # -- told by partitions ----------------------------------------------------------------

    def on_released(self, size_bytes: int) -> None:
        """There is room again."""
        self.metrics.unstored_bytes_now -= size_bytes

    def on_readable(self, partition: Partition, size_bytes: int) -> None:
        """Wake who waits for bytes, and who waits for the partition to be ready."""
        when_ready = self._when_ready.pop(partition, None)
        if when_ready is not None:
            when_ready(None)
        if size_bytes:
            for reader in self.readers.arrived(partition, size_bytes):
                reader.wake()

    def on_log_start(self, partition: Partition, log_start: Offset, *, was_asked: bool) -> None:
        """Tell operators."""
        self.news.log_start_moved(partition.key, log_start, was_asked=was_asked)

    def on_disk_full(self, partition: Partition, error: Exception) -> None:
        """Try again in a while; meanwhile measurements refuse new batches."""
        self.metrics.disk_full_retries += 1
        self._warn_full(f"partition {partition.key}: {error}; it is tried again")
        when_ready = self._when_ready.pop(partition, None)
        if when_ready is not None:
            # Whoever creates it hears of it; a start goes on with the others.
            when_ready(error)
        if self._stopping:
            self._give_up(partition)
            return
        self.shell.call_at(self.shell.monotonic_ms() + DISK_FULL_RETRY_MS, partition.retry)

    def on_storage_failed(self, partition: Partition, error: Exception) -> None:
        """Damage costs the partition; anything else ends the broker (H3)."""
        if isinstance(error, DAMAGE):
            self.damage(partition, error)
        elif isinstance(error, StorageFull) and partition in self._when_ready:
            self._warn_full(f"partition {partition.key}: {error}")
            when_ready = self._when_ready.pop(partition)
            self._shut(partition, broker_error(error))
            when_ready(error)
        else:
            self.shell.fatal(error)

    def check_space(self, size_bytes: int) -> None:
        """Let a request that needs `size_bytes` pass. Raises DiskFull, logged now and then."""
        try:
            self.space.check(size_bytes)
        except DiskFull as error:
            self._warn_full(f"requests are refused: {error.cause}")
            raise

    def _warn_full(self, text: str) -> None:
        if self.space.is_warning_due(self.shell.monotonic_ms()):
            _log.warning(
                "%s (%s has %s bytes free; free some space there: below disk_reserve_bytes "
                "records are refused, and with nothing free deleting is too)",
                text,
                self.files.path,
                self.space.free_bytes,
            )

    def _give_up(self, partition: Partition) -> None:
        _log.warning(
            "partition %s stops without a clean mark, because there is no space; the next start "
            "reads it, and nothing acknowledged is lost",
            partition.key,
        )
        partition.abandon()

    # -- damage ----------------------------------------------------------------------------

    def damage(self, partition: Partition, error: Exception) -> None:
        """A read found damage: close the partition, keep its files as they are."""
        if isinstance(partition.closed_by, PartitionDamaged):
            return
        damage = self._damage_of(partition.key, error)
        self._shut(partition, damage)
        when_ready = self._when_ready.pop(partition, None)
        if when_ready is not None:
            when_ready(None)

    def _note_damage(self, slot: Slot, error: Exception) -> None:
        slot.error = self._damage_of(slot.identity.topic_partition, error)

    def _damage_of(self, key: TopicPartition, error: Exception) -> PartitionDamaged:
        self.metrics.damaged_partitions += 1
        _log.error("partition %s is damaged and answers nothing: %s", key, error)
        return PartitionDamaged(
            f"partition {key} is damaged: {error}",
            hint=getattr(error, "hint", "")
            or "ringlog log verify DATA_DIR shows the extent; restore the files from a backup",
        )

    # -- flush policies --------------------------------------------------------------------

    def note_appended(self, partition: Partition, size_bytes: int) -> None:
        """A batch was appended: count it, and see that a weak policy flushes in time."""
        self.metrics.unstored_bytes_now += size_bytes
        if not partition.settings.in_memory:
            self.space.appended(size_bytes)
        log = partition.settings.log
        if log.flush_policy == "interval" and partition not in self._flush_timers:
            self._flush_timers.add(partition)
            self.shell.call_at(
                self.shell.monotonic_ms() + log.flush_interval_ms,
                lambda: self._flush_due(partition),
            )

    def _flush_due(self, partition: Partition) -> None:
        self._flush_timers.discard(partition)
        if partition.closed_by is None:
            partition.pump(sync=True)


def unknown_topic(name: str) -> UnknownTopic:
    """The error for a name that no topic has."""
    return UnknownTopic(
        f"topic {name!r} does not exist",
        hint=f"ringlog topic create {name}; or set auto_create_topics of the broker",
    )


def identity_of(name: str, topic_uuid: bytes, partition: int, created_ms: int) -> PartitionIdentity:
    """Identity of partition `partition` of a topic."""
    return PartitionIdentity(
        topic=name, topic_uuid=UUID(bytes=topic_uuid), partition=partition, created_ms=created_ms
    )
