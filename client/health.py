"""What a consumer says of itself.

Owns the judgement over its partitions. Must not know threads or requests.

Invariants:
    HE1 `ok` is said only when no partition is in trouble.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ringlog.client.errors import RinglogError
from ringlog.client.fetch_slot import Slot, SlotState


class Health(NamedTuple):
    """`state`: ok, waiting (gets on by itself) or stuck (somebody has to act)."""

    state: str
    since_ms: int
    """Monotonic milliseconds of the last record handed out."""
    why: str
    hint: str


def health_of(slots: Iterable[Slot], failure: RinglogError | None, since_ms: int) -> Health:
    """Judge all partitions; the worst decides."""
    if failure is not None:
        return Health("stuck", since_ms, failure.cause, failure.hint)
    waiting: Health | None = None
    for slot in slots:
        if slot.trouble is None:
            continue
        why = f"{slot.partition}: {slot.trouble.cause}"
        if slot.state is SlotState.HALTED:
            return Health("stuck", since_ms, why, slot.trouble.hint or "seek to try it again")
        waiting = waiting or Health("waiting", since_ms, why, slot.trouble.hint)
    return waiting or Health("ok", since_ms, "", "")
