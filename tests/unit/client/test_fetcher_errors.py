"""Gaps, errors, and topics that come and go under the fetcher."""

import pytest

from ringlog.client.errors import (
    BrokerError,
    Busy,
    CorruptRecord,
    DeadlineExceeded,
    ErrorCode,
    ErrorInfo,
    NoBrokerReachable,
    NotLeader,
    OffsetOutOfRange,
    PartitionDamaged,
    StaleTopic,
    UnknownPartition,
    UnknownTopic,
)
from ringlog.client.fetch_slot import SlotState
from ringlog.client.fetcher import BehindEnd, Lost
from ringlog.client.messages import (
    EARLIEST,
    FetchResult,
    ListOffsetsResponse,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from ringlog.client.metadata import MetadataCache
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.types import TopicPartition
from tests.unit.client.fetch_world import (
    UUID,
    FetchWorld,
    fetched,
    ready,
    topic_metadata,
    with_topic,
)

DAMAGE = PartitionDamaged("bad")


# -- gaps ---------------------------------------------------------------------------------


def lose(world: FetchWorld, before: int) -> None:
    """Records are deleted after something was read."""
    world.go_on(1)
    assert world.offsets(2) == [0, 1]
    world.fetcher.rewind(world.slot(), 2)
    world.leader.delete(0, before)
    world.go_on()


@pytest.mark.parametrize(("reset", "rest"), [("earliest", [6, 7, 8, 9]), ("latest", [])])
def test_a_gone_offset_is_an_event_and_reading_goes_on(reset: str, rest: list[int]) -> None:
    world = ready(reset=reset)
    lose(world, 6)
    end = rest[0] if rest else 10
    assert world.fetcher.lost == [Lost(TopicPartition("t", 0), 2, end)]
    assert world.offsets() == rest
    assert world.slot().position == 10


def test_a_gone_offset_is_an_error_with_reset_none() -> None:
    world = ready(reset="none")
    lose(world, 6)
    assert isinstance(world.fetcher.take_error(), OffsetOutOfRange)
    assert world.fetcher.take_error() is None
    assert world.slot().position == 2
    assert world.ask() == []
    world.fetcher.seek(world.slot(), 8)
    world.go_on(1)
    assert world.offsets() == [8, 9]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_offset_behind_the_end_loses_nothing_and_reads_nothing_twice(reset: str) -> None:
    world = ready(reset=reset)
    world.fetcher.seek(world.slot(), 50)
    world.go_on()
    assert world.fetcher.lost == [BehindEnd(TopicPartition("t", 0), 50, 10)]
    assert world.slot().position == 10
    assert world.offsets() == []


def test_a_gone_offset_without_a_known_log_start_is_an_error() -> None:
    world = ready()
    world.fetcher.seek(world.slot(), 3)
    row = FetchResult(-1, -1, -1, OffsetOutOfRange("gone").info())
    world.reply(world.one(), fetched(row))
    assert isinstance(world.fetcher.take_error(), OffsetOutOfRange)


def test_what_was_fetched_before_a_gap_is_handed_out_first() -> None:
    world = FetchWorld()
    for _ in range(3):
        world.leader.append(0, 5, padding=200)
    world.assign(0)
    world.go_on()
    assert world.slot().fetch_from == 5
    world.leader.delete(0, 12)
    world.go_on(2)
    assert world.slot().position == 0
    assert world.offsets() == [0, 1, 2, 3, 4, 12, 13, 14]


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "refreshes"),
    [
        (NotLeader("moved"), True),
        (Busy("full"), False),
        (NoBrokerReachable("refused"), True),
        (DeadlineExceeded("late"), True),
    ],
)
def test_a_passing_error_pauses_longer_each_time(error: NotLeader, refreshes: bool) -> None:
    world = ready()
    pauses = []
    for _ in range(8):
        world.refuse(world.one(), error)
        assert world.slot().trouble is error
        pauses.append(world.slot().not_before_ms - world.now_ms)
        assert world.fetcher.turn(world.now_ms, world.metadata) == []
        assert world.fetcher.next_deadline_ms(world.now_ms) == world.slot().not_before_ms
    assert pauses[0] <= 50
    assert pauses[-1] >= 500
    assert world.fetcher.stale_topics == ({"t"} if refreshes else set())
    assert world.fetcher.take_error() is None
    world.go_on(1)
    assert world.slot().trouble is None
    assert world.fetcher.next_deadline_ms(world.now_ms) is None
    assert len(world.offsets()) == 10


