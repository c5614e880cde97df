"""What the server hands to the core: everything a partition or handler may need.

Owns the bundle only. Must not know how any of it is made: `broker.server` makes it once.
"""

import dataclasses
import random

from ringlog.broker.config import BrokerConfig
from ringlog.broker.shell import Shell
from ringlog.registry.registry import Registry
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.files import Directory
from ringlog.storage.types import BrokerId


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """One broker's surroundings. Lives as long as the core."""

    config: BrokerConfig
    shell: Shell
    registry: Registry
    directory: Directory
    """The data directory, locked by this process."""
    marks: DurableMarks
    """Open; the flusher flushes it with each group."""
    cluster_id: str
    broker_id: BrokerId
    directory_id: str
    """UUID of the data directory: a voter's name."""
    listen: str
    """`host:port` that is bound; port 0 is resolved."""
    advertise: str
    """`host:port` told to clients."""
    started_ms: int
    rng: random.Random
