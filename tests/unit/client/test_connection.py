"""The edge to zmq and threads, against a broker of one thread and against no broker."""

import os
import socket
import threading
import time

import pytest

from ringlog.client.config import ClientConfig
from ringlog.client.connection import Client, monotonic_ms
from ringlog.client.errors import (
    ClientClosed,
    ClientForked,
    InternalError,
    InvalidArgument,
    NoBrokerReachable,
    RinglogError,
    UnsupportedVersion,
)
from ringlog.client.messages import (
    ApiKey,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
)
from ringlog.client.requests import ANY_BROKER, Answer, AtAddress, AtLeader, Request
from tests.unit.client.scripted_broker import ScriptedBroker

ID = InitProducerIdRequest()


def client_of(*addresses: str, **settings: int) -> Client:
    values = {"bootstrap_timeout_ms": 5_000, "connect_timeout_ms": 2_000, **settings}
    return Client(ClientConfig(addresses, **values))  # type: ignore[arg-type]  # by name


def error_of(*addresses: str, **settings: int) -> RinglogError:
    client = client_of(*addresses, bootstrap_timeout_ms=400, **settings)
    try:
        error = client.call(ANY_BROKER, ID, timeout_ms=20_000).error
    finally:
        client.close(5)
    assert error is not None
    return error


def test_a_call_is_answered_and_frames_come_along() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        client = client_of(broker.address)
        found = client.call(ANY_BROKER, MetadataRequest(["t"])).expect(MetadataResponse)
        assert found.topics[0].name == "t"
        assert client.call(AtLeader("t", 0), ID).expect(InitProducerIdResponse).producer_id
        client.close(5)


def test_many_threads_may_call() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        client = client_of(broker.address)
        ids: list[int] = []

        def work() -> None:
            for _ in range(20):
                found = client.call(ANY_BROKER, ID).expect(InitProducerIdResponse)
                ids.append(found.producer_id)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close(5)
        assert len(ids) == 80
        assert len(set(ids)) == 80


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_refused_and_unresolvable_addresses_are_each_named() -> None:
    refused = f"127.0.0.1:{unused_port()}"
    error = error_of(refused, "no-such-host.invalid:5555")
    assert isinstance(error, NoBrokerReachable)
    reasons = dict(error.reasons)
    assert reasons[refused] == "connection refused"
    assert "does not resolve" in reasons["no-such-host.invalid:5555"]


def test_a_server_that_speaks_something_else_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        stop = threading.Event()

        def serve() -> None:
            server.settimeout(0.1)
            while not stop.is_set():
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    continue
                with peer:
                    peer.settimeout(0.1)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)

        thread = threading.Thread(target=serve)
        thread.start()
        error = error_of(address)
        stop.set()
        thread.join()
    assert isinstance(error, NoBrokerReachable)
    assert address in error.cause


def test_a_server_that_says_nothing_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        error = error_of(address, connect_timeout_ms=150)
    assert isinstance(error, NoBrokerReachable)
    assert "no ringlog broker" in error.cause


def test_another_version_is_named_at_once() -> None:
    with ScriptedBroker({}) as broker:
        broker.apis[int(ApiKey.METADATA)] = (5, 6)
        broker.version = "7.0.0"
        began = monotonic_ms()
        error = error_of(broker.address)
        assert monotonic_ms() - began < 400
    assert isinstance(error, UnsupportedVersion)
    assert "7.0.0" in error.cause


def test_a_broker_that_comes_back_on_the_same_port_is_found_again() -> None:
    broker = ScriptedBroker({"t": 1})
    client = client_of(broker.address, retry_backoff_max_ms=100)
    client.call(ANY_BROKER, ID).expect(InitProducerIdResponse)
    broker.close()
    with ScriptedBroker({"t": 1}, port=broker.port):
        client.call(ANY_BROKER, ID, timeout_ms=10_000).expect(InitProducerIdResponse)
    client.close(5)


def test_the_end_of_a_connection_ends_a_single_attempt_at_once() -> None:
    with ScriptedBroker({}) as broker:
        broker.script = lambda request, _: "drop" if request.api_key else None
        client = client_of(broker.address)
        answers: list[Answer] = []
        done = threading.Event()

        def on_done(answer: Answer, _now_ms: int) -> None:
            answers.append(answer)
            done.set()

        route = AtAddress(broker.address)
        client.submit(Request(route, ID, timeout_ms=60_000, on_done=on_done, retry=False))
        while ApiKey.INIT_PRODUCER_ID not in broker.seen:
            assert not done.wait(0.005)
    assert done.wait(5), "the deadline would be a minute"
    assert (answers[0].sent, answers[0].lost) == (True, True)
    client.close(5)


def test_close_answers_what_is_open_and_refuses_what_comes() -> None:
    client = client_of(f"127.0.0.1:{unused_port()}", bootstrap_timeout_ms=60_000)
    answers: list[Answer] = []
    client.submit(
        Request(ANY_BROKER, ID, timeout_ms=60_000, on_done=lambda answer, _: answers.append(answer))
    )
    client.close(5)
    assert isinstance(answers[0].error, ClientClosed)
    with pytest.raises(ClientClosed):
        client.call(ANY_BROKER, ID)
    client.close(5)


