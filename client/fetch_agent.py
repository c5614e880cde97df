"""The fetcher on the client's IO thread.

Owns the lock around the fetcher, the growth of subscribed topics, and waking whoever polls.
Must not know what is handed out.

Invariants:
    FA1 The fetcher is touched with `changed` held only.
    FA2 A partition that a subscribed topic gained later starts at its earliest offset, so that
        nothing that was written before it was noticed is passed over.
"""

import threading
from collections.abc import Callable

from ringlog.client.connection import Client
from ringlog.client.errors import RinglogError
from ringlog.client.fetcher import Fetcher, Outgoing
from ringlog.client.messages import EARLIEST
from ringlog.client.requests import Answer, AtBroker, OnDone, Request
from ringlog.storage.types import TopicPartition


class FetchAgent:
    """See the module; an `Agent` of `client.connection`."""

    def __init__(self, client: Client, fetcher: Fetcher, *, max_wait_ms: int) -> None:
        self.changed = threading.Condition()
        self.fetcher = fetcher
        self.failure: RinglogError | None = None
        """Why the IO thread ended."""
        self.subscribed: tuple[str, ...] = ()
        self.gained: list[TopicPartition] = []
        """Partitions assigned by growth, not yet reported."""
        self._client = client
        self._timeout_ms = max_wait_ms + client.config.request_timeout_ms
        self._metadata_seen = -1

    def turn(self, now_ms: int) -> int | None:
        """Send what is due (`Agent.turn`)."""
        session = self._client.session
        with self.changed:
            if session.metadata_answers != self._metadata_seen:
                self._metadata_seen = session.metadata_answers
                self._grow()
            due = self.fetcher.turn(now_ms, session.metadata)
            stale, self.fetcher.stale_topics = self.fetcher.stale_topics, set()
            deadline_ms = self.fetcher.next_deadline_ms(now_ms)
            if self.fetcher.has_error:
                self.changed.notify_all()
        for outgoing in due:
            session.submit(
                Request(
                    AtBroker(outgoing.broker_id),
                    outgoing.body,
                    timeout_ms=self._timeout_ms,
                    on_done=self._answered(outgoing),
                    retry=False,
                ),
                now_ms,
            )
        if stale:
            session.refresh(sorted(stale), now_ms)
        return deadline_ms

    def on_client_ended(self, error: RinglogError) -> None:
        """Wake everybody who waits (`Agent.on_client_ended`)."""
        with self.changed:
            self.failure = error
            self.changed.notify_all()

    def _answered(self, outgoing: Outgoing) -> OnDone:
        def on_done(answer: Answer, now_ms: int) -> None:
            with self.changed:
                self.fetcher.on_answer(outgoing, answer, now_ms)
                self.changed.notify_all()

        return on_done

    def _grow(self) -> None:
        metadata = self._client.session.metadata
        for topic in self.subscribed:
            view = metadata.topic(topic)
            if view is None:
                continue
            have = self.fetcher.slots
            wanted = [TopicPartition(topic, number) for number in range(len(view.partitions))]
            new = [partition for partition in wanted if partition not in have]
            if new and any(partition in have for partition in wanted):
                self.fetcher.assign([*have, *new], EARLIEST)
                self.gained += new


Callback = Callable[[list[TopicPartition]], object]
"""Gets the partitions that came or went."""
