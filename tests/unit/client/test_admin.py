"""Each call against a broker of one thread: what is sent, and what a retry means."""

from collections.abc import Iterator

import pytest

from ringlog.client.admin import Admin
from ringlog.client.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidPartitions,
    NoBrokerReachable,
    TopicExists,
    UnknownTopic,
)
from ringlog.client.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    ApiKey,
    CreateTopicRequest,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicRequest,
    DescribeBrokerResponse,
    DescribeTopicResponse,
    PartitionDescription,
)
from ringlog.client.wire import RequestHeader
from tests.unit.client.scripted_broker import ScriptedBroker


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({"t": 3, "a": 1}) as running:
        yield running


@pytest.fixture
def admin(broker: ScriptedBroker) -> Iterator[Admin]:
    with Admin(broker.address, request_timeout_ms=5_000) as running:
        yield running


def test_create_topic_sends_settings_as_text_and_the_cluster_default(
    broker: ScriptedBroker, admin: Admin
) -> None:
    config = {"retention.ms": 5, "a": "x", "preallocate": True, "ratio": 0.5}
    created = admin.create_topic("new", partitions=2, config=config)
    assert (created.name, created.topic_uuid, created.partitions) == ("new", b"u" * 16, 2)
    body = broker.bodies[-1]
    assert isinstance(body, CreateTopicRequest)
    assert body.replication_factor == -1
    assert body.config == {"retention.ms": "5", "a": "x", "preallocate": "true", "ratio": "0.5"}
    assert len(body.request_id) == 16


def test_many_partitions_get_more_time(broker: ScriptedBroker, admin: Admin) -> None:
    admin.create_topic("one")
    admin.create_topic("many", partitions=2_000)
    bodies = [body for body in broker.bodies if isinstance(body, CreateTopicRequest)]
    assert [body.timeout_ms for body in bodies] == [5_050, 105_000]
    admin.add_partitions("t", 1_000)
    body = broker.bodies[-1]
    assert isinstance(body, AddPartitionsRequest)
    assert body.timeout_ms == 55_000


def test_a_retry_of_create_topic_carries_the_same_request_id(
    broker: ScriptedBroker, admin: Admin
) -> None:
    def drop_connections(request: RequestHeader, count: int) -> object:
        first = request.api_key == ApiKey.CREATE_TOPIC and count == 0
        return "disconnect" if first else None

    broker.script = drop_connections
    admin.create_topic("new")
    ids = [one.request_id for one in broker.bodies if isinstance(one, CreateTopicRequest)]
    assert len(ids) == 2
    assert ids[0] == ids[1]


def test_errors_of_the_broker_arrive_with_cause_and_hint(
    broker: ScriptedBroker, admin: Admin
) -> None:
    broker.script = lambda request, _: (
        TopicExists("topic 't' exists", hint="choose another name")
        if request.api_key == ApiKey.CREATE_TOPIC
        else None
    )
    with pytest.raises(TopicExists) as caught:
        admin.create_topic("t")
    assert (caught.value.cause, caught.value.hint) == ("topic 't' exists", "choose another name")
    assert caught.value.code == "TOPIC_EXISTS"


def test_list_and_cluster(broker: ScriptedBroker, admin: Admin) -> None:
    assert admin.list_topics() == ["a", "t"]
    cluster = admin.describe_cluster()
    assert (cluster.cluster_id, cluster.controller) == ("cluster", 1)
    assert [row.endpoint for row in cluster.brokers] == [broker.address]


def test_describe_topic(broker: ScriptedBroker, admin: Admin) -> None:
    row = PartitionDescription(0, -1, 4, [1], 5, 6, 7, 800, error=UnknownTopic("no leader").info())
    found = DescribeTopicResponse("t", b"u", "online", 1, {"a": "b"}, ["a"], [row])
    broker.script = lambda request, _: found if request.api_key == ApiKey.DESCRIBE_TOPIC else None
    topic = admin.describe_topic("t")
    assert (topic.state, dict(topic.config), topic.overrides) == ("online", {"a": "b"}, ("a",))
    (partition,) = topic.partitions
    assert (partition.log_start, partition.high_watermark, partition.log_end) == (5, 6, 7)
    assert isinstance(partition.error, UnknownTopic)
    with pytest.raises(AttributeError):
        topic.name = "x"  # type: ignore[misc]  # frozen


def test_alter_topic_takes_none_as_back_to_the_default(
    broker: ScriptedBroker, admin: Admin
) -> None:
    admin.alter_topic("t", {"a": 5, "b": None})
    assert isinstance(broker.bodies[-1], AlterTopicRequest)
    assert broker.bodies[-1].config == {"a": "5", "b": None}


