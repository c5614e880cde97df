"""What a consumer says of itself.

Owns the judgement over its partitions. Must not know threads or requests.

Invariants:
    HE1 `ok` is said only when no partition is in trouble.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ringlog.client.errors import RinglogError
from ringlog.client.fetch_slot import Slot, SlotState
from ringlog.storage.types import TopicPartition


class Health(NamedTuple):
    """`state`: ok, waiting (gets on by itself) or stuck (somebody has to act)."""

    state: str
    since_ms: int
    """Monotonic milliseconds of the last record handed out."""
    why: str
    hint: str
    halted: tuple[TopicPartition, ...] = ()
    """Partitions that somebody has to act on, all that was read of them handed out."""


def health_of(slots: Iterable[Slot], failure: RinglogError | None, since_ms: int) -> Health:
    """Judge all partitions; the worst decides."""
    if failure is not None:
        return Health("stuck", since_ms, failure.cause, failure.hint)
    waiting: Health | None = None
    slots = list(slots)
    is_halted = SlotState.HALTED
    halted = tuple(one.partition for one in slots if one.state is is_halted and not one.chunks)
    for slot in slots:
        if slot.trouble is None:
            continue
        why = f"{slot.partition}: {slot.trouble.cause}"
        if slot.state is SlotState.HALTED:
            hint = slot.trouble.hint or "seek to try it again"
            return Health("stuck", since_ms, why, hint, halted)
        waiting = waiting or Health("waiting", since_ms, why, slot.trouble.hint)
    return waiting or Health("ok", since_ms, "", "")
