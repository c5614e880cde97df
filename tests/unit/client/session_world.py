"""A session with brokers and a clock that are values: nothing happens unless a test says so."""

import random

import msgspec

from ringlog.client import wire
from ringlog.client.config import ClientConfig
from ringlog.client.errors import BrokerError, ErrorInfo
from ringlog.client.messages import (
    APIS,
    ApiKey,
    ApiVersions,
    BrokerEndpoint,
    Message,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
    VersionsResponse,
)
from ringlog.client.pool import Answered, Close, Open, Send
from ringlog.client.requests import Answer, Request, Route
from ringlog.client.session import Session
from ringlog.storage.types import Buffer


class Sent:
    """One message a broker has received."""

    def __init__(self, address: str, frames: list[Buffer]) -> None:
        self.address = address
        header = wire.decode_request(memoryview(frames[0]))
        self.api = ApiKey(header.api_key)
        self.correlation_id = header.correlation_id
        self.body = msgspec.msgpack.decode(header.body, type=APIS[self.api].request)
        self.frames = frames[1:]


class SessionWorld:
    """Brokers by address; `leaders` maps topic to the broker ids of its partitions."""

    def __init__(self, *bootstrap: str, **settings: int) -> None:
        self.now_ms = 0
        self.config = ClientConfig(bootstrap or ("a:1",), **settings)  # type: ignore[arg-type]  # by name
        self.session = Session(self.config, random.Random(1), client_version="0.1.0")
        self.brokers = {"a:1": 1, "b:2": 2, "c:3": 3}
        self.leaders: dict[str, list[int]] = {"t": [1, 2]}
        self.topic_errors: dict[str, BrokerError] = {}
        self.partition_error: BrokerError | None = None
        """Said of each partition without a leader."""
        self.versions = {int(key): (api.min_version, api.max_version) for key, api in APIS.items()}
        self.opening: list[str] = []
        self.closed: list[str] = []
        self.inbox: list[Sent] = []
        self.answers: list[tuple[Request, Answer]] = []

    def ask(
        self,
        route: Route,
        body: Message,
        *,
        timeout_ms: int = 5_000,
        retry: bool = True,
        silent: bool = False,
    ) -> Request:
        request = Request(
            route,
            body,
            timeout_ms=timeout_ms,
            on_done=lambda _a, _n: None,
            retry=retry,
            silent=silent,
        )
        self.session.submit(request, self.now_ms)
        self.act()
        return request

    def answer_of(self, request: Request) -> Answer | None:
        found = [answer for one, answer in self.answers if one is request]
        assert len(found) <= 1, "answered twice"
        return found[0] if found else None

    def act(self) -> None:
        """Carry the effects out, as far as they need no broker."""
        while effects := self.session.take_effects():
            for effect in effects:
                match effect:
                    case Open(address):
                        self.opening.append(address)
                    case Close(address):
                        self.closed.append(address)
                    case Send(address, frames):
                        self.inbox.append(Sent(address, frames))
                    case Answered(request, answer):
                        self.answers.append((request, answer))
                        request.on_done(answer, self.now_ms)

    def wait(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        until_ms = self.now_ms + ms
        while (due_ms := self.session.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.session.on_deadline(self.now_ms)
            self.act()
        self.now_ms = until_ms

    def open(self, address: str) -> None:
        """A connection that is being made stands, and its greeting is answered."""
        self.opening.remove(address)
        self.session.on_opened(address)
        self.act()
        self.reply(self.take(ApiKey.VERSIONS), self.greeting(self.brokers[address]))

    def greeting(self, broker_id: int) -> VersionsResponse:
        rows = [ApiVersions(key, *versions) for key, versions in self.versions.items()]
        return VersionsResponse("cluster", broker_id, "9.9.9", rows, 1000 * broker_id, 16, 0)

    def fail(self, address: str, reason: str = "connection refused") -> None:
        self.opening.remove(address)
        self.lose(address, reason)

    def lose(self, address: str, reason: str = "the connection was closed") -> None:
        self.inbox = [sent for sent in self.inbox if sent.address != address]
        self.session.on_closed(address, reason, self.now_ms)
        self.act()

    def take(self, api: ApiKey) -> Sent:
        for sent in self.inbox:
            if sent.api is api:
                self.inbox.remove(sent)
                return sent
        raise AssertionError(f"no {api.name} among {[sent.api.name for sent in self.inbox]}")

    def reply(
        self, sent: Sent, body: Message | BrokerError, frames: tuple[bytes, ...] = ()
    ) -> None:
        error: ErrorInfo | None = None
        content: Message | None = None
        if isinstance(body, BrokerError):
            error = body.info()
        else:
            content = body
        header = wire.encode_response(sent.correlation_id, error, content)
        self.session.on_message(sent.address, [header, *frames], self.now_ms)
        self.act()

    def reply_metadata(self) -> None:
        sent = self.take(ApiKey.METADATA)
        assert isinstance(sent.body, MetadataRequest)
        self.reply(sent, self.metadata(sent.body.topics))

    def metadata(self, names: list[str] | None) -> MetadataResponse:
        brokers = [BrokerEndpoint(number, address) for address, number in self.brokers.items()]
        topics = []
        why = None if self.partition_error is None else self.partition_error.info()
        for name in self.leaders if names is None else names:
            rows = [
                PartitionMetadata(index, leader, 1, [1, 2], why if leader < 0 else None)
                for index, leader in enumerate(self.leaders.get(name, []))
            ]
            error = self.topic_errors.get(name)
            topics.append(
                TopicMetadata(name, b"u" * 16, rows, None if error is None else error.info())
            )
        return MetadataResponse("cluster", 1, brokers, topics)