def test_delete_topic_names_the_incarnation_it_saw(broker: ScriptedBroker, admin: Admin) -> None:
    admin.delete_topic("t")
    assert isinstance(broker.bodies[-1], DeleteTopicRequest)
    assert broker.bodies[-1].topic_uuid == b"u" * 16
    with pytest.raises(UnknownTopic):
        admin.delete_topic("unheard-of")


def test_delete_topic_succeeds_when_the_lost_attempt_had_done_it(
    broker: ScriptedBroker, admin: Admin
) -> None:
    def script(request: RequestHeader, count: int) -> object:
        if request.api_key != ApiKey.DELETE_TOPIC:
            return None
        return "disconnect" if count == 0 else UnknownTopic("no such topic")

    broker.script = script
    admin.delete_topic("t")
    with pytest.raises(UnknownTopic):
        admin.delete_topic("t")


@pytest.mark.parametrize("lost", [True, False])
def test_add_partitions_after_a_lost_answer(
    broker: ScriptedBroker, admin: Admin, lost: bool
) -> None:
    def script(request: RequestHeader, count: int) -> object:
        if request.api_key != ApiKey.ADD_PARTITIONS:
            return None
        return "disconnect" if count == 0 and lost else InvalidPartitions("it has 3")

    broker.script = script
    if lost:
        admin.add_partitions("t", 3)
        assert isinstance(broker.bodies[-2], AddPartitionsRequest)
    else:
        with pytest.raises(InvalidPartitions):
            admin.add_partitions("t", 3)


def test_delete_records_asks_the_leader(broker: ScriptedBroker, admin: Admin) -> None:
    broker.script = lambda request, _: (
        DeleteRecordsResponse(12) if request.api_key == ApiKey.DELETE_RECORDS else None
    )
    assert admin.delete_records("t", 2, 12) == 12
    assert isinstance(broker.bodies[-1], DeleteRecordsRequest)
    assert (broker.bodies[-1].partition, broker.bodies[-1].before_offset) == (2, 12)


def test_describe_broker_by_address_and_by_id(broker: ScriptedBroker, admin: Admin) -> None:
    facts = DescribeBrokerResponse(
        1, "0.1.0", "c", 9, 0, 0, "l", "a", "/d", 1, 1, 1, 1, "majority", 0, [], []
    )
    broker.script = lambda request, _: facts if request.api_key == ApiKey.DESCRIBE_BROKER else None
    assert admin.describe_broker(broker.address) == facts
    assert admin.describe_broker(1) == facts


def test_describe_broker_says_why_an_address_does_not_answer(admin: Admin) -> None:
    with pytest.raises(NoBrokerReachable, match="refused"):
        admin.describe_broker("127.0.0.1:1")


def test_a_change_without_an_answer_may_have_been_carried_out(broker: ScriptedBroker) -> None:
    broker.script = lambda request, _: "drop" if request.api_key == ApiKey.CREATE_TOPIC else None
    admin = Admin(broker.address, request_timeout_ms=200)
    with admin, pytest.raises(DeadlineExceeded, match="may have been carried out"):
        admin.create_topic("new")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("create_topic", ("", 1)),
        ("create_topic", (5, 1)),
        ("create_topic", ("t", 0)),
        ("create_topic", ("t", True)),
        ("create_topic", ("t", 1, 0)),
        ("create_topic", ("t", 1, None, {"a": object()})),
        ("create_topic", ("t", 1, None, {5: "a"})),
        ("alter_topic", ("t", {"a": []})),
        ("delete_topic", ("",)),
        ("add_partitions", ("t", 0)),
        ("delete_records", ("t", -1, 0)),
        ("delete_records", ("t", 0, -2)),
        ("describe_broker", ("nonsense",)),
    ],
)
def test_bad_arguments_never_reach_a_broker(name: str, args: tuple[object, ...]) -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(InvalidArgument):
        getattr(admin, name)(*args)


def test_bad_addresses_are_refused_at_once() -> None:
    with pytest.raises(InvalidArgument):
        Admin("tcp://127.0.0.1:1")


@pytest.mark.parametrize("config", [{"\udcff": "1"}, {"retention.ms": "\udcff"}])
def test_a_setting_that_cannot_travel_is_refused(config: dict[str, object]) -> None:
    with Admin("127.0.0.1:1") as admin:
        with pytest.raises(InvalidArgument, match="Unicode"):
            admin.create_topic("t", config=config)
        with pytest.raises(InvalidArgument, match="Unicode"):
            admin.alter_topic("t", config)
