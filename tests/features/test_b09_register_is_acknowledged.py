"""B09: `REGISTER` enters a worker in a table under a lock, and is answered with `ACK`.

Ours: the first request of a connection says who asks and is answered with who serves and what
it speaks. There is no table of workers to outgrow memory, and no lock: a session exists while
it has work.
"""

import contextlib
from pathlib import Path

from ringlog import __version__
from ringlog.broker.config import BrokerConfig
from ringlog.broker.server import EXIT_OK, Server
from ringlog.client.messages import APIS, ApiKey, VersionsRequest, VersionsResponse
from tests.cluster.raw_client import RawClient, until
from tests.features.broker_on_loopback import broker_on_loopback

WORKER = VersionsRequest("worker-1", "1.0")


def test_b09_a_worker_says_who_it_is_and_is_acknowledged(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint:
        client = RawClient(endpoint)
        answer = client.call(ApiKey.VERSIONS, WORKER, VersionsResponse)
        client.close()
    assert answer.broker_version == __version__
    assert answer.broker_id == 0
    assert len(answer.cluster_id) == 36
    assert [row.api_key for row in answer.apis] == sorted(APIS)


def test_b09_registering_again_is_no_error(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint:
        client = RawClient(endpoint)
        answers = [client.call(ApiKey.VERSIONS, WORKER, VersionsResponse) for _ in range(3)]
        client.close()
    assert len({answer.cluster_id for answer in answers}) == 1


def test_b09_workers_that_left_leave_nothing_behind(tmp_path: Path) -> None:
    config = BrokerConfig(listen="localhost:0", data_dir=str(tmp_path / "data"))
    server = Server(config)
    endpoint = server.start()
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            client = RawClient(endpoint)
            stack.callback(client.close)
            client.call(ApiKey.VERSIONS, WORKER, VersionsResponse)
    until(lambda: len(server._reactor.sessions) == 0)
    assert server.stop() == EXIT_OK
