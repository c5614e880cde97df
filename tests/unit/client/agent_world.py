"""A fetch agent whose client is a value: waking it asks and is answered, on the same thread."""

from typing import cast

from ringlog.client.config import ClientConfig
from ringlog.client.connection import Client
from ringlog.client.errors import ClientClosed, RinglogError
from ringlog.client.fetch_agent import FetchAgent
from ringlog.client.fetcher import Outgoing
from ringlog.client.metadata import MetadataCache
from ringlog.client.requests import Answer, Request
from ringlog.storage.types import TopicPartition
from tests.unit.client.fetch_world import FetchWorld


class QuietSession:
    """What an agent uses of a session; nothing is sent."""

    def __init__(self, metadata: MetadataCache) -> None:
        self.metadata = metadata
        self.metadata_answers = 1
        self.submitted: list[Request] = []
        self.refreshed: list[str] = []

    def submit(self, request: Request, _now_ms: int) -> None:
        self.submitted.append(request)

    def refresh(self, topics: list[str], _now_ms: int) -> None:
        self.refreshed += topics


class QuietClient:
    """What an agent uses of a client; a post runs the world."""

    def __init__(self, world: "AgentWorld", metadata: MetadataCache) -> None:
        self.config = ClientConfig(("a:1",), request_timeout_ms=3_000)
        self.session = QuietSession(metadata)
        self.world = world

    def post(self, _fn: object) -> None:
        self.world.run()


class AgentWorld(FetchWorld):
    """See the module. `deaf` leaves every request without an answer."""

    def __init__(self, partitions: int = 1, *, reset: str = "earliest") -> None:
        super().__init__(partitions, reset=reset)
        self.client = QuietClient(self, self.metadata)
        self.session = self.client.session
        self.agent = FetchAgent(cast("Client", self.client), self.fetcher, max_wait_ms=500)
        self.deaf = False
        self.closed = False

    def check_open(self) -> None:
        if self.closed:
            raise ClientClosed("closed")

    def turn(self) -> int | None:
        self.now_ms += 2_000
        return self.agent.turn(self.now_ms)

    def run(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            self.turn()
            if not self.deaf:
                for request in self.asked():
                    self.answer(request)

    def asked(self) -> list[Request]:
        asked, self.session.submitted = self.session.submitted, []
        return asked

    def answer(self, request: Request, error: RinglogError | None = None) -> None:
        """None: what a kind leader says."""
        answer = Answer(error=error)
        if error is None:
            answer = self.leader.answer(Outgoing(0, request.body, [], []))  # type: ignore[arg-type]  # one of the two
        request.on_done(answer, self.now_ms)

    def place(self, number: int = 0) -> TopicPartition:
        return TopicPartition("t", number)
