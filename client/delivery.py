"""`Delivery`, the handle of one record on its way, and what it gives in the end.

Owns the public shape of an outcome. Everything is computed from the batch when asked for, so
that ending a batch costs the same for one record as for a thousand.

Invariants:
    V1  A delivery ends exactly once: with metadata, or with an error that says what is known.
        `DeliveryUnknown` is the only one after which the record may be stored.
"""

from collections.abc import Callable

import msgspec

from ringlog.client.arguments import optional_timeout
from ringlog.client.batch import Batch
from ringlog.client.errors import DeadlineExceeded, RinglogError


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """Where a record was stored. `offset` is -1 with `acks=0`: nobody says."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""


class Delivery(msgspec.Struct, gc=False, eq=False):
    """The handle that `send` returns."""

    batch: Batch
    index: int

    def __repr__(self) -> str:
        batch = self.batch
        if not batch.done:
            state = "open"
        elif (error := batch.error_of(self.index)) is not None:
            state = f"failed, {error.code}: {error.cause}"
        else:
            state = f"stored at offset {batch.offset_of(self.index)}"
        return f"<Delivery to {batch.topic}-{batch.partition}: {state}>"

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the end; the batch is sent at once.

        Args:
            timeout: seconds; None waits for `delivery_timeout_ms` at most.

        Raises:
            DeadlineExceeded: not ended within `timeout`; it goes on and may end later.
            DeliveryUnknown: no answer came; the record may be stored.
            RinglogError: any other: the record is definitely not stored.
        """
        batch = self.batch
        if not batch.done and not batch.wait(optional_timeout(timeout)):
            raise DeadlineExceeded(
                f"the delivery did not end within {timeout} s; it is still open",
                hint="wait again, or lower delivery_timeout_ms",
            )
        index = self.index
        error = batch.error_of(index)
        if error is not None:
            # Shared by all records of the batch: without this every raise would lengthen it.
            raise error.with_traceback(None)
        return RecordMetadata(
            batch.topic, batch.partition, batch.offset_of(index), batch.timestamp_of(index)
        )

    def exception(self, timeout: float | None = None) -> RinglogError | None:
        """Wait for the end; the error it ended with, or None. Raises DeadlineExceeded."""
        if not self.batch.done and not self.batch.wait(optional_timeout(timeout)):
            raise DeadlineExceeded(f"the delivery did not end within {timeout} s")
        return self.batch.error_of(self.index)

    def add_done_callback(self, callback: Callable[["Delivery"], object]) -> None:
        """Call `callback(delivery)` once it has ended; at once when it has.

        Runs on the client's IO thread, which it holds up: hand longer work to another thread.
        An exception it raises is logged.
        """
        self.batch.add_callback(lambda: callback(self))
