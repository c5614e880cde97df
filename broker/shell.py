"""What the broker's core may ask of the outside world, as protocols.

Owns the seam between the shell (`reactor`, `flusher`, `workers`, `server`) and the core
(partitions and handlers). The simulator implements the same protocols with virtual time. Must
not know zmq, threads or files.

Invariants:
    B1  Every callback runs on the reactor thread; no callback runs inside the call that took it.
    B2  Nothing here waits: a call that needs a disk answers through its callback.
    B3  A reply is answered at most once; a second answer is our bug and asserts.
    B4  Jobs of one partition run in the order given, one at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ringlog.client.errors import BrokerError
from ringlog.client.messages import ApiKey, Message
from ringlog.storage.files import File
from ringlog.storage.types import Buffer, TopicPartition

T = TypeVar("T")
J = TypeVar("J", bound="FlushJob")


class Reply(Protocol):
    """The one answer to one request. May be kept and answered later, on the reactor thread."""

    @property
    def done(self) -> bool:
        """Whether it was answered or discarded."""

    @property
    def room_bytes(self) -> int:
        """Payload bytes this peer may be sent now without being in danger of a drop.

        A fetch answers with no more than this (one batch always fits).
        """

    def send(self, body: Message, frames: Sequence[Buffer] = ()) -> None:
        """Answer with a body and payload frames. To a vanished peer: dropped and counted."""

    def fail(self, error: BrokerError) -> None:
        """Answer the whole request with an error."""

    def discard(self) -> None:
        """End the request without an answer (produce with acks=0)."""


Handler = Callable[[Any, list[memoryview], Reply, int], None]
"""(typed request, payload frames, reply, now_ms wall clock) -> None.

Runs on the reactor thread and never waits. A `BrokerError` or `StorageError` raised out of it
becomes the reply; any other exception is our bug: logged, answered INTERNAL. The frames stay
valid as long as they are referenced; the request type is that of the API table.
"""


class Timer(Protocol):
    """One pending call."""

    def cancel(self) -> None:
        """Never call back. Idempotent, also after the call."""


class FlushJob(Protocol):
    """What the flusher needs of a `storage.log_job.LogJob`. Phases run once each, in order."""

    def write(self) -> None:
        """Do the ordered steps; what it leaves to be flushed is in `files_to_sync`."""

    def files_to_sync(self) -> Sequence[File]:
        """Files that `write` left dirty and whose flush the job's answer waits for."""

    def mark(self) -> None:
        """Put the durable mark, after all of `files_to_sync` were flushed."""


class Shell(Protocol):
    """Clock, timers, disk and worker threads, and the way out."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970: for timestamps and retention only."""

    def monotonic_ms(self) -> int:
        """Monotonic clock, milliseconds: for deadlines only."""

    def flush(
        self,
        partition: TopicPartition,
        job: J,
        on_done: Callable[[J, Exception | None], None],
        *,
        sync: bool = True,
    ) -> None:
        """Write, flush and mark `job` with the next group; then `on_done(job, error)`.

        `sync` False (weak flush policies): written only, neither flushed nor marked. With an
        error nothing is known about what reached the disk: call `fatal`.
        """

    def run(
        self, fn: Callable[[], T], on_done: Callable[[T | None, Exception | None], None]
    ) -> None:
        """Call `fn` on a worker, then `on_done(result, None)` or `on_done(None, error)`."""

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Timer:
        """Call back once `monotonic_ms()` has reached the time given."""

    def fatal(self, error: Exception) -> None:
        """Stop the broker: waiters get STORAGE_FAILED, the text and hint go to stderr, exit 1.

        Only the first error counts; may be called from any thread.
        """


class Core(Protocol):
    """What the server drives: every partition and handler of one broker."""

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """One handler for each API this broker serves."""

    def start(self, on_done: Callable[[Exception | None], None]) -> None:
        """Open what the registry names. Damaged partitions are no error here.

        Requests are read only after `on_done(None)`.
        """

    def stop(self, on_done: Callable[[], None]) -> None:
        """Graceful stop: answer every waiter, flush, close the logs with clean marks.

        From this call on dispatch refuses requests that write, with BROKER_STOPPING.
        """

    def abandon(self, error: BrokerError) -> None:
        """Answer every waiter with `error` at once.

        Nothing of this protocol is called after; callbacks of `Shell` may still come.
        """
