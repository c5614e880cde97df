"""The broker shell over real sockets: start, answers, stop, fatal errors."""

import socket
import threading
from pathlib import Path

import pytest
import zmq

from ringlog.broker.config import ConfigError
from ringlog.broker.reactor import ListenFailed
from ringlog.broker.server import EXIT_FAILED, EXIT_OK
from ringlog.client.errors import BrokerStopping, ErrorCode, StorageFailed
from ringlog.client.messages import (
    ApiKey,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    VersionsRequest,
    VersionsResponse,
)
from ringlog.storage.errors import DirectoryInUse, LogDirFailed, WrongDirectory
from tests.cluster.raw_client import Broker, RawClient, until

HELLO = VersionsRequest("test", "0")
FOR_EVER_MS = 600_000


def produce(acks: int = -1, partitions: int = 1) -> ProduceRequest:
    return ProduceRequest(acks, 1000, [ProducePartition("t", b"", 0)] * partitions)


def waiting_fetch(client: RawClient, broker: Broker) -> int:
    """Send a fetch that waits and make sure that it has arrived."""
    correlation = client.request(ApiKey.FETCH, FetchRequest(FOR_EVER_MS, 1, 1, []))
    client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
    assert broker.core.waiting
    return correlation


# -- Answers ------------------------------------------------------------------------------


