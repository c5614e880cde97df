"""Giving up the log of a replica that has lost flushed bytes: it becomes blank.

Owns the order of giving up. Must not know when that is right: a partition with one replica
must never be given up, because nobody could bring it back.

Invariants:
    QU1 The higher life and the term without a vote are durable before any file of the log goes.
    QU2 `start-state` goes first: without it, what is left cannot be opened as a shorter log,
        and giving up is taken up again.

Source: ringlog's raft-log rules, "Quarantine".
"""

import msgspec

from ringlog.storage.durable_marks import DurableMarks, Mark
from ringlog.storage.errors import DamagedState, FileMissing
from ringlog.storage.files import Directory
from ringlog.storage.partition_identity import PARTITION_IDENTITY_NAME, PartitionIdentity
from ringlog.storage.raft_state import (
    RAFT_STATE_NAME,
    RaftState,
    load_raft_state,
    save_raft_state,
)
from ringlog.storage.start_state import START_STATE_NAME
from ringlog.storage.types import LOG_BEGIN, LeaderEpoch, Offset


def quarantine_partition(
    directory: Directory,
    marks: DurableMarks,
    identity: PartitionIdentity,
    *,
    newest_term: LeaderEpoch,
    life: int,
) -> RaftState:
    """Make the replica blank; return its new vote state. May be repeated after a crash.

    Args:
        directory: of the partition; no log of it is open.
        marks: of the data directory.
        identity: of the partition.
        newest_term: newest term known of the partition, from anywhere; with a damaged
            `raft-state` no vote may be given up to it.
        life: number for the new life when the old one cannot be read: higher than any before,
            for example milliseconds since 1970.

    Raises:
        LogDirFailed: a write or flush failed: the broker must stop.
    """
    seed = identity.checksum_seed
    state = _next_life(directory, seed, newest_term, life)
    save_raft_state(directory, state, seed=seed)
    directory.unlink(START_STATE_NAME)
    directory.sync()
    for name in directory.names():
        if name not in {RAFT_STATE_NAME, PARTITION_IDENTITY_NAME}:
            directory.unlink(name)
    directory.sync()
    marks.lower(identity.mark_key, Mark(LOG_BEGIN, Offset(0), 0, clean=False))
    return state


def _next_life(directory: Directory, seed: int, newest_term: LeaderEpoch, life: int) -> RaftState:
    try:
        old = load_raft_state(directory, seed=seed)
    except (DamagedState, FileMissing):
        return RaftState(term=newest_term, life=life, no_vote_up_to=newest_term)
    term = LeaderEpoch(max(old.term, newest_term))
    return msgspec.structs.replace(
        old,
        term=term,
        voted_for=old.voted_for if term == old.term else None,
        life=old.life + 1,
        no_vote_up_to=LeaderEpoch(max(term, old.no_vote_up_to)),
    )
