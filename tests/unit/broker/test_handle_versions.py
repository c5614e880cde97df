"""The answer to the first request of a connection."""

import random
from collections.abc import Sequence
from typing import cast

from ringlog import __version__
from ringlog.broker.config import BrokerConfig
from ringlog.broker.context import Context
from ringlog.broker.handle_versions import versions_handler
from ringlog.broker.shell import Reply, Shell
from ringlog.client.messages import ApiKey, ApiVersions, VersionsRequest, VersionsResponse
from ringlog.registry.model import BrokerInfo
from ringlog.registry.standalone import StandaloneRegistry
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.types import BrokerId


class Answer:
    """Keeps the body that was sent."""

    def __init__(self) -> None:
        self.body: object = None

    def send(self, body: object, frames: Sequence[bytes] = ()) -> None:
        self.body = body


def context() -> Context:
    directory = MemoryDirectory()
    directory.create()
    return Context(
        config=BrokerConfig(),
        shell=cast("Shell", None),
        registry=StandaloneRegistry.open(directory, BrokerInfo(3, "h:1")),
        directory=directory,
        marks=DurableMarks.open(directory),
        cluster_id="the-cluster",
        broker_id=BrokerId(3),
        directory_id="d",
        listen="h:1",
        advertise="h:1",
        started_ms=0,
        rng=random.Random(1),
    )


def test_it_says_who_answers_and_lists_what_is_served_by_key() -> None:
    served = {ApiKey.PRODUCE, ApiKey.VERSIONS, ApiKey.METADATA}
    answer = Answer()
    handler = versions_handler(context(), served)
    handler(VersionsRequest("c", "1"), [], cast("Reply", answer), 99)
    body = answer.body
    assert isinstance(body, VersionsResponse)
    assert (body.cluster_id, body.broker_id, body.now_ms) == ("the-cluster", 3, 99)
    assert body.broker_version == __version__
    assert body.apis == [ApiVersions(0, 0, 0), ApiVersions(1, 0, 0), ApiVersions(8, 0, 0)]
    assert body.max_payload_frames == 1024
