"""Routing, deadlines, retries and metadata over brokers that are values."""

import pytest

from ringlog.client.errors import (
    BrokerStopping,
    Busy,
    ClientClosed,
    DeadlineExceeded,
    DiskFull,
    InvalidConfig,
    NoBrokerReachable,
    NotLeader,
    PartitionDamaged,
    UnknownPartition,
    UnknownTopic,
    UnsupportedVersion,
)
from ringlog.client.messages import (
    ApiKey,
    Done,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
)
from ringlog.client.requests import ANY_BROKER, AtAddress, AtBroker, AtLeader
from tests.unit.client.session_world import SessionWorld

ID = InitProducerIdRequest()
GIVEN = InitProducerIdResponse(1, 0)


def ready(*bootstrap: str, **settings: int) -> SessionWorld:
    """A world whose first address has greeted and whose metadata is known."""
    world = SessionWorld(*bootstrap, **settings)
    world.ask(ANY_BROKER, MetadataRequest(["t"]))
    world.open(world.opening[0])
    world.reply_metadata()
    return world


def test_a_request_to_any_broker_connects_greets_sends_and_is_answered() -> None:
    world = SessionWorld()
    request = world.ask(ANY_BROKER, ID)
    assert world.opening == ["a:1"]
    world.open("a:1")
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), GIVEN, (b"frame",))
    answer = world.answer_of(request)
    assert answer is not None
    assert answer.expect(InitProducerIdResponse) == GIVEN
    assert (answer.sent, answer.lost, answer.address) == (True, False, "a:1")
    assert [bytes(frame) for frame in answer.frames] == [b"frame"]


def test_a_request_for_a_leader_asks_for_metadata_and_goes_there() -> None:
    world = SessionWorld()
    request = world.ask(AtLeader("t", 1), ID)
    world.open("a:1")
    world.reply_metadata()
    world.open("b:2")
    sent = world.take(ApiKey.INIT_PRODUCER_ID)
    assert sent.address == "b:2"
    world.reply(sent, GIVEN)
    assert world.answer_of(request) is not None


def test_many_requests_for_leaders_ask_for_metadata_once() -> None:
    world = SessionWorld()
    for _ in range(5):
        world.ask(AtLeader("t", 0), ID)
    world.open("a:1")
    world.reply_metadata()
    assert [sent.api for sent in world.inbox] == [ApiKey.INIT_PRODUCER_ID] * 5


def test_not_leader_is_followed() -> None:
    world = ready()
    request = world.ask(AtLeader("t", 0), ID)
    world.leaders["t"] = [2, 2]
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), NotLeader("ask b:2"))
    world.reply_metadata()
    world.wait(100)
    world.open("b:2")
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), GIVEN)
    answer = world.answer_of(request)
    assert answer is not None
    assert answer.error is None


def test_a_connection_that_greeted_with_the_brokers_id_is_used_whatever_its_address() -> None:
    world = SessionWorld("loopback:9")
    world.brokers = {"unreachable:1": 1}
    world.leaders = {"t": [1]}
    world.ask(AtLeader("t", 0), ID)
    world.opening.remove("loopback:9")
    world.session.on_opened("loopback:9")
    world.act()
    world.reply(world.take(ApiKey.VERSIONS), world.greeting(1))
    world.reply_metadata()
    assert world.take(ApiKey.INIT_PRODUCER_ID).address == "loopback:9"
    assert world.opening == []


def test_an_unknown_topic_ends_the_request_with_the_brokers_words() -> None:
    world = SessionWorld()
    world.topic_errors["x"] = UnknownTopic("topic 'x' does not exist", hint="create it")
    request = world.ask(AtLeader("x", 0), ID)
    world.open("a:1")
    world.reply_metadata()
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, UnknownTopic)
    assert not answer.sent


def test_an_unknown_partition_is_named() -> None:
    world = ready()
    answer = world.answer_of(world.ask(AtLeader("t", 7), ID))
    assert answer is not None
    assert isinstance(answer.error, UnknownPartition)


