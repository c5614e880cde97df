"""Giving up a log, cut off at every call."""

import random

import pytest

from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import DamagedState
from ringlog.storage.quarantine import quarantine_partition
from ringlog.storage.raft_state import RaftState, load_raft_state, save_raft_state
from ringlog.storage.simulated_files import SimulatedCrash, SimulatedDisk
from ringlog.storage.types import LeaderEpoch
from tests.crash.log_harness import IDENTITY, KILL, LOSE_ALL, NAME, POWER_CUT, open_on
from tests.unit.storage.test_recovery import stopped

NOWHERE = random.Random(0)

SEED = IDENTITY.checksum_seed


def quarantine(disk: SimulatedDisk, term: int = 0) -> RaftState:
    directory = disk.directory().subdirectory(NAME)
    marks = DurableMarks.open(disk.directory())
    return quarantine_partition(
        directory, marks, IDENTITY, newest_term=LeaderEpoch(term), life=1_000
    )


def test_a_replica_becomes_blank_with_a_higher_life_and_no_vote() -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    save_raft_state(
        directory,
        RaftState(term=LeaderEpoch(5), voted_for="a", life=2),
        seed=SEED,
    )
    state = quarantine(disk)
    assert state == RaftState(
        term=LeaderEpoch(5), voted_for="a", life=3, no_vote_up_to=LeaderEpoch(5)
    )
    assert directory.names() == ["partition.json", "raft-state"]
    _marks, opened = open_on(disk)
    assert opened.log.is_blank


def test_a_vote_of_an_older_term_is_not_carried_into_a_newer_one() -> None:
    disk = stopped()
    directory = disk.directory().subdirectory(NAME)
    save_raft_state(directory, RaftState(term=LeaderEpoch(5), voted_for="a"), seed=SEED)
    assert quarantine(disk, term=8) == RaftState(
        term=LeaderEpoch(8), life=1, no_vote_up_to=LeaderEpoch(8)
    )


def test_a_lost_vote_state_takes_the_newest_term_known() -> None:
    disk = stopped()
    disk.directory().subdirectory(NAME).unlink("raft-state")
    assert quarantine(disk, term=8) == RaftState(
        term=LeaderEpoch(8), life=1_000, no_vote_up_to=LeaderEpoch(8)
    )


def test_cut_off_anywhere_it_never_leaves_a_shorter_log() -> None:
    """The old log opens whole, or nothing opens until it is given up again, or it is blank."""
    spare = stopped()
    begin = spare.call_count
    _marks, opened = open_on(stopped())
    whole = opened.log.end
    quarantine(spare)
    for call in range(begin + 1, spare.call_count + 1):
        disk = stopped()
        disk.crash_at(call, after=False)
        with pytest.raises(SimulatedCrash):
            quarantine(disk)
        for mode in (KILL, LOSE_ALL, POWER_CUT):
            image = disk.crash(random.Random(call), mode)
            directory = image.directory().subdirectory(NAME)
            assert (
                directory.exists("start-state") or load_raft_state(directory, seed=SEED).life == 1
            )
            try:
                _marks, opened = open_on(image)
            except DamagedState:
                quarantine(image)
                _marks, opened = open_on(image)
            assert opened.log.is_blank or opened.log.end == whole
            if opened.log.is_blank:
                state = load_raft_state(image.directory().subdirectory(NAME), seed=SEED)
                assert state.life >= 1
