"""`raft-state`: what one replica must never forget of its votes.

Owns its fields. Must not know the rules that change them: `replication` decides, and flushes
this file before it says anything in the new term.

Invariants:
    RS1  Term and life never decrease; one vote per term. Who changes the state keeps this, and
         it holds over a crash because a save is durable before it returns.
    RS2  A missing or damaged file is never taken for a fresh replica: it could vote twice.

Source: Raft section 5.1 and figure 2 (currentTerm, votedFor); the life of the log and the
term without a vote are ringlog's, for a replica that has lost flushed bytes.
"""

import msgspec

from ringlog.storage.files import Directory
from ringlog.storage.state_file import read_state, write_state
from ringlog.storage.types import LeaderEpoch

RAFT_STATE_NAME = "raft-state"
RAFT_STATE_FORMAT = 1

MAY_VOTE = LeaderEpoch(-1)
"""`no_vote_up_to` of a replica that was never quarantined: below every term."""


class RaftState(msgspec.Struct, frozen=True, kw_only=True):
    """Term, vote and the two facts that a quarantine leaves behind."""

    term: LeaderEpoch = LeaderEpoch(0)
    """Newest term seen."""
    voted_for: str | None = None
    """Directory UUID of the candidate that got the vote of `term`."""
    life: int = 0
    """How often this replica lost its log; a leader forgets what an earlier life acked."""
    no_vote_up_to: LeaderEpoch = MAY_VOTE
    """No vote until the commit position of a leader of a later term than this is held here."""


def save_raft_state(directory: Directory, state: RaftState, *, seed: int = 0) -> None:
    """Replace the file of the partition whose identity is `seed`, durably.

    Raises LogDirFailed, DiskFull.
    """
    write_state(directory, RAFT_STATE_NAME, state, format=RAFT_STATE_FORMAT, seed=seed)


def load_raft_state(directory: Directory, *, seed: int = 0) -> RaftState:
    """Read the file.

    Raises:
        DamagedState: both copies are damaged: the replica must not vote.
        FileMissing: there is none, although a partition is made with one: likewise.
    """
    return read_state(directory, RAFT_STATE_NAME, RaftState, format=RAFT_STATE_FORMAT, seed=seed)
