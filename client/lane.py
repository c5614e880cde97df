"""One partition on the sending side: batches in order, and their sequences.

Owns producer id, epoch and sequence numbers of one partition, and which batches stand where.
Must not know time, metadata or requests.

    open  (takes records)  ->  queue  (closed, never sent)  ->  in_flight  (has a sequence)

Invariants:
    L1  open, queue and in_flight hold the partition's unfinished batches in the order opened.
    L2  In flight, sequences follow one another without a gap, in order, under one epoch; a batch
        keeps its sequence over all its attempts under that epoch.
    L3  A batch gets another sequence only when each of its attempts was answered, and refused: a
        lost one may still arrive.
    L4  A new epoch begins at sequence 0, and only when nothing in flight is in doubt.

Source: KIP-98 (sequences), KIP-360 (an epoch is bumped by the client).
"""

from collections import deque
from collections.abc import Sequence

from ringlog.client.batch import Batch
from ringlog.client.errors import RinglogError
from ringlog.client.metadata import SecondLook
from ringlog.storage.record_codec import EncodedRecords, seal_batch
from ringlog.storage.types import NO_PRODUCER_ID

PROOF_MS = 60_000
"""For this long after an acknowledgement a log is trusted to remember the producer. It forgets by
count, when thousands of other producers have written since."""

MAX_EPOCH = 2**15 - 1
_SEQUENCES = 2**31


class Lane:
    """See the module. Owned by the producer core."""

    __slots__ = (
        "epoch",
        "failures",
        "in_flight",
        "last_error",
        "look",
        "new_epoch",
        "next_sequence",
        "not_before_ms",
        "open",
        "partition",
        "producer_id",
        "proven_ms",
        "queue",
        "refused_by",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Batch | None = None
        self.queue: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.producer_id: int = NO_PRODUCER_ID
        self.epoch = -1
        self.next_sequence = 0
        self.new_epoch = False
        """A sequence was used up by a batch that ended badly: go on under a new epoch."""
        self.proven_ms: int | None = None
        """When a batch under this producer id was last acknowledged by this log, if ever."""
        self.failures = 0
        """Failed attempts in a row; the pause before the next one grows with it."""
        self.last_error: RinglogError | None = None
        """What the last attempt failed with, until one succeeds."""
        self.look = SecondLook()
        """At a partition without a leader."""
        self.not_before_ms = 0
        self.refused_by = -1
        """Broker that failed the last attempt: another leader need not wait for the pause."""

    @property
    def unfinished(self) -> list[Batch]:
        """Every batch that has not ended, in the order opened."""
        return [*self.in_flight, *self.queue, *([self.open] if self.open is not None else [])]

    @property
    def idle(self) -> bool:
        """Whether nothing is closed and unfinished."""
        return not self.in_flight and not self.queue

    @property
    def draining(self) -> bool:
        """Whether answers are awaited before anything else may be sent.

        When a batch has to be sent again, all behind it have failed or will: sending goes on
        once every answer is in, from the first unfinished batch, in order.
        """
        return any(batch.outstanding for batch in self.in_flight) and self.must_resend

    @property
    def must_resend(self) -> bool:
        """Whether what is in flight has to be sent again, or numbered anew, before new batches."""
        return bool(self.in_flight) and (
            self.new_epoch or any(not batch.outstanding for batch in self.in_flight)
        )

    @property
    def in_doubt(self) -> bool:
        """Whether a batch in flight may be stored without our knowing."""
        return any(batch.unknown or batch.outstanding for batch in self.in_flight)

    def releases(self, batch: Batch, now_ms: int, linger_ms: int) -> bool:
        """Whether the open batch need not wait for more records."""
        return (
            # Somebody waits for it,
            batch.hurried
            # or nothing is under way,
            or self.idle
            # or it has waited long enough for more,
            or now_ms - batch.opened_ms >= linger_ms
            # or it can take no more.
            or batch.taken() >= batch.capacity
        )

    def is_proven(self, now_ms: int) -> bool:
        """Whether the log is known to know this producer."""
        return self.proven_ms is not None and now_ms - self.proven_ms < PROOF_MS

    def use_producer(self, producer_id: int, epoch: int) -> None:
        """Begin under a producer id; what is in flight is numbered anew (L3 is the caller's)."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.proven_ms = None
        self._restart()

    def bump_epoch(self) -> bool:
        """Begin the next epoch. False: there is none left, a new producer id is needed."""
        assert not self.in_doubt, "a batch in doubt keeps its sequence"
        assert self.producer_id != NO_PRODUCER_ID
        if self.epoch >= MAX_EPOCH:
            self.producer_id = NO_PRODUCER_ID
            return False
        self.epoch += 1
        self._restart()
        return True

    def number(self, batch: Batch) -> None:
        """Give a batch its sequence and make its bytes."""
        body = batch.encoded()
        if self.producer_id != NO_PRODUCER_ID:
            batch.base_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + body.record_count) % _SEQUENCES
        self._seal(batch, body)

    def replace(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Put parts that hold the same records in the place, and the sequences, of a batch."""
        place = self.in_flight.index(batch)
        self.in_flight[place : place + 1] = parts
        sequence = batch.base_sequence
        for part in parts:
            body = part.encoded()
            part.base_sequence = sequence
            self._seal(part, body)
            if self.producer_id != NO_PRODUCER_ID:
                sequence = (sequence + body.record_count) % _SEQUENCES

    def _seal(self, batch: Batch, body: EncodedRecords) -> None:
        if self.producer_id == NO_PRODUCER_ID:
            batch.seal(seal_batch(body))
        else:
            batch.seal(
                seal_batch(
                    body,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    base_sequence=batch.base_sequence,
                )
            )

    def _restart(self) -> None:
        self.next_sequence = 0
        self.new_epoch = False
        for batch in self.in_flight:
            self.number(batch)
