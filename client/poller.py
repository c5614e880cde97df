"""Taking records out, waiting for them, and reporting events: what `poll` and iteration share.

Owns the order of it, which thread's turn it is, and the records an iteration is ahead with. Must
not know assignments, or what a seek means.

Invariants:
    PO1 One thread at a time takes records out; the others wait no longer than their own time.
    PO2 Events are reported before a record is taken out, one by one and without a lock: what a
        callback raises comes out of the call, and loses no record and no other event.
    PO3 An error is raised only when nothing can be handed out before it.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

from ringlog.client.ahead import Ahead
from ringlog.client.connection import monotonic_ms
from ringlog.client.consumer_config import Deserializer
from ringlog.client.errors import InvalidArgument
from ringlog.client.fetch_agent import Callback, FetchAgent
from ringlog.client.fetcher import BehindEnd, Lost
from ringlog.client.hand_out import HandOut
from ringlog.client.record import Record

log = logging.getLogger("ringlog.client")

ITERATION_RECORDS = 500
"""How many records an iteration takes out at once."""


class Poller:
    """See the module. One per consumer."""

    def __init__(
        self,
        agent: FetchAgent,
        *,
        key: Deserializer | None,
        value: Deserializer | None,
        on_lost: Callable[[Lost], object] | None,
        check_open: Callable[[], None],
    ) -> None:
        self.ahead = Ahead()
        self.on_assign: Callback | None = None
        """Told of partitions that a subscribed topic gained."""
        self.last_record_ms = monotonic_ms()
        self._agent = agent
        self._fetcher = agent.fetcher
        self._hand_out = HandOut(agent.fetcher, agent.changed, key, value)
        self._on_lost = on_lost or _warn_lost
        self._check_open = check_open
        self._taking = threading.RLock()
        """Comes before `agent.changed`."""

    def poll(self, max_records: int, until_ms: int) -> list[Record]:
        """Up to `max_records` records; none when time was up."""
        records: list[Record] = []

        def take() -> int:
            with self._agent.changed:
                records.extend(self.ahead.take(max_records))
            return len(records) or self._hand_out.take(max_records, records.extend)

        self._wait_for(take, until_ms)
        return records

    def fill(self, until_ms: int) -> None:
        """Take records for `ahead`, unless it has some or time is up."""

        def take() -> int:
            with self._agent.changed:
                if self.ahead:
                    return 1
            return self._hand_out.take(ITERATION_RECORDS, self.ahead.extend)

        self._wait_for(take, until_ms)

    def on_forked(self) -> None:
        """In the child of a fork: the lock may be held by nobody that lives."""
        self._taking = threading.RLock()

    def _wait_for(self, take: Callable[[], int], until_ms: int) -> None:
        """Call `take` until it took something or time is up."""
        self._check_open()
        self._refuse_idle()
        while True:
            self._check_open()
            self._report()
            # Another thread that is slow to decode does not hold this one up beyond its time.
            left_ms = max(0, until_ms - monotonic_ms())
            if not self._taking.acquire(timeout=left_ms / 1000):
                return
            try:
                count = take()
            finally:
                self._taking.release()
            if count:
                self.last_record_ms = monotonic_ms()
                # What was taken out made room for more.
                self._agent.wake()
                return
            with self._agent.changed:
                self._check_open()
                if self._fetcher.has_records or self._fetcher.lost or self._agent.gained:
                    continue
                error = self._fetcher.take_error()
                if error is not None:
                    raise error
                left_ms = until_ms - monotonic_ms()
                if left_ms <= 0:
                    return
                self._agent.changed.wait(left_ms / 1000)

    def _refuse_idle(self) -> None:
        """Not while waiting: another thread may be between two assignments."""
        with self._agent.changed:
            if not self._fetcher.slots and not self._agent.subscribed:
                raise InvalidArgument(
                    "nothing is assigned to this consumer, so nothing can come",
                    hint="call subscribe(topics) or assign(partitions) first",
                )

    def _report(self) -> None:
        while True:
            with self._agent.changed:
                if self._fetcher.lost:
                    event = self._fetcher.lost.pop(0)
                    call = (
                        partial(self._on_lost, event)
                        if isinstance(event, Lost)
                        else partial(_warn_behind_end, event)
                    )
                elif self._agent.gained:
                    gained, self._agent.gained = self._agent.gained, []
                    call = partial(self.on_assign or _nobody, gained)
                else:
                    return
            call()


def _nobody(_partitions: object) -> None:
    """Stands for a callback that was not given."""


def _warn_lost(event: Lost) -> None:
    log.warning("%s: offsets %d to %d (exclusive) were deleted before they were read", *event)


def _warn_behind_end(event: BehindEnd) -> None:
    log.warning("%s: offset %d lies behind the end, reading goes on at %d", *event)