def test_a_client_that_was_never_used_closes_without_a_thread() -> None:
    client = client_of("127.0.0.1:1")
    client.close(5)
    with pytest.raises(ClientClosed):
        client.call(ANY_BROKER, ID)


def test_a_blocking_call_in_a_callback_is_refused() -> None:
    with ScriptedBroker({}) as broker:
        client = client_of(broker.address)
        errors: list[Exception] = []
        done = threading.Event()

        def on_done(_answer: Answer, _now_ms: int) -> None:
            try:
                client.call(ANY_BROKER, ID)
            except InvalidArgument as error:
                errors.append(error)
            done.set()

        client.submit(Request(ANY_BROKER, ID, timeout_ms=5_000, on_done=on_done))
        assert done.wait(10)
        assert "callback" in str(errors[0])
        client.close(5)


def test_when_the_io_thread_dies_everybody_is_told(caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(f"127.0.0.1:{unused_port()}", bootstrap_timeout_ms=60_000)
    answers: list[Answer] = []
    client.submit(
        Request(ANY_BROKER, ID, timeout_ms=60_000, on_done=lambda answer, _: answers.append(answer))
    )

    def planted(_now_ms: int) -> None:
        raise ZeroDivisionError

    client.post(planted)
    assert client._thread is not None
    client._thread.join(10)
    assert isinstance(answers[0].error, InternalError)
    with pytest.raises(InternalError):
        client.call(ANY_BROKER, ID)
    assert "ZeroDivisionError" in caplog.text


def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on() -> None:
    with ScriptedBroker({}) as broker:
        client, unused = client_of(broker.address), client_of(broker.address)
        client.call(ANY_BROKER, ID).expect(InitProducerIdResponse)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.call(ANY_BROKER, ID)
            except ClientForked:
                # A client that had not been used belongs to whoever uses it first.
                code = 0 if unused.call(ANY_BROKER, ID).error is None else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        client.call(ANY_BROKER, ID).expect(InitProducerIdResponse)
        client.close(5)
        unused.close(5)


def test_an_idle_client_sleeps() -> None:
    with ScriptedBroker({}) as broker:
        client = client_of(broker.address)
        client.call(ANY_BROKER, ID).expect(InitProducerIdResponse)
        rounds: list[int] = []
        settle = client._settle

        def counted(now_ms: int) -> int | None:
            rounds.append(now_ms)
            return settle(now_ms)

        client._settle = counted  # type: ignore[method-assign]  # counted
        threading.Event().wait(0.2)
        assert len(rounds) < 5
        client.close(5)


def test_the_clock_is_monotonic_milliseconds() -> None:
    assert abs(monotonic_ms() - time.monotonic() * 1000) < 50


def test_a_request_that_cannot_be_encoded_ends_alone() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        client = client_of(broker.address)
        for name in ("\udcff", 2**70):
            bad = client.call(ANY_BROKER, MetadataRequest([name]))  # type: ignore[list-item]  # on purpose
            assert isinstance(bad.error, InvalidArgument)
            assert not bad.sent
        assert client.call(ANY_BROKER, ID).error is None
        client.close(5)


class Bomb:
    """An agent that fails in its turn, once it is armed."""

    armed = False
    ended = 0

    def turn(self, _now_ms: int) -> None:
        if self.armed:
            raise RuntimeError("boom")

    def on_client_ended(self, _error: RinglogError) -> None:
        self.ended += 1
        raise RuntimeError("boom again")


@pytest.mark.parametrize("place", ["turn", "inbox", "callback", "routing"])
def test_an_io_thread_that_fails_wakes_everybody_at_once(place: str) -> None:
    client = client_of("127.0.0.1:1", bootstrap_timeout_ms=60_000)
    bomb, other = Bomb(), Bomb()
    client.attach(bomb)
    client.attach(other)
    answers: list[Answer] = []
    ended = threading.Semaphore(0)

    def on_done(answer: Answer, _now_ms: int) -> None:
        answers.append(answer)
        ended.release()

    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    for _ in range(2):
        client.submit(Request(ANY_BROKER, ID, timeout_ms=60_000, on_done=on_done))
    match place:
        case "turn":
            client.post(lambda _: setattr(bomb, "armed", True))
        case "inbox":
            client.post(fail)
        case "callback":
            client.submit(Request(AtAddress("a:1"), ID, timeout_ms=1, on_done=fail))
        case _:
            # Half routed: it stands in no queue.
            client.post(lambda _: setattr(client.session, "_route", fail))
            client.submit(Request(ANY_BROKER, ID, timeout_ms=60_000, on_done=on_done))
    count = 3 if place == "routing" else 2
    for _ in range(count):
        assert ended.acquire(timeout=10)
    assert all("boom" in str(answer.error) for answer in answers)
    assert len(answers) == count
    with pytest.raises(InternalError, match="boom"):
        client.post(fail)
    client.close(5)
    assert bomb.ended
    assert other.ended, "although the first one failed there too"
