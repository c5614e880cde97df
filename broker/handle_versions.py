"""The Versions request: the first one on a connection, answered by the shell itself.

Owns the answer's facts. Must not know partitions.

Invariants:
    HV1 The list names exactly the APIs that dispatch serves, by key.
"""

from collections.abc import Set as AbstractSet

from ringlog import __version__
from ringlog.broker.context import Context
from ringlog.broker.shell import Handler, Reply
from ringlog.client.messages import APIS, ApiKey, ApiVersions, VersionsRequest, VersionsResponse
from ringlog.client.wire import MAX_PAYLOAD_FRAMES


def versions_handler(context: Context, served: AbstractSet[ApiKey]) -> Handler:
    """The handler of Versions; `served` is what dispatch has a row for."""
    apis = [
        ApiVersions(int(key), APIS[key].min_version, APIS[key].max_version)
        for key in sorted(served)
    ]

    def handle(
        request: VersionsRequest,  # noqa: ARG001  who asks makes no difference
        frames: list[memoryview],  # noqa: ARG001  it has none
        reply: Reply,
        now_ms: int,
    ) -> None:
        reply.send(
            VersionsResponse(
                cluster_id=context.cluster_id,
                broker_id=context.broker_id,
                broker_version=__version__,
                apis=apis,
                max_message_bytes=context.config.max_message_bytes,
                max_payload_frames=MAX_PAYLOAD_FRAMES,
                now_ms=now_ms,
            )
        )

    return handle
