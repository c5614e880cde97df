"""ProducerTable against a dumb model that keeps every batch ever appended.

The model answers from the whole history: it searches it from the end for each question and
knows neither rows nor eviction order. Both must agree on every batch offered, whatever it is.
"""

from typing import NamedTuple

from hypothesis import event, given
from hypothesis import strategies as st

from ringlog.storage.errors import ProducerFenced, SequenceError
from ringlog.storage.producer_state import MAX_SEQUENCE, ProducerTable, decode_snapshot
from ringlog.storage.record_batch import BatchHeader
from ringlog.storage.types import LeaderEpoch, Offset, Position, ProducerId

MAX_PRODUCERS = 3
REMEMBERED = 16
MODULUS = MAX_SEQUENCE + 1


class Appended(NamedTuple):
    producer_id: int
    epoch: int
    base_sequence: int
    records: int
    offset: int


class HistoryModel:
    """All batches in order of their offsets."""

    def __init__(self) -> None:
        self.history: list[Appended] = []

    def known(self) -> list[int]:
        """The producers not forgotten: the last few distinct ones, oldest last batch first."""
        known: list[int] = []
        for batch in reversed(self.history):
            if batch.producer_id not in known and len(known) < MAX_PRODUCERS:
                known.append(batch.producer_id)
        return known[::-1]

    def batches_of(self, producer_id: int) -> list[Appended]:
        """What may be remembered of it: since it was last forgotten, of its newest epoch."""
        mine: list[Appended] = []
        others: set[int] = set()
        for batch in reversed(self.history):
            if batch.producer_id == producer_id:
                if len(others) >= MAX_PRODUCERS:
                    break
                if mine and batch.epoch != mine[-1].epoch:
                    break
                mine.append(batch)
                others = set()
            else:
                others.add(batch.producer_id)
        return mine[:REMEMBERED][::-1]

    def verdict(self, header: BatchHeader) -> object:
        if header.producer_id == -1 or header.producer_id not in self.known():
            return "append"
        batches = self.batches_of(header.producer_id)
        newest = batches[-1]
        if header.producer_epoch < newest.epoch:
            return "fenced"
        if header.producer_epoch > newest.epoch:
            return "append" if header.base_sequence == 0 else ("expected", 0)
        expected = (newest.base_sequence + newest.records) % MODULUS
        if header.base_sequence == expected:
            return "append"
        for batch in batches:
            if (batch.base_sequence, batch.records) == (header.base_sequence, header.record_count):
                return ("duplicate", batch.offset)
        return ("expected", expected)


def header_of(producer_id: int, epoch: int, sequence: int, count: int) -> BatchHeader:
    return BatchHeader(
        Offset(0), 100, LeaderEpoch(0), 0, 0, count - 1, 0, 0, ProducerId(producer_id), epoch,
        sequence, count,
    )  # fmt: skip


def verdict(table: ProducerTable, header: BatchHeader) -> object:
    try:
        offset = table.check(header)
    except ProducerFenced:
        return "fenced"
    except SequenceError as error:
        return ("expected", error.expected)
    return "append" if offset is None else ("duplicate", offset)


class Step(NamedTuple):
    """What a producer does next, relative to what it did last."""

    producer_id: int
    back: int
    """0 = go on behind the last batch; k = send the k-th last one again."""
    records: int
    epoch_step: int
    shift: int
    """Added to the sequence: 0 is the honest producer."""


STEPS = st.lists(
    st.builds(
        Step,
        producer_id=st.sampled_from([-1, 1, 1, 1, 2, 2, 3, 4, 5]),
        back=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2, 15, 16, 17]),
        records=st.integers(1, 3),
        epoch_step=st.sampled_from([0] * 12 + [1, -1]),
        shift=st.sampled_from([0] * 12 + [1, -1]),
    ),
    max_size=80,
)
FIRST_SEQUENCES = st.sampled_from([0, 5, MAX_SEQUENCE - 20, MAX_SEQUENCE - 1, MAX_SEQUENCE])


def next_header(step: Step, sent: list[BatchHeader], first_sequence: int) -> BatchHeader:
    """Turn a step into a batch, from what this producer had appended so far."""
    if step.producer_id == -1:
        return header_of(-1, -1, -1, step.records)
    mine = [header for header in sent if header.producer_id == step.producer_id]
    if not mine:
        return header_of(step.producer_id, 1, first_sequence, step.records)
    if 0 < step.back <= len(mine):
        again = mine[-step.back]
        return header_of(
            step.producer_id,
            max(0, again.producer_epoch + step.epoch_step),
            (again.base_sequence + step.shift) % MODULUS,
            again.record_count,
        )
    last = mine[-1]
    sequence = 0 if step.epoch_step > 0 else last.base_sequence + last.record_count
    return header_of(
        step.producer_id,
        last.producer_epoch + step.epoch_step,
        (sequence + step.shift) % MODULUS,
        step.records,
    )


@given(STEPS, FIRST_SEQUENCES)
def test_every_verdict_is_that_of_the_whole_history(steps: list[Step], first: int) -> None:
    table = ProducerTable(max_producers=MAX_PRODUCERS, remembered=REMEMBERED)
    model = HistoryModel()
    sent: list[BatchHeader] = []
    for step in steps:
        header = next_header(step, sent, first)
        if header.producer_id != -1 and header.producer_epoch < 0:
            continue
        expected = model.verdict(header)
        event(str(expected[0]) if isinstance(expected, tuple) else str(expected))
        assert verdict(table, header) == expected
        if expected == "append":
            offset = sum(appended.record_count for appended in sent)
            table.note(header, Offset(offset))
            sent.append(header)
            if header.producer_id != -1:
                model.history.append(
                    Appended(
                        header.producer_id, header.producer_epoch, header.base_sequence,
                        header.record_count, offset,
                    )
                )  # fmt: skip
        assert [row.producer_id for row in table.snapshot().producers] == model.known()


@given(STEPS, FIRST_SEQUENCES, st.integers(0, 80))
def test_a_restored_snapshot_goes_on_like_the_original(
    steps: list[Step], first: int, cut: int
) -> None:
    """PT4: snapshot at any place, restored elsewhere, and the batches behind it noted there."""
    table = ProducerTable(max_producers=MAX_PRODUCERS, remembered=REMEMBERED)
    twin = ProducerTable(max_producers=MAX_PRODUCERS, remembered=REMEMBERED)
    sent: list[BatchHeader] = []
    for number, step in enumerate(steps):
        if number == cut:
            decoded = decode_snapshot(table.encode_snapshot(Position(Offset(number), 0)))
            assert decoded is not None
            twin.restore(decoded[1])
        header = next_header(step, sent, first)
        if header.producer_id != -1 and header.producer_epoch < 0:
            continue
        judged = verdict(table, header)
        if number >= cut:
            assert verdict(twin, header) == judged
        if judged == "append":
            table.note(header, Offset(number))
            sent.append(header)
            if number >= cut:
                twin.note(header, Offset(number))
    if cut < len(steps):
        assert twin.snapshot() == table.snapshot()
