"""The registry as a value: a topic's life as a table, names, retries."""

import itertools
from collections.abc import Callable

import pytest

from ringlog.registry import model
from ringlog.registry.errors import (
    BadPartitionCount,
    BadTopicName,
    RegistryError,
    TopicExists,
    TopicMissing,
    TopicReplaced,
)
from ringlog.registry.model import Assignment, RegistryState, TopicInfo, TopicState

UUID = b"u" * 16
OTHER_UUID = b"o" * 16
REQUEST = b"r" * 16


def topic(name: str = "t", **changes: object) -> TopicInfo:
    values: dict[str, object] = {
        "name": name,
        "topic_uuid": UUID,
        "state": TopicState.CREATING,
        "config": {},
        "partitions": (Assignment((0,)), Assignment((0,))),
        "created_ms": 1,
        "request_id": REQUEST,
    }
    return TopicInfo(**{**values, **changes})  # type: ignore[arg-type]  # a test's short hand


EMPTY = RegistryState()
CREATING = model.create_topic(EMPTY, topic())
ONLINE = model.set_online(CREATING, "t", UUID)
DELETING = model.mark_deleting(ONLINE, "t", UUID)
STATES = {"absent": EMPTY, "creating": CREATING, "online": ONLINE, "deleting": DELETING}

CHANGES: dict[str, Callable[[RegistryState], RegistryState]] = {
    "create": lambda state: model.create_topic(state, topic()),
    "set_online": lambda state: model.set_online(state, "t", UUID),
    "alter": lambda state: model.alter_topic(state, "t", UUID, {"a": "1"}),
    "add": lambda state: model.add_partitions(state, "t", UUID, [Assignment((0,))]),
    "mark_deleting": lambda state: model.mark_deleting(state, "t", UUID),
    "remove": lambda state: model.remove_topic(state, "t", UUID),
}

MISSING = TopicMissing

TABLE = {
    # before      create       set_online  alter       add         mark_deleting  remove
    "absent":   ("creating",   MISSING,    MISSING,    MISSING,    MISSING,       "absent"),
    "creating": ("creating",   "online",   "creating", "creating", "deleting",    "absent"),
    "online":   ("online",     "online",   "online",   "online",   "deleting",    "absent"),
    "deleting": (TopicExists,  MISSING,    MISSING,    MISSING,    "deleting",    "absent"),
}  # fmt: skip

LIFE = [
    (before, change, TABLE[before][place])
    for before, (place, change) in itertools.product(TABLE, enumerate(CHANGES))
]


@pytest.mark.parametrize(("before", "change", "after"), LIFE)
def test_a_topic_s_life(before: str, change: str, after: str | type[RegistryError]) -> None:
    state = STATES[before]
    frozen = repr(state)
    if isinstance(after, str):
        new = CHANGES[change](state)
        found = new.topics.get("t")
        assert (found.state.value if found else "absent") == after
        assert (new.version > state.version) == (new is not state)
    else:
        with pytest.raises(after):
            CHANGES[change](state)
    assert repr(state) == frozen, "R4: a state is never changed in place"


@pytest.mark.parametrize("change", [name for name in CHANGES if name not in {"create", "remove"}])
def test_a_change_that_names_another_uuid_is_refused(change: str) -> None:
    reborn = model.create_topic(EMPTY, topic(topic_uuid=OTHER_UUID))
    with pytest.raises(TopicReplaced):
        CHANGES[change](model.set_online(reborn, "t", OTHER_UUID))


def test_removing_another_uuid_removes_nothing() -> None:
    reborn = model.create_topic(EMPTY, topic(topic_uuid=OTHER_UUID))
    assert CHANGES["remove"](reborn) is reborn


def test_an_empty_uuid_means_whatever_has_the_name() -> None:
    assert model.alter_topic(ONLINE, "t", b"", {"a": "1"}).topics["t"].config == {"a": "1"}


def test_the_same_request_creates_once_and_another_is_refused() -> None:
    again = model.create_topic(ONLINE, topic(topic_uuid=OTHER_UUID))
    assert again is ONLINE
    assert again.topics["t"].topic_uuid == UUID
    with pytest.raises(TopicExists):
        model.create_topic(ONLINE, topic(request_id=b"x" * 16))
    nameless = model.create_topic(EMPTY, topic(request_id=b""))
    with pytest.raises(TopicExists):
        model.create_topic(nameless, topic(request_id=b""))


@pytest.mark.parametrize(
    ("first", "second"), [("a.b", "a_b"), ("Orders", "orders"), ("A.b", "a_B")]
)
def test_names_that_collide_are_refused(first: str, second: str) -> None:
    state = model.create_topic(EMPTY, topic(first))
    with pytest.raises(TopicExists, match="collides"):
        model.create_topic(state, topic(second))


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a" * 250,
        "a/b",
        "a b",
        "a\n",
        "a\x00",
        "ü",
        "a:b",
        "../x",
        "٣",
        "a\\b",
        "\ud800",
    ],
)
def test_what_is_no_topic_name_is_refused(name: str) -> None:
    with pytest.raises(BadTopicName):
        model.create_topic(EMPTY, topic(name))


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "...", "-", "__groups"])
def test_what_is_a_topic_name(name: str) -> None:
    assert name in model.create_topic(EMPTY, topic(name)).topics


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(BadPartitionCount):
        model.create_topic(EMPTY, topic(partitions=()))
    with pytest.raises(BadPartitionCount, match="has 2 partitions"):
        model.add_partitions(ONLINE, "t", UUID, [])


def test_settings_are_set_and_taken_back() -> None:
    state = model.alter_topic(ONLINE, "t", UUID, {"a": "1", "b": "2"})
    state = model.alter_topic(state, "t", UUID, {"a": None, "b": "3", "missing": None})
    assert state.topics["t"].config == {"b": "3"}


def test_added_partitions_are_creating_until_the_topic_is_set_online() -> None:
    state = model.add_partitions(ONLINE, "t", UUID, [Assignment((0,), generation=4)])
    assert [one.creating for one in state.topics["t"].partitions] == [False, False, True]
    assert state.topics["t"].state is TopicState.ONLINE
    state = model.set_online(state, "t", UUID)
    assert [one.creating for one in state.topics["t"].partitions] == [False, False, False]
    assert state.topics["t"].partitions[2].generation == 4


def test_internal_topics_are_known_by_their_name() -> None:
    assert topic("__groups").is_internal
    assert not topic("_groups").is_internal
