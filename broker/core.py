"""Every partition and handler of one broker, put together (`broker.shell.Core`).

Owns the handler table, the order of start and stop, and the periodic work: measuring free space
and applying retention. Must not know what a handler does.

Invariants:
    C1  After `start` has ended, every partition is open, or its slot says why not.
    C2  A round of retention touches each partition once; one tick of it a bounded number.
"""

import logging
from collections.abc import Callable, Mapping

from ringlog.broker.context import Context
from ringlog.broker.disk_space import DiskSpace
from ringlog.broker.handle_broker import BrokerHandlers
from ringlog.broker.handle_fetch import FetchHandler
from ringlog.broker.handle_offsets import DeleteRecordsHandler, ListOffsetsHandler
from ringlog.broker.handle_produce import ProduceHandler
from ringlog.broker.handle_topics import TopicHandlers
from ringlog.broker.metrics import CoreMetrics
from ringlog.broker.partition import Partition
from ringlog.broker.partition_files import Files
from ringlog.broker.partitions import Partitions
from ringlog.broker.shell import Handler, Timer
from ringlog.broker.topics import Topics
from ringlog.client.errors import BrokerError, BrokerStopping
from ringlog.client.messages import ApiKey

RETENTION_SLICE = 64
"""Partitions looked at in one tick of a retention round."""

RETENTION_PAUSE_MS = 10

_log = logging.getLogger(__name__)


class BrokerCore:
    """Built once by `broker.server`; lives on the reactor thread."""

    def __init__(self, context: Context) -> None:
        config, shell = context.config, context.shell
        self.metrics = CoreMetrics()
        self._context = context
        self._shell = shell
        self._space = DiskSpace(config.disk_reserve_bytes)
        voter = context.directory_id
        self.partitions = Partitions(
            shell,
            Files(
                context.directory,
                context.marks,
                voter,
                memory_bytes=config.max_memory_topic_bytes,
            ),
            voter=voter,
            space=self._space,
            metrics=self.metrics,
        )
        self._topics = Topics(shell, context.registry, self.partitions)
        self._produce = ProduceHandler(
            shell, self.partitions, max_unstored_bytes=config.max_unflushed_bytes
        )
        self._fetch = FetchHandler(
            shell,
            self.partitions,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_waiting=config.max_waiting_fetches,
        )
        self._list_offsets = ListOffsetsHandler(shell, self.partitions)
        self._delete_records = DeleteRecordsHandler(shell, self.partitions)
        self._topic_handlers = TopicHandlers(context, self.partitions, self._topics)
        self._broker_handlers = BrokerHandlers(context, self.partitions)
        self._timers: dict[str, Timer] = {}
        self._stopped = False

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """One handler for each API but Versions, which the shell answers."""
        topics, broker = self._topic_handlers, self._broker_handlers
        return {
            ApiKey.METADATA: topics.metadata,
            ApiKey.CREATE_TOPIC: topics.create,
            ApiKey.DELETE_TOPIC: topics.delete,
            ApiKey.DESCRIBE_TOPIC: topics.describe,
            ApiKey.ALTER_TOPIC: topics.alter,
            ApiKey.ADD_PARTITIONS: topics.add_partitions,
            ApiKey.INIT_PRODUCER_ID: broker.init_producer_id,
            ApiKey.PRODUCE: self._produce.handle,
            ApiKey.FETCH: self._fetch.handle,
            ApiKey.LIST_OFFSETS: self._list_offsets.handle,
            ApiKey.DELETE_RECORDS: self._delete_records.handle,
            ApiKey.DESCRIBE_BROKER: broker.describe,
        }

    def start(self, on_done: Callable[[Exception | None], None]) -> None:
        """Measure free space, open what the registry names, then begin the periodic work."""

        def measured() -> None:
            self._topics.start(started)

        def started(error: Exception | None) -> None:
            self.partitions.news.started()
            if error is None and not self._stopped:
                self._schedule_space_check()
                self._schedule_retention(list(self._open_partitions()))
            on_done(error)

        self._measure_space(measured)

    def stop(self, on_done: Callable[[], None]) -> None:
        """Graceful stop: flush, answer every waiter, close the logs with clean marks."""
        self._end_periodic_work()
        stopping = BrokerStopping("the broker is shutting down", hint="try again in a moment")
        # A topic under way would be half closed; dispatch lets no further operation in.
        self._topics.queue.when_idle(lambda: self.partitions.close_all(stopping, on_done))

    def abandon(self, error: BrokerError) -> None:
        """Answer every waiter with `error` at once."""
        self._end_periodic_work()
        self._topic_handlers.abandon(error)
        self.partitions.abandon(error)

    def _end_periodic_work(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # -- free space ------------------------------------------------------------------------

    def _schedule_space_check(self) -> None:
        if self._stopped:
            return
        due_ms = self._shell.monotonic_ms() + self._context.config.disk_check_interval_ms
        self._timers["space"] = self._shell.call_at(
            due_ms, lambda: self._measure_space(self._schedule_space_check)
        )

    def _measure_space(self, then: Callable[[], None]) -> None:
        token = self._space.begin_measurement(self.metrics.unstored_bytes_now)

        def measured(free_bytes: int | None, error: Exception | None) -> None:
            if free_bytes is None:
                # The last measurement, minus what was appended since, goes on to hold.
                _log.warning("free space of the data directory cannot be told: %s", error)
            else:
                self._space.measured(free_bytes, token)
            then()

        self._shell.run(self.partitions.files.free_bytes, measured)

    # -- retention -------------------------------------------------------------------------

    def _open_partitions(self) -> list[Partition]:
        return [slot.partition for slot in self.partitions.slots() if slot.partition is not None]

    def _schedule_retention(self, left: list[Partition]) -> None:
        """Look at a slice of `left` at the next tick; with none left begin the next round."""
        if self._stopped:
            return
        if left:
            delay_ms = RETENTION_PAUSE_MS
        else:
            interval_ms = self._context.config.retention_check_interval_ms
            # Jittered, so that brokers started together do not unlink together.
            delay_ms = round(interval_ms * self._context.rng.uniform(0.8, 1.2))
        self._timers["retention"] = self._shell.call_at(
            self._shell.monotonic_ms() + delay_ms, lambda: self._retain(left)
        )

    def _retain(self, left: list[Partition]) -> None:
        left = left or self._open_partitions()
        now_ms = self._shell.now_ms()
        for partition in left[:RETENTION_SLICE]:
            partition.retain(now_ms)
        self._schedule_retention(left[RETENTION_SLICE:])
