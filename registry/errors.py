"""What a change of the registry can be refused for.

    RegistryError
    ├── TopicExists        the name, or one that collides with it, is taken
    ├── TopicMissing       no topic of that name
    ├── TopicReplaced      the topic was deleted and made again under the same name
    ├── BadTopicName       a name outside the alphabet or length of topic names
    └── BadPartitionCount  a count that does not grow the topic

Owns names and texts. Must not know wire codes: `broker.dispatch` maps each leaf to one.
"""


class RegistryError(Exception):
    """Base of all refusals. `hint` is the next step, a sentence or a command."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class TopicExists(RegistryError):
    """The name is taken, or differs from a taken one only in case or in "." against "_"."""


class TopicMissing(RegistryError):
    """No topic of that name, or it is being deleted."""


class TopicReplaced(RegistryError):
    """The topic UUID asked for is not the one the name has now."""


class BadTopicName(RegistryError):
    """A name outside [A-Za-z0-9._-]{1,249}, or "." or ".."."""


class BadPartitionCount(RegistryError):
    """Partitions can be added, never taken away."""
