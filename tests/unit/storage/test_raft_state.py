"""`raft-state`: term, vote, life and the term without a vote, durable when saved."""

import random

import pytest

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.errors import DamagedState, FileMissing
from ringlog.storage.raft_state import (
    MAY_VOTE,
    RAFT_STATE_NAME,
    RaftState,
    load_raft_state,
    save_raft_state,
)
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import LeaderEpoch

STATE = RaftState(term=LeaderEpoch(9), voted_for="3f0c", life=2, no_vote_up_to=LeaderEpoch(8))


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.directory().create()
    return disk


def test_a_new_replica_may_vote_in_every_term() -> None:
    assert RaftState().no_vote_up_to == MAY_VOTE < RaftState().term


def test_what_was_saved_survives_a_power_cut(disk: SimulatedDisk) -> None:
    save_raft_state(disk.directory(), RaftState())
    save_raft_state(disk.directory(), STATE)
    after = disk.crash(random.Random(1), CrashMode.LOSE_ALL)
    assert load_raft_state(after.directory()) == STATE


def test_a_missing_or_damaged_file_is_never_a_fresh_one(disk: SimulatedDisk) -> None:
    with pytest.raises(FileMissing):
        load_raft_state(disk.directory())
    save_raft_state(disk.directory(), STATE)
    data = disk.durable_bytes(RAFT_STATE_NAME)
    assert data is not None
    for place in range(len(data) // 2):
        disk.damage(RAFT_STATE_NAME, place, bytes([data[place] ^ 1]))
        assert load_raft_state(disk.directory()) == STATE
        disk.damage(RAFT_STATE_NAME, len(data) - 3, bytes([data[-3] ^ 1]))
        with pytest.raises(DamagedState):
            load_raft_state(disk.directory())
        disk.damage(RAFT_STATE_NAME, 0, data)
