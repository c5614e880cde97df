"""`start-state`: what a partition's log begins from, and the snapshot that a reset carries.

Owns its fields and the rule between them. Must not know segments or how it is applied. A
partition directory without it is a blank replica: it refuses appends and waits for a reset.

Invariants:
    SS1  `base_offset` is the edge of a batch; `base_own` counts the own entries with a smaller
         offset, so those with the same offset are still in `raft-log`.
    SS2  Configuration, term before and producers are those at the base, not the newest ones.
    SS3  base_offset <= log_start; the log start may lie inside a batch.

Source: Raft section 7 (snapshot: last included term and configuration).
"""

import msgspec

from ringlog.storage.errors import DamagedState
from ringlog.storage.files import Directory
from ringlog.storage.producer_state import TableSnapshot
from ringlog.storage.state_file import read_state, write_state
from ringlog.storage.types import LeaderEpoch, Offset, Position

START_STATE_NAME = "start-state"
START_STATE_FORMAT = 1


class StartState(msgspec.Struct, frozen=True, kw_only=True):
    """The log's begin. Replaced whole by a log-start move or a reset."""

    base_offset: Offset = Offset(0)
    """First offset of the first segment kept."""
    base_own: int = 0
    """Own entries with offset < base_offset since the partition was made."""
    term_before: LeaderEpoch = LeaderEpoch(0)
    """Term of the entry that ends at the base; 0 when there is none."""
    configuration: tuple[str, ...] = ()
    """Directory UUIDs of the voters at the base, sorted."""
    producers: TableSnapshot = TableSnapshot()
    """Producer table at the base."""
    log_start: Offset = Offset(0)
    """First offset that may be read (inclusive)."""
    reset_under_way: bool = False
    """Files of the log that was there before may still lie in the directory: drop them."""

    @property
    def base(self) -> Position:
        """The base as a position."""
        return Position(self.base_offset, self.base_own)


def save_start_state(directory: Directory, state: StartState, *, seed: int = 0) -> None:
    """Replace the file of the partition whose identity is `seed`, durably.

    Raises LogDirFailed, DiskFull.
    """
    assert 0 <= state.base_offset <= state.log_start, f"SS3: {state.base_offset} {state.log_start}"
    write_state(directory, START_STATE_NAME, state, format=START_STATE_FORMAT, seed=seed)


def load_start_state(directory: Directory, *, seed: int = 0) -> StartState | None:
    """Read the file, or return None when the replica is blank.

    Raises:
        DamagedState: both copies are damaged, or the fields contradict one another.
    """
    if not directory.exists(START_STATE_NAME):
        return None
    state = read_state(
        directory, START_STATE_NAME, StartState, format=START_STATE_FORMAT, seed=seed
    )
    if not 0 <= state.base_offset <= state.log_start or min(state.base_own, state.term_before) < 0:
        raise DamagedState(
            f"base ({state.base_offset}, {state.base_own}), term {state.term_before} and log "
            f"start {state.log_start} contradict one another",
            path=f"{directory.path}/{START_STATE_NAME}",
            hint="the file was edited; restore it, or let the leader reset this replica",
        )
    return state
