"""Waiting for offsets that only leaders know.

Owns one blocking look-up over many partitions, a request per leader, and the wait for the
positions of an assignment. Must not know what is read from there.

Invariants:
    OF1 A wait ends by its deadline, by an error of one of its partitions (raised once, unless it
        is left to `poll`), or because the consumer was closed or belongs to the parent of a fork.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from ringlog.client.config import check_number
from ringlog.client.connection import monotonic_ms
from ringlog.client.errors import DeadlineExceeded, UnknownPartition
from ringlog.client.fetch_agent import FetchAgent
from ringlog.client.fetch_slot import Slot, SlotState
from ringlog.client.fetcher import Fetcher
from ringlog.storage.types import TopicPartition

MAX_PARTITION = 2**31 - 1

CheckOpen = Callable[[], None]
"""Raises when there is nothing to wait for any more."""


def unknown_topics(partitions: Collection[TopicPartition], counts: Mapping[str, int]) -> list[str]:
    """Topics to ask for: not among `counts`, or with fewer partitions there than named.

    Raises:
        InvalidArgument: a partition that no topic can have, or a name.
    """
    for topic, number in partitions:
        check_number(f"partition of topic {topic!r}", number, 0, MAX_PARTITION)
    return sorted({topic for topic, number in partitions if number >= counts.get(topic, 0)})


def refuse_unknown(partitions: Collection[TopicPartition], counts: Mapping[str, int]) -> None:
    """Raise UnknownPartition for one that is not below its topic's count."""
    for partition in partitions:
        count = counts.get(partition.topic, 0)
        if partition.partition >= count:
            raise UnknownPartition(
                f"{partition} does not exist: the topic has {count} partitions",
                hint="partitions count from 0",
            )


def find_offsets(
    agent: FetchAgent,
    targets: Mapping[TopicPartition, int],
    timeout_ms: int,
    check_open: CheckOpen,
) -> dict[TopicPartition, int]:
    """First offset at EARLIEST, LATEST or a timestamp (ms) of each partition; -1: none.

    Raises:
        RinglogError: what a broker says of a partition, or that none answers in time.
    """
    named = {TopicPartition(*partition): target for partition, target in targets.items()}
    finder = agent.fetcher.finder(named)
    with agent.changed:
        agent.finders.append(finder)
    try:
        agent.wake()
        await_positions(agent, finder, named, timeout_ms, check_open)
    finally:
        with agent.changed:
            agent.finders.remove(finder)
    return {partition: slot.found for partition, slot in finder.slots.items()}


def await_positions(
    agent: FetchAgent,
    fetcher: Fetcher,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    check_open: CheckOpen,
    *,
    leave_errors: bool = False,
) -> None:
    """Wait until no partition of these is looked for any more; what was dropped is left out.

    `leave_errors`: what hinders one of many is no reason to fail for all; `poll` raises it.

    Raises:
        DeadlineExceeded: that took longer.
        RinglogError: what `check_open` raises, or what hinders one of the partitions.
    """
    until_ms = monotonic_ms() + timeout_ms
    with agent.changed:
        while True:
            check_open()
            slots = [fetcher.slots[one] for one in partitions if one in fetcher.slots]
            for slot in slots:
                if slot.state is SlotState.HALTED and slot.error is not None and not leave_errors:
                    error, slot.error = slot.error, None
                    raise error
            waiting = [slot for slot in slots if slot.state is SlotState.LOOKING]
            if not waiting:
                return
            left_ms = until_ms - monotonic_ms()
            if left_ms <= 0:
                raise _no_position(waiting[0], timeout_ms)
            agent.changed.wait(left_ms / 1000)


def _no_position(slot: Slot, waited_ms: int) -> DeadlineExceeded:
    why = slot.trouble.cause if slot.trouble is not None else "no answer came"
    return DeadlineExceeded(
        f"the position in {slot.partition} is not known after {waited_ms} ms: {why}",
        hint="the search goes on; poll again, or raise request_timeout_ms",
    )
