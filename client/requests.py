"""Requests and answers as values, and where a request may go.

Owns the shapes the session and its users exchange. Must not know connections.

Invariants:
    Q1  A request gets exactly one `Answer`.
    Q2  `Answer.sent` False means that no byte of the request left this process in any attempt:
        whatever it asked for was definitely not done.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from ringlog.client.errors import InternalError, RinglogError
from ringlog.client.messages import APIS, ApiKey, Message
from ringlog.client.metadata import SecondLook
from ringlog.client.timers import TimedCall
from ringlog.storage.types import Buffer

M = TypeVar("M", bound=Message)


class AnyBroker(NamedTuple):
    """Whichever broker can be reached."""


class AtAddress(NamedTuple):
    """Exactly the broker that answers at `host:port`."""

    address: str


class AtBroker(NamedTuple):
    """The broker with this id, wherever it is now."""

    broker_id: int


class AtLeader(NamedTuple):
    """The leader of a partition, wherever it is now; NOT_LEADER is followed."""

    topic: str
    partition: int


Route = AnyBroker | AtAddress | AtBroker | AtLeader
ANY_BROKER = AnyBroker()

API_OF: dict[type[Message], ApiKey] = {api.request: key for key, api in APIS.items()}


class Answer(msgspec.Struct, frozen=True):
    """How a request ended: with a body, or with an error."""

    body: Message | None = None
    frames: Sequence[Buffer] = ()
    """Payload frames of the response; valid as long as they are referenced."""
    error: RinglogError | None = None
    sent: bool = True
    """Whether any attempt left this process."""
    lost: bool = False
    """Whether an attempt left this process and got no answer: it may have been carried out."""
    address: str = ""
    """The broker that answered, or where it was tried last."""

    def expect(self, kind: type[M]) -> M:
        """Return the body. Raises the error there is instead."""
        if self.error is not None:
            raise self.error
        if not isinstance(self.body, kind):
            raise InternalError(f"{self.address} answered with {type(self.body).__name__}")
        return self.body


OnDone = Callable[[Answer, int], None]
"""(answer, now_ms): called on the client's IO thread; must not wait."""


class Request:
    """One request on its way. The session alone changes it after `submit`."""

    __slots__ = (
        "address",
        "api",
        "attempt_timer",
        "attempts",
        "body",
        "correlation_id",
        "deadline_ms",
        "done",
        "first_ms",
        "frames",
        "last_error",
        "look",
        "lost",
        "on_done",
        "retry",
        "route",
        "sent",
        "silent",
        "timeout_ms",
        "timer",
    )

    def __init__(
        self,
        route: Route,
        body: Message,
        frames: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
        on_done: OnDone,
        retry: bool = True,
        silent: bool = False,
    ) -> None:
        """Describe a request.

        Args:
            route: where to.
            body: one of the request types of `client.messages`.
            frames: payload frames behind the header.
            timeout_ms: whole time from submit to answer, retries included.
            on_done: gets the one answer.
            retry: try again after a lost connection or a retriable error, until the deadline.
                False: one attempt, and what became of it is the answer.
            silent: the broker sends no answer (produce with acks=0); answered once sent.
        """
        self.route = route
        self.body = body
        self.frames = frames
        self.api = API_OF[type(body)]
        self.timeout_ms = timeout_ms
        self.deadline_ms = 0
        self.on_done = on_done
        self.retry = retry
        self.silent = silent
        self.attempts = 0
        self.correlation_id = 0
        self.address = ""
        self.sent = False
        self.lost = False
        self.done = False
        self.last_error: RinglogError | None = None
        self.look = SecondLook()
        self.first_ms: int | None = None
        self.timer: TimedCall | None = None
        self.attempt_timer: TimedCall | None = None

    def cancel_timers(self) -> None:
        """It has ended: nothing is due any more."""
        for timer in (self.timer, self.attempt_timer):
            if timer is not None:
                timer.cancel()
