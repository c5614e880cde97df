"""The producer table after a truncation, against a replay."""

import random

import msgspec
import pytest

from ringlog.storage.producer_history import ProducerHistory
from ringlog.storage.producer_state import ProducerTable, TableSnapshot
from ringlog.storage.record_batch import BatchHeader, read_header
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.types import Offset, ProducerId

PLAIN = read_header(encode_batch([b"v"], timestamps=1))


def header(producer: int, sequence: int) -> BatchHeader:
    return msgspec.structs.replace(
        PLAIN, producer_id=ProducerId(producer), producer_epoch=0, base_sequence=sequence
    )


def replayed(batches: list[tuple[BatchHeader, Offset]]) -> TableSnapshot:
    table = ProducerTable()
    for batch, offset in batches:
        table.note(batch, offset)
    return table.snapshot()


@pytest.mark.parametrize("span", [1, 2, 5, 1000])
def test_any_cut_gives_the_replayed_table_or_says_that_it_is_too_deep(span: int) -> None:
    rng = random.Random(span)
    history = ProducerHistory(ProducerTable(), Offset(0), span=span)
    batches: list[tuple[BatchHeader, Offset]] = []
    deep = 0
    for step in range(600):
        if rng.random() < 0.9 or not batches:
            offset = Offset(batches[-1][1] + 1 if batches else 0)
            batch = header(rng.choice([-1, 1, 2]), step)
            history.note(batch, offset)
            batches.append((batch, offset))
        else:
            cut = rng.randrange(max(0, len(batches) - 2 * span - 3), len(batches) + 1)
            offset = Offset(cut)
            batches = batches[:cut]
            if not history.truncate(offset):
                deep += 1
                assert history.snapshot() is None
                with pytest.raises(AssertionError, match="replayed"):
                    _ = history.table
                later = (header(2, step), offset)
                history.note(*later)
                history.bring_back(replayed(batches), offset)
                batches.append(later)
        assert history.snapshot() == replayed(batches)
    assert (deep > 0) == (span < 1000)
    assert len(history._batches) <= 2 * span


def test_a_table_that_is_brought_back_for_an_older_cut_is_not_taken() -> None:
    history = ProducerHistory(ProducerTable(), Offset(50))
    assert not history.truncate(Offset(40))
    assert not history.truncate(Offset(30))
    history.bring_back(replayed([(header(1, 0), Offset(39))]), Offset(40))
    assert history.snapshot() is None
    history.bring_back(replayed([(header(1, 0), Offset(29))]), Offset(30))
    assert history.snapshot() == replayed([(header(1, 0), Offset(29))])


def test_a_cut_above_the_unknown_point_still_waits_for_the_same_table() -> None:
    history = ProducerHistory(ProducerTable(), Offset(50))
    assert not history.truncate(Offset(40))
    history.note(header(1, 0), Offset(40))
    history.note(header(1, 1), Offset(41))
    assert not history.truncate(Offset(41))
    history.bring_back(TableSnapshot(), Offset(40))
    assert history.snapshot() == replayed([(header(1, 0), Offset(40))])


def test_restarting_forgets_what_was() -> None:
    history = ProducerHistory(ProducerTable(), Offset(0))
    history.note(header(1, 0), Offset(0))
    snapshot = replayed([(header(9, 4), Offset(70))])
    history.restart(snapshot, Offset(71))
    assert history.table.snapshot() == snapshot
    assert not history.truncate(Offset(70))