def test_a_lasting_error_halts_its_partition_alone_and_is_raised_once() -> None:
    world = FetchWorld(3)
    world.leader.append(0, 2)
    world.leader.append(2, 2)
    world.assign(0, 2)
    world.go_on(1)
    request = world.one()
    answer = world.leader.answer(request)
    assert not isinstance(answer.body, ListOffsetsResponse)
    rows = [FetchResult(2, 0, -1, DAMAGE.info()), FetchResult(2, 0, 1)]
    world.reply(request, fetched(*rows, frames=answer.frames))  # type: ignore[arg-type]  # bytes
    assert isinstance(world.fetcher.take_error(), PartitionDamaged)
    assert world.fetcher.take_error() is None
    assert [(one.partition, one.offset) for one in world.take()] == [(2, 0), (2, 1)]
    assert world.slot(0).state is SlotState.HALTED
    assert [slot.partition.partition for slot in world.one().slots] == [2]


def test_an_error_waits_for_what_was_fetched_before_it() -> None:
    world = ready()
    world.go_on(1)
    world.refuse(world.one(), DAMAGE)
    assert world.fetcher.has_error
    assert world.fetcher.take_error() is None
    assert len(world.offsets()) == 10
    assert world.fetcher.take_error() is DAMAGE
    assert world.slot().position == 10


def test_an_answer_with_too_few_rows_is_refused_whole() -> None:
    world = ready()
    world.reply(world.one(), fetched())
    error = world.fetcher.take_error()
    assert isinstance(error, CorruptRecord)
    assert "answered 0 of 1 partitions" in error.cause


def batch(base: int, count: int = 2) -> bytes:
    return encode_batch([b"v"] * count, base_offset=base)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes are no whole batches"),
        (batch(0)[:-1], "no whole batches"),
        (batch(0) + batch(2)[:30], "no whole batches"),
        (bytes(61), "magic"),
        (batch(1) + batch(1), "where 3 should follow"),
        (batch(2) + batch(0), "where 4 should follow"),
        (batch(2, 3) + batch(4), "where 5 should follow"),
    ],
)
def test_bytes_that_are_no_batches_in_order_are_refused(data: bytes, why: str) -> None:
    world = ready()
    world.reply(world.one(), fetched(FetchResult(9, 0, 0), frames=[data]))
    error = world.fetcher.take_error()
    assert isinstance(error, CorruptRecord)
    assert why in error.cause
    assert world.take() == []


def test_batches_that_end_before_the_offset_asked_for_are_refused() -> None:
    world = ready()
    world.fetcher.seek(world.slot(), 2)
    world.reply(world.one(), fetched(FetchResult(9, 0, 0), frames=[batch(0)]))
    assert isinstance(world.fetcher.take_error(), CorruptRecord)


def test_a_frame_that_was_not_sent_is_refused() -> None:
    world = ready()
    world.reply(world.one(), fetched(FetchResult(9, 0, 1), frames=[batch(0)]))
    error = world.fetcher.take_error()
    assert isinstance(error, CorruptRecord)
    assert "names a frame it did not send" in error.cause


def test_nothing_new_is_no_error_and_asked_for_again() -> None:
    world = ready(3)
    world.go_on(1)
    assert len(world.offsets()) == 3
    world.go_on(1)
    assert world.take() == []
    assert len(world.ask()) == 1


def test_what_cannot_be_decoded_halts_where_it_stands() -> None:
    world = ready()
    world.go_on(1)
    world.fetcher.fail(world.slot(), CorruptRecord("bad"))
    assert world.fetcher.buffered_bytes == 0
    assert isinstance(world.fetcher.take_error(), CorruptRecord)
    assert (world.slot().position, world.slot().fetch_from) == (0, 0)