def test_a_partition_without_a_leader_is_asked_for_again_but_paced() -> None:
    world = SessionWorld(retry_backoff_ms=50)
    world.leaders["t"] = [-1]
    request = world.ask(AtLeader("t", 0), ID)
    world.open("a:1")
    asked = 0
    for _ in range(100):
        if any(sent.api is ApiKey.METADATA for sent in world.inbox):
            asked += 1
            world.reply_metadata()
        world.wait(10)
    assert 10 < asked <= 21
    world.leaders["t"] = [1]
    world.wait(60)
    world.reply_metadata()
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), GIVEN)
    assert world.answer_of(request) is not None


def test_a_retriable_error_is_retried_until_the_deadline() -> None:
    world = ready()
    request = world.ask(ANY_BROKER, ID, timeout_ms=2_000)
    attempts = 0
    while world.answer_of(request) is None:
        if world.inbox:
            attempts += 1
            world.reply(world.take(ApiKey.INIT_PRODUCER_ID), Busy("full"))
        world.wait(10)
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, DeadlineExceeded)
    assert "full" in answer.error.cause
    assert 3 <= attempts <= 12, "the pause grows"
    assert world.now_ms >= 2_000


def test_an_error_that_is_not_retriable_ends_it_at_once() -> None:
    world = ready()
    request = world.ask(ANY_BROKER, ID)
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), InvalidConfig("no"))
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, InvalidConfig)


def test_a_full_disk_is_told_at_once() -> None:
    world = ready()
    request = world.ask(ANY_BROKER, ID)
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), DiskFull("no space"))
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, DiskFull)


def test_a_lost_connection_is_retried_and_the_answer_says_that_one_was_lost() -> None:
    world = ready()
    request = world.ask(ANY_BROKER, ID)
    world.lose("a:1")
    world.wait(200)
    world.open("a:1")
    world.wait(200)
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), GIVEN)
    answer = world.answer_of(request)
    assert answer is not None
    assert (answer.error, answer.lost) == (None, True)


def test_an_answer_that_got_lost_is_asked_for_again() -> None:
    world = ready()
    request = world.ask(ANY_BROKER, ID, timeout_ms=6_000)
    world.take(ApiKey.INIT_PRODUCER_ID)
    world.wait(1_999)
    assert world.inbox == []
    world.wait(200)
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), GIVEN)
    answer = world.answer_of(request)
    assert answer is not None
    assert (answer.error, answer.lost) == (None, True)


def test_a_single_attempt_ends_with_the_connection() -> None:
    world = ready()
    request = world.ask(AtBroker(1), ID, retry=False)
    world.lose("a:1", "closed by the other side")
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, NoBrokerReachable)
    assert (answer.sent, answer.lost) == (True, True)
    assert "closed by the other side" in answer.error.cause


def test_a_single_attempt_that_never_left_says_so() -> None:
    world = ready()
    request = world.ask(AtBroker(2), ID, retry=False)
    world.fail("b:2")
    answer = world.answer_of(request)
    assert answer is not None
    assert (answer.sent, answer.lost) == (False, False)
    assert answer.error is not None
    assert answer.error.cause == "b:2: connection refused"
    again = world.answer_of(world.ask(AtBroker(2), ID, retry=False))
    assert again is not None, "within the pause it fails at once"


def test_a_single_attempt_without_an_answer_ends_at_its_deadline_and_the_late_one_is_ignored() -> (
    None
):
    world = ready()
    request = world.ask(AtBroker(1), ID, timeout_ms=300, retry=False)
    sent = world.take(ApiKey.INIT_PRODUCER_ID)
    world.wait(299)
    assert world.answer_of(request) is None
    world.wait(1)
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, DeadlineExceeded)
    assert (answer.sent, answer.lost) == (True, True)
    world.reply(sent, GIVEN)
    assert world.answer_of(request) is answer


def test_what_waits_for_a_connection_past_its_deadline_is_never_sent() -> None:
    world = ready()
    request = world.ask(AtBroker(2), ID, timeout_ms=100, retry=False)
    world.wait(100)
    answer = world.answer_of(request)
    assert answer is not None
    assert not answer.sent
    world.open("b:2")
    assert world.inbox == []