def test_versions_names_the_broker_and_every_api_it_serves(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with broker.running(), broker.client() as client:
        answer = client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        assert answer.cluster_id == broker.core.context.cluster_id
        assert {row.api_key for row in answer.apis} == {0, 1, 8, 9, 10}
        assert answer.max_message_bytes == broker.config.max_message_bytes


def test_a_produce_is_answered_after_its_flush_and_acks_0_never(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with broker.running(), broker.client() as client:
        client.request(ApiKey.PRODUCE, produce(acks=0), [b"x"])
        answer = client.call(
            ApiKey.PRODUCE, produce(partitions=2), ProduceResponse, [b"abc", bytes(1 << 20)]
        )
        assert [result.base_offset for result in answer.results] == [3, 1 << 20]
        until(lambda: len(broker.server._reactor.sessions) == 0)


def test_large_frames_are_not_copied_in_and_small_ones_keep_nothing_alive(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with broker.running(), broker.client() as client:
        frames = [b"small", bytes(100_000)]
        client.call(ApiKey.PRODUCE, produce(partitions=2), ProduceResponse, frames)
        assert broker.core.frames == [("bytes", 5), ("Frame", 100_000)]


def test_large_replies_arrive_whole_and_give_their_credit_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with broker.running(), broker.client() as client:
        for _ in range(3):
            client.request(ApiKey.FETCH, FetchRequest(0, 1, 8 << 20, []))
            _, frames = client.receive()
            assert frames == [bytes(8 << 20)]
        # A waiting fetch is answered by the stop; by then all credit is back.
        sessions = broker.server._reactor.sessions
    assert sessions.outbound_bytes == 0


def test_a_bug_in_a_handler_is_answered_and_the_broker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path)
    with broker.running(), broker.client() as client:
        client.request(ApiKey.LIST_OFFSETS, ListOffsetsRequest([]))
        code, cause = client.refusal()
        assert code == ErrorCode.INTERNAL
        assert "ZeroDivisionError" in cause
        assert "planted bug" in caplog.text
        client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)


# -- Start --------------------------------------------------------------------------------


def test_it_announces_where_it_listens_and_writes_the_ready_file(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    broker = Broker(tmp_path, ready_file=str(ready))
    with broker.running():
        assert broker.lines[-1] == f"listening on {broker.endpoint}"
        assert f"data directory {tmp_path / 'data'}" in broker.lines
        assert ready.read_text(encoding="utf-8") == f"{broker.endpoint}\n"
        assert broker.core.context.advertise == str(broker.endpoint)
    assert not ready.exists()


def test_ipv6_loopback_works(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    broker = Broker(tmp_path, listen="[::1]:0")
    broker.server.start()
    with broker.client({zmq.IPV6: 1}) as client:
        client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
    assert broker.server.stop() == EXIT_OK


def test_a_second_broker_on_the_same_directory_is_refused_before_it_listens(
    tmp_path: Path,
) -> None:
    first, second = Broker(tmp_path), Broker(tmp_path)
    with first.running():
        with pytest.raises(DirectoryInUse):
            second.server.start()
        assert second.server.endpoint is None
        assert second.server.wait() == EXIT_FAILED
        with first.client() as client:
            client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
    with Broker(tmp_path).running():
        pass


def test_a_port_that_is_taken_is_refused_with_a_way_out(tmp_path: Path) -> None:
    first = Broker(tmp_path / "1")
    with first.running():
        second = Broker(tmp_path / "2", listen=str(first.endpoint))
        with pytest.raises(ListenFailed) as caught:
            second.server.start()
        assert str(first.endpoint) in caught.value.cause
        assert "--listen" in caught.value.hint
    # The lock was given back all the same.
    with Broker(tmp_path / "2").running():
        pass


def test_a_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    with Broker(tmp_path).running():
        pass
    with pytest.raises(WrongDirectory):
        Broker(tmp_path, broker_id=1).server.start()


def test_a_core_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    build = broker.server._build_core

    def broken(context: object) -> object:
        core = build(context)  # type: ignore[arg-type]  # handed through
        core.start_error = LogDirFailed("planted")  # type: ignore[attr-defined]  # a StubCore
        return core

    broker.server._build_core = broken  # type: ignore[assignment]  # the planted one
    with pytest.raises(LogDirFailed, match="planted"):
        broker.server.start()
    assert broker.server.wait() == EXIT_FAILED
    assert broker.lines == []


def test_a_start_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    monkeypatch.setattr("ringlog.broker.server.raise_file_limit", lambda: 100)
    with pytest.raises(ConfigError, match="100 open files"):
        broker.server.start()
    monkeypatch.undo()
    with Broker(tmp_path).running():
        pass


# -- Stop ---------------------------------------------------------------------------------


def test_a_graceful_stop_answers_who_waits_and_exits_0(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.server.start()
    with broker.client() as client:
        correlation = waiting_fetch(client, broker)
        assert broker.server.stop() == EXIT_OK
        response, _ = client.receive()
        assert (response.correlation_id, response.error) == (correlation, None)
    assert broker.core.stopped
    assert broker.core.abandoned is None
    assert broker.server.failure is None


def test_while_it_stops_writes_are_refused_and_reads_are_not(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.server.start()
    with broker.client() as client:
        client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        broker.core.stop_hangs = True
        broker.server.request_stop()
        broker.core.stop_seen.wait(20)
        client.request(ApiKey.PRODUCE, produce(), [b"x"])
        assert client.refusal()[0] == ErrorCode.BROKER_STOPPING
        client.call(ApiKey.METADATA, MetadataRequest(["t"]), MetadataResponse)
        broker.core.finish_stop()
        assert broker.server.wait() == EXIT_OK


def test_a_stop_that_takes_too_long_ends_anyway_and_says_so(tmp_path: Path) -> None:
    broker = Broker(tmp_path, stop_timeout_ms=100)
    broker.server.start()
    broker.core.stop_hangs = True
    assert broker.server.stop() == EXIT_FAILED
    assert isinstance(broker.server.failure, BrokerStopping)
    assert "stop_timeout_ms = 100" in str(broker.server.failure)
    assert broker.core.abandoned is not None


def test_an_end_that_a_disk_holds_up_is_given_up_on(tmp_path: Path) -> None:
    broker = Broker(tmp_path, stop_timeout_ms=100)
    gave_up, disk_answers = threading.Event(), threading.Event()
    broker.server._give_up = gave_up.set
    broker.server.start()
    broker.core.context.shell.run(lambda: disk_answers.wait(20), lambda _result, _error: None)
    broker.server.request_stop()
    # Here a process would end by force.
    assert gave_up.wait(20)
    disk_answers.set()
    assert broker.server.wait() == EXIT_OK


def test_a_stop_during_the_start_waits_for_the_core(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.server.request_stop()
    assert broker.server.serve() == EXIT_OK
    assert broker.core.stopped
    assert broker.lines == []


# -- Fatal errors -------------------------------------------------------------------------


def test_a_failed_flush_answers_storage_failed_and_ends_with_1(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.server.start()
    with broker.client() as client:
        client.call(ApiKey.VERSIONS, HELLO, VersionsResponse)
        broker.core.flush_failure = LogDirFailed("orders-0/0.log: EIO", hint="restart the broker")
        waiting_fetch(client, broker)
        client.request(ApiKey.PRODUCE, produce(), [b"x"])
        answers = [client.refusal() for _ in range(2)]
        assert {code for code, _ in answers} == {ErrorCode.STORAGE_FAILED}
        assert all("orders-0/0.log: EIO" in cause for _, cause in answers)
    assert broker.server.wait() == EXIT_FAILED
    assert broker.server.failure is broker.core.flush_failure
    assert isinstance(broker.core.abandoned, StorageFailed)
    assert not broker.core.stopped


def test_a_broken_callback_ends_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path)
    broker.server.start()
    shell = broker.core.context.shell
    with broker.client() as client:
        waiting_fetch(client, broker)
        shell.run(lambda: None, lambda _result, _error: broker.core.frames[99])
        assert client.refusal()[0] == ErrorCode.STORAGE_FAILED
    assert broker.server.wait() == EXIT_FAILED
    assert isinstance(broker.server.failure, IndexError)
    assert "Traceback" in caplog.text


def test_an_error_while_waiters_are_told_still_ends_the_broker(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.server.start()
    broker.core.abandon_fails = True
    broker.server.fatal(LogDirFailed("first"))
    assert broker.server.wait() == EXIT_FAILED
    assert "first" in str(broker.server.failure)
