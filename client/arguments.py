"""What callers may give as topics, partitions and timeouts, and what is said to a usual mistake.

Owns those checks and their texts. Must not know connections, or which topics exist.

Invariants:
    AR1 What passes is usable as it is; everything else raises InvalidArgument (UnknownTopic for a
        name that no topic can have) before anything is sent or changed.
"""

from collections.abc import Iterable

from ringlog.client.config import check_text
from ringlog.client.errors import InvalidArgument, UnknownTopic
from ringlog.storage.types import TopicPartition

MAX_TIMEOUT_S = 2**31 / 1000
"""Longer timeouts, infinity too, count as this."""

TOPIC_RULE = "a topic name has 1 to 249 characters of A-Z a-z 0-9 . _ -"

_PAIR_LENGTH = 2


def check_timeout(timeout: object) -> float:
    """`timeout` in seconds, when it is a number that is not negative.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise InvalidArgument(f"timeout is {timeout!r}, not a number", hint="give seconds")
    # Turned around, so that it refuses NaN too.
    if not timeout >= 0:
        raise InvalidArgument(
            f"timeout is {timeout} s, which is negative or no number",
            hint="give seconds, 0 for not waiting",
        )
    return min(timeout, MAX_TIMEOUT_S)


def optional_timeout(timeout: object) -> float | None:
    """The same, where None stands for a limit of its own."""
    return None if timeout is None else check_timeout(timeout)


def topic_name(name: object) -> str:
    """`name`, when it is a text. Whether a topic can have that name, the broker says.

    Raises:
        InvalidArgument: it is no text, empty, or no Unicode, so that it cannot travel.
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument(
            f"topic name {name!r} is not a text of at least one character", hint=TOPIC_RULE
        )
    return check_text("topic name", name, hint=TOPIC_RULE)


def existing_topic(name: object) -> str:
    """`name`, when a topic that exists may have it.

    Raises:
        InvalidArgument: it is no text, or empty.
        UnknownTopic: it looks like an address.
    """
    name = topic_name(name)
    if ":" in name:
        raise UnknownTopic(
            f"no topic can be named {name!r}",
            hint=f"this looks like an address: give it as bootstrap_servers={name!r}",
        )
    return name


def topic_names(topics: object) -> tuple[str, ...]:
    """One name or several, without duplicates, in the order given. Raises like `existing_topic`."""
    if isinstance(topics, str):
        return (existing_topic(topics),)
    if isinstance(topics, bytes) or not isinstance(topics, Iterable):
        raise InvalidArgument(f"topics are {topics!r}", hint="give a name, or a list of names")
    return tuple(dict.fromkeys([existing_topic(one) for one in topics]))


def one_partition(partition: object) -> TopicPartition:
    """A pair (topic, number) as a `TopicPartition`. Raises InvalidArgument."""
    if isinstance(partition, tuple | list) and len(partition) == _PAIR_LENGTH:
        topic, number = partition
        is_number = isinstance(number, int) and not isinstance(number, bool)
        if isinstance(topic, str) and is_number:
            return TopicPartition(existing_topic(topic), number)
    name = partition if isinstance(partition, str) else "orders"
    raise InvalidArgument(
        f"{partition!r} is not a partition", hint=f'give TopicPartition("{name}", 0) and its like'
    )


def several_partitions(partitions: object) -> list[TopicPartition]:
    """Pairs (topic, number) as a list. Raises InvalidArgument."""
    if isinstance(partitions, str):
        raise InvalidArgument(
            f"{partitions!r} is a text, not a list of partitions",
            hint=f'give [TopicPartition("{partitions}", 0)], or subscribe to the topic',
        )
    if not isinstance(partitions, Iterable):
        raise InvalidArgument(
            f"partitions are {partitions!r}", hint="give a list of TopicPartition"
        )
    return [one_partition(one) for one in partitions]