def test_a_silent_request_is_answered_once_it_is_sent() -> None:
    world = ready()
    request = world.ask(AtBroker(1), ID, silent=True, retry=False)
    world.take(ApiKey.INIT_PRODUCER_ID)
    answer = world.answer_of(request)
    assert answer is not None
    assert (answer.error, answer.body) == (None, None)


def test_the_first_call_names_each_address_with_its_reason() -> None:
    world = SessionWorld("a:1", "b:2", "c:3", bootstrap_timeout_ms=1_000, connect_timeout_ms=400)
    request = world.ask(ANY_BROKER, ID, timeout_ms=30_000)
    while world.answer_of(request) is None:
        for address in list(world.opening):
            if address == "a:1":
                world.fail(address)
            elif address == "b:2":
                world.fail(address, "the name 'b' does not resolve")
            else:
                # It accepts the connection and never answers.
                world.opening.remove(address)
                world.session.on_opened(address)
                world.act()
        world.wait(10)
    assert 1_000 <= world.now_ms <= 1_010
    answer = world.answer_of(request)
    assert answer is not None
    error = answer.error
    assert isinstance(error, NoBrokerReachable)
    assert isinstance(error, ConnectionError)
    reasons = dict(error.reasons)
    assert reasons["a:1"] == "connection refused"
    assert "resolve" in reasons["b:2"]
    assert "no ringlog broker" in reasons["c:3"]
    assert not answer.sent


def test_the_next_call_tries_again() -> None:
    world = SessionWorld(bootstrap_timeout_ms=500)
    world.ask(ANY_BROKER, ID)
    world.fail("a:1")
    world.wait(600)
    world.opening.clear()
    world.lose("a:1")
    world.wait(2_000)
    request = world.ask(ANY_BROKER, ID)
    world.open("a:1")
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), GIVEN)
    assert world.answer_of(request) is not None


def test_another_address_is_tried_while_one_does_not_answer() -> None:
    world = SessionWorld("a:1", "b:2")
    world.ask(ANY_BROKER, ID)
    assert len(world.opening) == 1
    world.wait(300)
    assert sorted(world.opening) == ["a:1", "b:2"]


def test_with_every_known_broker_gone_the_bootstrap_addresses_are_tried_again() -> None:
    world = SessionWorld("lb:9")
    world.brokers["lb:9"] = 1
    world.ask(ANY_BROKER, MetadataRequest(["t"]))
    world.open("lb:9")
    del world.brokers["lb:9"]
    world.reply_metadata()
    world.lose("lb:9")
    request = world.ask(ANY_BROKER, ID)
    tried = set()
    for _ in range(300):
        for address in list(world.opening):
            tried.add(address)
            world.fail(address)
        world.wait(10)
    assert tried == {"lb:9", "a:1", "b:2", "c:3"}
    assert world.answer_of(request) is None


def test_a_broker_of_another_version_is_named_with_both_versions() -> None:
    world = SessionWorld()
    world.versions[int(ApiKey.METADATA)] = (3, 5)
    request = world.ask(ANY_BROKER, ID)
    world.open("a:1")
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, UnsupportedVersion)
    for part in ("9.9.9", "3 to 5", "0.1.0", "0 to 0", "a:1"):
        assert part in answer.error.cause
    assert world.now_ms == 0, "there is nothing to wait for"
    assert world.closed == ["a:1"]


def test_a_broker_that_refuses_the_greeting_is_named_with_both_versions() -> None:
    world = SessionWorld()
    request = world.ask(ANY_BROKER, ID)
    world.opening.clear()
    world.session.on_opened("a:1")
    world.act()
    world.reply(world.take(ApiKey.VERSIONS), UnsupportedVersion("this broker is ringlog 7"))
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, UnsupportedVersion)
    assert "ringlog 7" in answer.error.cause
    assert "ringlog 0.1.0" in answer.error.cause


