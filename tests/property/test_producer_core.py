"""The producer core against a broker and a network that do whatever they may.

The broker keeps real logs and the real table of producers. The network delays, loses requests
and answers, processes a request after its connection was given up, and the leader moves. Checked
at the end, when everything late has arrived too: every batch ended once; what was acknowledged is
where it was said to be; nothing is stored twice; what was said to have failed is nowhere; and the
records of a partition are in the order they were given.
"""

import random
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from ringlog.client.batch import Batch
from ringlog.client.errors import (
    BatchTooLarge,
    Busy,
    DeadlineExceeded,
    DeliveryUnknown,
    ErrorInfo,
    NoBrokerReachable,
    NotLeader,
    OutOfOrderSequence,
    RequestTimedOut,
    RinglogError,
    StorageFailed,
)
from ringlog.client.errors import ProducerFenced as FencedAnswer
from ringlog.client.messages import (
    BrokerEndpoint,
    InitProducerIdRequest,
    MetadataResponse,
    PartitionMetadata,
    ProduceResponse,
    ProduceResult,
    TopicMetadata,
)
from ringlog.client.metadata import MetadataCache
from ringlog.client.producer_config import ProducerConfig
from ringlog.client.producer_core import ProducerCore
from ringlog.client.producer_effects import Closed, Ended, Produce, WantMetadata, WantProducerId
from ringlog.client.requests import ANY_BROKER, Answer, Request
from ringlog.client.retry import Backoff
from ringlog.storage.errors import ProducerFenced, SequenceError
from ringlog.storage.producer_state import ProducerTable
from ringlog.storage.record_batch import check_batch
from ringlog.storage.record_codec import decode_records
from ringlog.storage.types import Offset

TOPIC = "t"
PARTITIONS = 2
CAPACITY = 3
DELIVERY_TIMEOUT_MS = 3_000
REQUEST_TIMEOUT_MS = 400


class Partition:
    """A log in memory, with the rule of sequences of the real broker."""

    def __init__(self) -> None:
        self.table = ProducerTable()
        self.values: list[bytes] = []

    def append(self, payload: bytes, most_records: int) -> ProduceResult:
        header = check_batch(payload, max_bytes=1 << 20)
        if header.record_count > most_records:
            return _refused(BatchTooLarge("too many records").info())
        try:
            original = self.table.check(header)
        except ProducerFenced as error:
            return _refused(FencedAnswer(str(error)).info())
        except SequenceError as error:
            return _refused(OutOfOrderSequence(str(error)).info())
        if original is not None:
            return ProduceResult(original, 0)
        base = Offset(len(self.values))
        self.table.note(header, base)
        self.values += [record.value or b"" for record in decode_records(payload)]
        return ProduceResult(base, 0)


def _refused(info: ErrorInfo) -> ProduceResult:
    return ProduceResult(-1, 0, info)


@dataclass(eq=False)
class Flight:
    """One produce request on its way."""

    produce: Produce
    frames: list[bytes]
    carrier: Request
    late_ms: int


