"""The fetcher on the client's IO thread.

Owns the lock around the fetcher and the finders beside it, the growth of subscribed topics, and
waking whoever waits. Must not know what is handed out.

Invariants:
    FA1 The fetcher is touched with `changed` held only; no code of the application runs then.
    FA2 A partition that a subscribed topic gained later starts at its earliest offset, so that
        nothing that was written before it was noticed is passed over.
"""

import threading
from collections.abc import Callable

from ringlog.client.connection import Client
from ringlog.client.errors import RinglogError
from ringlog.client.fetcher import Fetcher, Outgoing
from ringlog.client.messages import EARLIEST, ListOffsetsRequest
from ringlog.client.requests import Answer, AtBroker, Request
from ringlog.client.session import ATTEMPTS_IN_TIME
from ringlog.storage.types import TopicPartition


class FetchAgent:
    """See the module; an `Agent` of `client.connection`."""

    def __init__(self, client: Client, fetcher: Fetcher, *, max_wait_ms: int) -> None:
        self.changed = threading.Condition()
        self.fetcher = fetcher
        self.finders: list[Fetcher] = []
        """Look-ups under way (`client.offsets`)."""
        self.failure: RinglogError | None = None
        """Why the IO thread ended."""
        self.subscribed: tuple[str, ...] = ()
        self.gained: list[TopicPartition] = []
        """Partitions assigned by growth, not yet reported."""
        self._client = client
        # A look is soon tried again: somebody waits for it.
        self._look_timeout_ms = client.config.request_timeout_ms // ATTEMPTS_IN_TIME
        self._fetch_timeout_ms = max_wait_ms + client.config.request_timeout_ms
        self._metadata_seen = -1

    def turn(self, now_ms: int) -> int | None:
        """Send what is due (`Agent.turn`)."""
        session = self._client.session
        with self.changed:
            if session.metadata_answers != self._metadata_seen:
                self._metadata_seen = session.metadata_answers
                self._grow()
            fetchers = [self.fetcher, *self.finders]
            due = [
                self._request(fetcher, outgoing)
                for fetcher in fetchers
                for outgoing in fetcher.turn(now_ms, session.metadata)
            ]
            stale = set().union(*(fetcher.stale_topics for fetcher in fetchers))
            for fetcher in fetchers:
                fetcher.stale_topics.clear()
            deadlines = [fetcher.next_deadline_ms(now_ms) for fetcher in fetchers]
            if any(fetcher.has_error for fetcher in fetchers):
                self.changed.notify_all()
        for request in due:
            session.submit(request, now_ms)
        if stale:
            session.refresh(sorted(stale), now_ms)
        return min((when for when in deadlines if when is not None), default=None)

    def wake(self) -> None:
        """Make the IO thread take a turn. Raises ClientClosed, ClientForked."""
        self._client.post(_nothing)

    def on_forked(self) -> None:
        """In the child of a fork: the lock may be held by nobody that lives."""
        self.changed = threading.Condition()

    def on_client_ended(self, error: RinglogError) -> None:
        """Wake everybody who waits (`Agent.on_client_ended`)."""
        with self.changed:
            self.failure = error
            self.changed.notify_all()

    def _request(self, fetcher: Fetcher, outgoing: Outgoing) -> Request:
        def on_done(answer: Answer, now_ms: int) -> None:
            with self.changed:
                fetcher.on_answer(outgoing, answer, now_ms)
                self.changed.notify_all()

        is_look = isinstance(outgoing.body, ListOffsetsRequest)
        return Request(
            AtBroker(outgoing.broker_id),
            outgoing.body,
            timeout_ms=self._look_timeout_ms if is_look else self._fetch_timeout_ms,
            on_done=on_done,
            retry=False,
        )

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


def _nothing(_now_ms: int) -> None:
    """Makes the IO thread take a turn."""


Callback = Callable[[list[TopicPartition]], object]
"""Gets the partitions that came or went."""