def test_an_api_a_broker_does_not_have_fails_only_its_own_requests() -> None:
    world = SessionWorld()
    del world.versions[int(ApiKey.INIT_PRODUCER_ID)]
    request = world.ask(ANY_BROKER, ID)
    world.open("a:1")
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, UnsupportedVersion)
    assert "INIT_PRODUCER_ID not at all" in answer.error.cause
    assert not answer.sent
    assert world.closed == []


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"HTTP/1.1 400", b"\x93\x00\xc0\xc0"])
def test_bytes_that_are_no_answer_end_the_connection(junk: bytes) -> None:
    world = SessionWorld(bootstrap_timeout_ms=500)
    request = world.ask(ANY_BROKER, ID)
    world.opening.clear()
    world.session.on_opened("a:1")
    world.act()
    world.session.on_message("a:1", [junk], world.now_ms)
    world.act()
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, NoBrokerReachable)
    assert "does not speak ringlog's protocol" in answer.error.cause


def test_an_answer_to_nothing_is_ignored() -> None:
    world = ready()
    request = world.ask(AtBroker(1), ID)
    sent = world.take(ApiKey.INIT_PRODUCER_ID)
    seen = []
    for correlation_id, body in ((999, Done()), (sent.correlation_id, GIVEN)):
        sent.correlation_id = correlation_id
        world.reply(sent, body)
        seen.append(world.answer_of(request) is not None)
    assert seen == [False, True]


def test_metadata_in_use_is_asked_for_again_when_it_is_old() -> None:
    world = ready(metadata_max_age_ms=10_000)
    world.wait(10_100)
    sent = world.take(ApiKey.METADATA)
    assert sent.body == MetadataRequest(["t"])
    answers = world.session.metadata_answers
    world.reply(sent, world.metadata(["t"]))
    assert world.session.metadata_answers == answers + 1


def test_close_answers_everything_and_refuses_what_comes() -> None:
    world = ready()
    sent = world.ask(AtBroker(1), ID)
    queued = world.ask(AtBroker(2), ID)
    unrouted = world.ask(AtLeader("x", 0), ID)
    pausing = world.ask(ANY_BROKER, ID)
    world.take(ApiKey.INIT_PRODUCER_ID)
    world.reply(world.take(ApiKey.INIT_PRODUCER_ID), Busy("full"))
    world.session.close(ClientClosed("closed"))
    world.act()
    late = world.ask(ANY_BROKER, ID)
    for request in (sent, queued, unrouted, pausing, late):
        answer = world.answer_of(request)
        assert answer is not None
        assert isinstance(answer.error, ClientClosed)
    one, other = world.answer_of(sent), world.answer_of(queued)
    assert one is not None
    assert other is not None
    assert (one.lost, other.sent) == (True, False)
    assert "a:1" in world.closed


def test_the_smallest_payload_limit_of_the_brokers_is_known() -> None:
    world = SessionWorld()
    limits = [world.session.max_message_bytes]
    for address in ("b:2", "a:1"):
        world.ask(AtAddress(address), ID)
        world.open(address)
        limits.append(world.session.max_message_bytes)
    assert limits == [None, 2000, 1000]


def test_finished_requests_leave_no_timers_behind() -> None:
    world = ready()
    for _ in range(1000):
        world.ask(AtBroker(1), ID)
        world.reply(world.take(ApiKey.INIT_PRODUCER_ID), GIVEN)
    assert len(world.session._timers._heap) < 200


def test_a_damaged_partition_is_told_as_damage_once_a_broker_has_said_so_again() -> None:
    world = ready()
    world.leaders["t"] = [-1, 2]
    world.partition_error = PartitionDamaged("flipped")
    world.session.refresh(["t"], 0)
    world.act()
    world.reply_metadata()
    world.wait(100)
    request = world.ask(AtLeader("t", 0), ID)
    assert world.answer_of(request) is None, "what is known may be old"
    world.reply_metadata()
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, PartitionDamaged)
    assert not answer.sent


def test_a_partition_that_moves_is_waited_for_and_its_trouble_named() -> None:
    world = ready()
    world.leaders["t"] = [-1, 2]
    world.partition_error = BrokerStopping("moving")
    world.session.refresh(["t"], 0)
    world.act()
    world.reply_metadata()
    request = world.ask(AtLeader("t", 0), ID, timeout_ms=200)
    world.wait(100)
    world.reply_metadata()
    assert world.answer_of(request) is None
    world.wait(200)
    answer = world.answer_of(request)
    assert answer is not None
    assert isinstance(answer.error, DeadlineExceeded)
    assert "moving" in answer.error.cause
