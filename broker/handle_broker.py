"""InitProducerId and DescribeBroker: what is asked of a broker as such.

Owns the two handlers. Must not know topics beyond their counts.

Invariants:
    BH1 Neither request changes anything that is stored, so both are answered while the disk is
        full or a partition damaged.
"""

import os

from ringlog import __version__
from ringlog.broker.context import Context
from ringlog.broker.partitions import Partitions
from ringlog.broker.process_limits import open_files_limit
from ringlog.broker.producer_ids import ProducerIds
from ringlog.broker.shell import Reply
from ringlog.broker.topic_settings import weakness
from ringlog.client.messages import (
    DescribeBrokerRequest,
    DescribeBrokerResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ringlog.storage.real_files import RealDirectory

OPEN_FILES = "/proc/self/fd"
"""One entry per descriptor of this process (Linux)."""


class BrokerHandlers:
    """One method per request. One per broker."""

    def __init__(self, context: Context, partitions: Partitions) -> None:
        self._context = context
        self._partitions = partitions
        self._producer_ids = ProducerIds(context.rng)

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        frames: list[memoryview],
        reply: Reply,
        now_ms: int,
    ) -> None:
        """InitProducerId: nothing is stored, so it cannot fail."""
        del request, frames, now_ms
        reply.send(InitProducerIdResponse(self._producer_ids.allocate(), 0))

    def describe(
        self,
        request: DescribeBrokerRequest,
        frames: list[memoryview],
        reply: Reply,
        now_ms: int,
    ) -> None:
        """DescribeBroker: facts, judged by `ringlog doctor`."""
        del request, frames
        context, partitions = self._context, self._partitions
        warnings = [weakness(topic.name, topic.settings) for topic in partitions.topics.values()]
        reply.send(
            DescribeBrokerResponse(
                broker_id=context.broker_id,
                broker_version=__version__,
                cluster_id=context.cluster_id,
                pid=os.getpid(),
                started_ms=context.started_ms,
                now_ms=now_ms,
                listen=context.listen,
                advertise=context.advertise,
                data_directory=context.directory.path,
                free_bytes=partitions.space.free_bytes,
                reserve_bytes=partitions.space.reserve_bytes,
                open_files=len(RealDirectory(OPEN_FILES).names()),
                open_files_limit=open_files_limit(),
                flush_policy="majority",
                partitions=partitions.count(),
                damaged=[f"{key}: {error}" for key, error in partitions.damaged()],
                warnings=[warning for warning in warnings if warning],
            )
        )
