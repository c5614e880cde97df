"""Who may append to a partition's log, and what of it is committed.

Owns the protocol between a Raft role and `replication.driver`, its effects, and `SoloReplicator`:
Raft with one voter. Must not know files, sockets, clocks, or what users do with a partition.

Invariants:
    S1  Nothing is said in a term before the term itself is stored: the opening is appended
        only after `on_state_saved`.
    S2  A position is committed only when the entry that ends there is of the current term, so
        never before the term's opening is stored.
    S3  The commit position never goes back.

Source: Raft sections 5.1 (terms), 5.4.2 (only entries of the current term commit by counting).
"""

from typing import Protocol

import msgspec

from ringlog.storage.raft_log import EntryKind
from ringlog.storage.raft_state import RaftState
from ringlog.storage.types import LeaderEpoch, Position


class SaveState(msgspec.Struct, frozen=True):
    """Store `state` durably, then call `on_state_saved`. Effects behind it do not wait."""

    state: RaftState


class AppendOwn(msgspec.Struct, frozen=True):
    """Append an own entry, then call `on_own_appended` with the position where it ends."""

    kind: EntryKind
    term: LeaderEpoch
    body: bytes


class Commit(msgspec.Struct, frozen=True):
    """Everything before `position` is committed (exclusive end)."""

    position: Position


Effect = SaveState | AppendOwn | Commit


class Replicator(Protocol):
    """A Raft role without threads, files or a clock. Each event returns effects in order."""

    @property
    def term(self) -> LeaderEpoch:
        """Term this replica is in."""

    @property
    def leads(self) -> bool:
        """Whether batches may be appended here, in `term`."""

    @property
    def knows_commit(self) -> bool:
        """Whether it leads and has committed its opening, so that it knows what is committed."""

    def start(self, now_ms: int) -> list[Effect]:
        """Begin, once, after recovery."""

    def on_state_saved(self, state: RaftState) -> list[Effect]:
        """`state` is durable."""

    def on_own_appended(self, kind: EntryKind, end: Position) -> list[Effect]:
        """The own entry asked for ends at `end` in the local log; it is not stored yet."""

    def on_stored(self, end: Position) -> list[Effect]:
        """The local log is stored up to `end`, as strongly as the topic's policy asks."""

    def next_deadline_ms(self) -> int | None:
        """When `on_deadline` wants to be called, monotonic milliseconds; None for never."""

    def on_deadline(self, now_ms: int) -> list[Effect]:
        """The deadline has come."""


class SoloReplicator:
    """The only voter of its partition: it leads after one write, and commits what it stored."""

    __slots__ = ("_committed", "_leads", "_opening_end", "_state", "_voter")

    def __init__(self, state: RaftState, *, voter: str, committed: Position) -> None:
        """Take over after recovery.

        Args:
            state: as found on disk.
            voter: directory UUID of this replica, which it votes for.
            committed: commit position that recovery knows, the base of the log.
        """
        self._state = state
        self._voter = voter
        self._committed = committed
        self._leads = False
        self._opening_end: Position | None = None

    @property
    def term(self) -> LeaderEpoch:
        """Term this replica is in."""
        return self._state.term

    @property
    def leads(self) -> bool:
        """True once the opening is in the log; batches queue up behind it from then on."""
        return self._leads

    @property
    def knows_commit(self) -> bool:
        """True once the opening is stored."""
        return self._opening_end is not None and self._committed >= self._opening_end

    def start(self, now_ms: int) -> list[Effect]:
        """Open a term of its own: a batch written before the stop keeps its older epoch."""
        del now_ms
        term = LeaderEpoch(self._state.term + 1)
        state = msgspec.structs.replace(self._state, term=term, voted_for=self._voter)
        return [SaveState(state)]

    def on_state_saved(self, state: RaftState) -> list[Effect]:
        """Append the opening of the term that has become durable."""
        assert state.term > self._state.term, f"S1: term {state.term} behind {self._state.term}"
        self._state = state
        return [AppendOwn(EntryKind.TERM_OPENING, state.term, b"")]

    def on_own_appended(self, kind: EntryKind, end: Position) -> list[Effect]:
        """Lead from the opening on."""
        if kind is EntryKind.TERM_OPENING:
            self._leads = True
            self._opening_end = end
        return []

    def on_stored(self, end: Position) -> list[Effect]:
        """Commit what is stored: a majority of one."""
        if self._opening_end is None or end < self._opening_end or end <= self._committed:
            return []
        self._committed = end
        return [Commit(end)]

    def next_deadline_ms(self) -> int | None:
        """Never: there is nobody to hear from."""
        return None

    def on_deadline(self, now_ms: int) -> list[Effect]:
        """Never called."""
        raise AssertionError(f"a solo replicator set no deadline, called at {now_ms}")