# -- topics that come and go --------------------------------------------------------------


def test_a_topic_without_a_leader_is_asked_for_again() -> None:
    world = FetchWorld()
    world.metadata = MetadataCache()
    world.assign(0)
    assert world.ask() == []
    assert world.fetcher.stale_topics == {"t"}
    assert isinstance(world.slot().trouble, NotLeader)
    world.metadata.apply(with_topic(UUID))
    assert len(world.ask()) == 1


def missing() -> MetadataResponse:
    info = ErrorInfo(int(ErrorCode.UNKNOWN_TOPIC), "topic 't' does not exist", "create it")
    return MetadataResponse("c", 0, [], [TopicMetadata("t", b"", [], info)])


def test_a_deleted_topic_is_an_error_until_somebody_tries_again() -> None:
    world = ready()
    world.metadata.apply(missing())
    assert world.ask() == []
    assert isinstance(world.fetcher.take_error(), UnknownTopic)
    world.fetcher.seek(world.slot(), 0)
    assert world.ask() == []
    assert world.slot().state is SlotState.READY
    assert world.fetcher.stale_topics == {"t"}
    world.metadata.apply(with_topic(UUID))
    world.go_on(1)
    assert len(world.offsets()) == 10


def test_a_topic_that_came_back_is_asked_for_whoever_said_it_was_gone() -> None:
    world = ready()
    world.refuse(world.one(), UnknownTopic("gone"))
    # Somebody else asked meanwhile, before it came back.
    world.metadata.apply(missing())
    world.fetcher.take_error()
    world.fetcher.seek(world.slot(), 0)
    assert world.ask() == []
    assert world.fetcher.take_error() is None
    world.metadata.apply(with_topic(UUID))
    world.go_on(1)
    assert len(world.offsets()) == 10


def test_a_partition_that_does_not_exist_is_asked_for_once_more_and_refused() -> None:
    world = FetchWorld(2)
    world.assign(5)
    assert world.ask() == []
    assert world.fetcher.stale_topics == {"t"}
    assert world.fetcher.take_error() is None
    assert world.ask() == []
    assert world.metadata.topic("t") is None
    world.metadata.apply(with_topic(UUID, partitions=3))
    assert world.ask() == []
    error = world.fetcher.take_error()
    assert isinstance(error, UnknownPartition)
    assert "3 partitions" in error.cause


def test_a_partition_that_came_meanwhile_is_found() -> None:
    world = FetchWorld(2)
    world.assign(4)
    world.ask()
    world.ask()
    world.metadata.apply(with_topic(UUID, partitions=5))
    assert len(world.ask()) == 1


def recreated(*, handed_out: int = 0) -> FetchWorld:
    """The topic was deleted and made again; the fetch said so."""
    world = ready()
    world.go_on(1)
    world.take(handed_out or 1)
    world.fetcher.rewind(world.slot(), max(1, handed_out))
    world.refuse(world.one(), StaleTopic("made again"))
    return world


def test_a_topic_made_again_halts_and_is_raised_once() -> None:
    world = recreated(handed_out=4)
    assert isinstance(world.fetcher.take_error(), StaleTopic)
    assert world.fetcher.take_error() is None
    assert world.fetcher.stale_topics == {"t"}
    assert world.ask() == []
    assert world.slot().position == 4


def test_a_seek_reads_the_new_topic_and_never_asks_by_the_old_uuid() -> None:
    world = recreated()
    world.fetcher.take_error()
    world.fetcher.seek(world.slot(), 0)
    # What is known of the topic is of the old one.
    assert world.ask() == []
    world.metadata.apply(with_topic(b"n" * 16))
    assert world.one().body.partitions[0].topic_uuid == b"n" * 16


def test_assigning_it_again_starts_the_new_topic_over() -> None:
    world = recreated(handed_out=4)
    world.assign(0)
    assert world.ask() == []
    world.metadata.apply(with_topic(b"n" * 16))
    assert world.slot().state is SlotState.LOOKING
    world.go_on()
    assert world.offsets() == list(range(10))


