"""Raft with one voter: term before opening, opening before commit."""

import pytest

from ringlog.replication.replicator import AppendOwn, Commit, SaveState, SoloReplicator
from ringlog.storage.raft_log import EntryKind
from ringlog.storage.raft_state import RaftState
from ringlog.storage.types import LeaderEpoch, Offset, Position


def at(offset: int, own: int) -> Position:
    return Position(Offset(offset), own)


def solo(term: int = 4, committed: Position | None = None) -> SoloReplicator:
    state = RaftState(term=LeaderEpoch(term), life=3)
    return SoloReplicator(state, voter="me", committed=committed or at(0, 0))


def opened() -> SoloReplicator:
    """With own entry 7 at offset 10 as its opening."""
    replicator = solo()
    (save,) = replicator.start(0)
    assert isinstance(save, SaveState)
    replicator.on_state_saved(save.state)
    replicator.on_own_appended(EntryKind.TERM_OPENING, at(10, 8))
    return replicator


def test_a_start_asks_for_the_next_term_and_votes_for_itself() -> None:
    replicator = solo(term=4)
    (save,) = replicator.start(0)
    assert isinstance(save, SaveState)
    assert save.state == RaftState(term=LeaderEpoch(5), voted_for="me", life=3)


def test_nothing_is_said_in_the_term_before_it_is_stored() -> None:
    replicator = solo(term=4)
    (save,) = replicator.start(0)
    assert isinstance(save, SaveState)
    assert replicator.term == 4
    assert not replicator.leads
    (append,) = replicator.on_state_saved(save.state)
    assert append == AppendOwn(EntryKind.TERM_OPENING, LeaderEpoch(5), b"")
    assert replicator.term == 5
    assert not replicator.leads


def test_it_leads_from_its_opening_on_but_knows_no_commit_yet() -> None:
    replicator = opened()
    assert replicator.leads
    assert not replicator.knows_commit
    assert replicator.on_stored(at(10, 7)) == []
    assert not replicator.knows_commit


def test_it_commits_what_is_stored_from_its_opening_on() -> None:
    replicator = opened()
    assert replicator.on_stored(at(10, 8)) == [Commit(at(10, 8))]
    assert replicator.knows_commit
    assert replicator.on_stored(at(12, 8)) == [Commit(at(12, 8))]
    assert replicator.on_stored(at(12, 9)) == [Commit(at(12, 9))]


def test_older_batches_do_not_commit_without_the_opening() -> None:
    replicator = solo()
    assert replicator.on_stored(at(10, 7)) == []


def test_the_commit_never_goes_back() -> None:
    replicator = opened()
    replicator.on_stored(at(12, 8))
    assert replicator.on_stored(at(12, 8)) == []
    assert replicator.on_stored(at(11, 8)) == []


def test_a_term_that_does_not_grow_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="S1"):
        solo(term=4).on_state_saved(RaftState(term=LeaderEpoch(4)))


def test_it_waits_for_nobody() -> None:
    replicator = opened()
    assert replicator.next_deadline_ms() is None
    with pytest.raises(AssertionError):
        replicator.on_deadline(1)