@dataclass
class World:
    """Core, broker, network and a clock."""

    idempotent: bool = True
    now_ms: int = 1_000
    leader: int = 1
    most_records: int = CAPACITY
    flights: list[Flight] = field(default_factory=list)
    limbo: list[Flight] = field(default_factory=list)
    ended: dict[Batch, Ended] = field(default_factory=dict)
    given: dict[Batch, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(7)
        self.metadata = MetadataCache()
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        self.open: dict[int, Batch] = {}
        self.count = 0
        self.ids = 0
        self.want_id = False
        self.want_metadata = True
        config = ProducerConfig(
            batch_size=CAPACITY,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_in_flight=4,
            enable_idempotence=self.idempotent,
        )
        self.core = ProducerCore(
            config,
            self.metadata,
            self.rng,
            backoff=Backoff(10, 80),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            give_up_empty=lambda batch, wall: batch.give_up_empty(wall),
        )

    # -- the application ----------------------------------------------------------------------

    def send(self, partition: int) -> None:
        self.count += 1
        value = b"%06d" % self.count
        batch = self.open.get(partition)
        if batch is None or batch.closed or batch.taken() == CAPACITY:
            batch = self.open[partition] = Batch(TOPIC, partition, CAPACITY, self.now_ms)
            batch.deadline_ms = self.now_ms + DELIVERY_TIMEOUT_MS
            self.given[batch] = [value]
            batch.values[next(batch.slots)] = value
            self.core.on_opened(batch, self.now_ms)
        else:
            self.given[batch].append(value)
            batch.values[next(batch.slots)] = value

    # -- the driver ---------------------------------------------------------------------------

    def settle(self) -> None:
        due_ms = self.core.next_deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.core.on_deadline(self.now_ms)
        self.core.turn(self.now_ms, 1_700_000_000_000 + self.now_ms)
        for effect in self.core.take_effects():
            match effect:
                case Produce():
                    self._launch(effect)
                case WantProducerId():
                    self.want_id = True
                case WantMetadata():
                    self.want_metadata = True
                case Closed():
                    pass
                case Ended(batch, base_offset, error):
                    assert batch not in self.ended, "ended twice"
                    self.ended[batch] = effect
                    batch.finish(base_offset, error)

    def _launch(self, produce: Produce) -> None:
        carrier = Request(
            ANY_BROKER, InitProducerIdRequest(), timeout_ms=1, on_done=lambda _a, _n: None
        )
        carrier.sent = True
        for batch in produce.batches:
            batch.carrier = carrier
        frames = [batch.payload for batch in produce.batches]
        self.flights.append(Flight(produce, frames, carrier, self.now_ms + produce.timeout_ms))

    def answer_wishes(self) -> None:
        if self.want_id:
            self.want_id = False
            self.ids += 1
            self.core.on_producer_id(self.ids, 0)
        if self.want_metadata:
            self.want_metadata = False
            rows = [PartitionMetadata(p, self.leader, 1, [1, 2]) for p in range(PARTITIONS)]
            brokers = [BrokerEndpoint(1, "a:1"), BrokerEndpoint(2, "b:2")]
            topic = TopicMetadata(TOPIC, b"u" * 16, rows)
            self.metadata.apply(MetadataResponse("c", 1, brokers, [topic]))
            self.core.on_metadata(self.now_ms)

    # -- the network and the broker -----------------------------------------------------------

    def process(self, flight: Flight) -> Answer:
        if flight.produce.broker_id != self.leader:
            info = NotLeader("ask the other one").info()
            results = [_refused(info) for _ in flight.frames]
        else:
            results = self._append(flight, len(flight.frames))
        return Answer(ProduceResponse(results))

    def _append(self, flight: Flight, count: int, *, first: int = 0) -> list[ProduceResult]:
        rows = flight.produce.body.partitions[first:count]
        return [
            self.partitions[row.partition].append(frame, self.most_records)
            for row, frame in zip(rows, flight.frames[first:count], strict=True)
        ]

    def arrive(self, how: int) -> None:
        """The oldest request in flight meets its fate."""
        if not self.flights:
            return
        flight = self.flights.pop(0)
        answer = self._fate(flight, how)
        self.core.on_produced(flight.produce, answer, self.now_ms)

    def _fate(self, flight: Flight, how: int) -> Answer:
        lost = NoBrokerReachable("the connection was closed")
        match how:
            case 0:  # lost on the way
                return Answer(error=lost, lost=True)
            case 1:  # processed, the answer lost
                self.process(flight)
                return Answer(error=lost, lost=True)
            case 2:  # given up now, processed later
                self.limbo.append(flight)
                return Answer(error=lost, lost=True)
            case 3:  # never left
                return Answer(error=lost, sent=False)
            case 4:
                return Answer(error=Busy("too much in flight"))
            case 5:  # stored or not, the broker does not know
                if self.rng.random() < 0.5:
                    self.process(flight)
                info = self.rng.choice([RequestTimedOut("slow"), StorageFailed("broken")]).info()
                return Answer(ProduceResponse([_refused(info) for _ in flight.frames]))
            case 6:  # the second half of it is refused
                results = []
                if flight.produce.broker_id == self.leader:
                    results = self._append(flight, len(flight.frames) // 2)
                full = _refused(Busy("full").info())
                results += [full] * (len(flight.frames) - len(results))
                return Answer(ProduceResponse(results))
            case 7:  # the first one of it is refused
                results = [_refused(Busy("full").info())]
                if flight.produce.broker_id == self.leader:
                    results += self._append(flight, len(flight.frames), first=1)
                else:
                    results *= len(flight.frames)
                return Answer(ProduceResponse(results))
            case _:
                return self.process(flight)

    def haunt(self) -> None:
        """A request that was given up is processed after all."""
        if self.limbo:
            self.process(self.limbo.pop(self.rng.randrange(len(self.limbo))))

    def expire_flights(self) -> None:
        for flight in [one for one in self.flights if one.late_ms <= self.now_ms]:
            self.flights.remove(flight)
            self.limbo.append(flight)
            error = DeadlineExceeded("no answer")
            self.core.on_produced(flight.produce, Answer(error=error, lost=True), self.now_ms)

    def step(self, op: str, number: int) -> None:
        match op:
            case "send":
                self.send(number % PARTITIONS)
            case "wait":
                self.now_ms += (1, 20, 120, 500, 3_100)[number % 5]
            case "arrive":
                self.arrive(number)
            case "haunt":
                self.haunt()
            case "move":
                self.leader = 3 - self.leader
            case "narrow":
                self.most_records = 1 + number % CAPACITY
            case _:
                self.answer_wishes()
        self.expire_flights()
        self.settle()

    def finish(self) -> None:
        """A kind world from here on; then everything late arrives."""
        self.most_records = CAPACITY
        for _ in range(400):
            self.answer_wishes()
            self.settle()
            while self.flights:
                self.arrive(9)
                self.settle()
            if len(self.ended) >= len(self.given) and not any(True for _ in self.core.unfinished):
                break
            self.now_ms += 50
            self.expire_flights()
        while self.limbo:
            self.haunt()


def check(world: World) -> None:
    stored = [partition.values for partition in world.partitions]
    for batch, values in world.given.items():
        assert batch.done, "a batch never ended"
        for index, value in enumerate(values):
            log = stored[batch.partition]
            error: RinglogError | None = batch.error_of(index)
            if error is None:
                assert log[batch.offset_of(index)] == value, "not where it was said to be"
            elif not isinstance(error, DeliveryUnknown):
                assert value not in log, f"stored, but reported as {error!r}"
    if world.idempotent:
        for log in stored:
            assert len(set(log)) == len(log), "stored twice"
            assert log == sorted(log), "out of order"


OPS = st.tuples(
    st.sampled_from(
        ["send", "send", "send", "send", "arrive", "arrive", "wait", "haunt", "move", "narrow"]
        + ["wishes", "wishes"]
    ),
    st.integers(0, 11),
)


@given(st.lists(OPS, max_size=120))
# The first batches of a producer, and the very first is refused: the log knows nobody.
@example([("send", 0)] * 9 + [("wishes", 0), ("arrive", 7)])
def test_no_loss_no_duplicate_no_disorder(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.answer_wishes()
    for op, number in steps:
        world.step(op, number)
    world.finish()
    check(world)


@given(st.lists(OPS, max_size=80))
def test_without_idempotence_reports_are_still_true(steps: list[tuple[str, int]]) -> None:
    world = World(idempotent=False)
    world.answer_wishes()
    for op, number in steps:
        world.step(op, number)
    world.finish()
    check(world)


@given(st.integers(0, 2**32))
def test_long_runs(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    world.answer_wishes()
    for _ in range(rng.randrange(12)):
        world.send(0)
    names = ["send"] * 8 + ["arrive"] * 5 + ["wait", "haunt", "move", "narrow"] + ["wishes"] * 3
    for _ in range(rng.randrange(400)):
        # Mostly kind: several batches get through between two mishaps.
        kind = rng.random() < 0.6
        world.step(rng.choice(names), 9 if kind else rng.randrange(12))
    world.finish()
    check(world)