def test_a_rewind_stays_with_the_topic_that_was_read() -> None:
    world = ready()
    world.metadata.apply(with_topic(b"n" * 16))
    world.fetcher.rewind(world.slot(), 3)
    assert world.one().body.partitions[0].topic_uuid == UUID


def test_a_look_goes_on_in_the_new_topic() -> None:
    world = FetchWorld()
    world.leader.append(0, 2)
    world.assign(0)
    world.refuse(world.one(), StaleTopic("made again"))
    assert world.ask() == []
    world.metadata.apply(with_topic(b"n" * 16))
    world.go_on()
    assert world.fetcher.take_error() is None
    assert world.offsets() == [0, 1]


# -- assignments --------------------------------------------------------------------------


def test_an_assignment_keeps_what_it_had_and_drops_the_rest() -> None:
    world = FetchWorld(3)
    for number in range(3):
        world.leader.append(number, 5)
    world.assign(0, 1)
    world.go_on()
    kept = world.slot(1)
    assert world.offsets(2) == [0, 1]
    world.assign(1, 2, 1)
    assert list(world.fetcher.slots) == [TopicPartition("t", 1), TopicPartition("t", 2)]
    assert world.slot(1) is kept
    world.go_on()
    assert len(world.take()) == 10


def test_assigning_a_halted_partition_again_goes_on_where_it_stood() -> None:
    world = ready()
    world.go_on(1)
    assert world.offsets(4) == [0, 1, 2, 3]
    world.fetcher.fail(world.slot(), CorruptRecord("bad"))
    world.assign(0)
    assert world.slot().state is SlotState.READY
    assert world.fetcher.take_error() is None
    world.go_on(1)
    assert world.offsets() == [4, 5, 6, 7, 8, 9]


def test_assigning_a_partition_that_never_had_a_position_looks_for_it() -> None:
    world = FetchWorld()
    world.assign(0)
    world.refuse(world.one(), DAMAGE)
    world.assign(0)
    assert world.slot().state is SlotState.LOOKING


def test_a_finder_looks_and_never_fetches() -> None:
    world = FetchWorld(2)
    world.leader.append(0, 5)
    finder = world.fetcher.finder({TopicPartition("t", 0): 2_000, TopicPartition("t", 1): 0})
    for request in finder.turn(0, world.metadata):
        finder.on_answer(request, world.leader.answer(request), 0)
    assert [slot.found for slot in finder.slots.values()] == [2, -1]
    assert finder.turn(0, world.metadata) == []


# -- partitions without a leader ----------------------------------------------------------


def leaderless(why: BrokerError) -> MetadataResponse:
    """Partition 0 has none, partition 1 has."""
    topic = topic_metadata(2)
    topic.partitions[0] = PartitionMetadata(0, -1, 1, [0], why.info())
    return MetadataResponse("c", 0, [], [topic])


def test_damage_halts_its_own_partition_once_a_broker_has_said_so_again() -> None:
    world = FetchWorld(2)
    world.leader.append(0, 2)
    world.leader.append(1, 2)
    world.metadata.apply(leaderless(DAMAGE))
    world.assign(0, 1)
    world.go_on(3)
    assert world.slot().state is SlotState.LOOKING, "what is known may be old"
    assert world.fetcher.stale_topics == {"t"}
    world.metadata.apply(leaderless(DAMAGE))
    world.go_on(1)
    assert world.slot().state is SlotState.HALTED
    assert isinstance(world.fetcher.take_error(), PartitionDamaged)
    assert world.fetcher.take_error() is None
    assert world.offsets() == [0, 1], "the other one"
    world.fetcher.look_for(world.slot(), EARLIEST)
    world.go_on(1)
    assert world.slot().state is SlotState.LOOKING, "it may have been repaired"
    world.metadata.apply(with_topic(UUID, 2))
    world.go_on()
    assert world.offsets() == [0, 1]


def test_what_passes_is_waited_for_and_named() -> None:
    world = FetchWorld(2)
    world.assign(0)
    for _ in range(3):
        world.metadata.apply(leaderless(Busy("moving")))
        world.go_on(1)
    assert world.slot().state is SlotState.LOOKING
    assert isinstance(world.slot().trouble, Busy)
