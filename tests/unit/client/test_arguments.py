"""Usual mistakes are named, with the next step; what is right goes through."""

import math

import pytest

from ringlog.client import arguments
from ringlog.client.errors import InvalidArgument, UnknownTopic
from ringlog.storage.types import TopicPartition


@pytest.mark.parametrize(("given", "seconds"), [(0, 0), (1.5, 1.5), (math.inf, 2**31 / 1000)])
def test_a_timeout_goes_through_and_infinity_is_long(given: float, seconds: float) -> None:
    assert arguments.check_timeout(given) == seconds
    assert arguments.optional_timeout(given) == seconds


def test_no_timeout_is_left_alone_where_it_may_be() -> None:
    assert arguments.optional_timeout(None) is None


@pytest.mark.parametrize("given", ["1", -1, -0.5, math.nan, True, None, b"1"])
def test_a_timeout_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(InvalidArgument, match=r"timeout is .*seconds"):
        arguments.check_timeout(given)


def test_names_go_through_once_each() -> None:
    assert arguments.topic_names("orders") == ("orders",)
    assert arguments.topic_names(["b", "a", "b"]) == ("b", "a")
    assert arguments.topic_names(()) == ()


@pytest.mark.parametrize("given", [5, None, b"orders", [5], [""], "", [None]])
def test_a_topic_that_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(InvalidArgument, match="topic"):
        arguments.topic_names(given)


def test_an_address_in_the_place_of_a_topic_is_named() -> None:
    with pytest.raises(UnknownTopic, match=r"bootstrap_servers='127\.0\.0\.1:5555'"):
        arguments.topic_names("127.0.0.1:5555")


def test_pairs_become_partitions() -> None:
    expected = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert arguments.several_partitions(one for one in [("t", 0), TopicPartition("t", 1)]) == (
        expected
    )


@pytest.mark.parametrize(
    "given", ["orders", ("orders",), ("orders", "0"), (0, "orders"), ("t", True), ("t", 0, 1), None]
)
def test_what_is_no_partition_is_refused(given: object) -> None:
    with pytest.raises(InvalidArgument, match=r"is not a partition.*TopicPartition"):
        arguments.one_partition(given)


@pytest.mark.parametrize("given", ["orders", 5, None])
def test_what_is_no_list_of_partitions_is_refused(given: object) -> None:
    with pytest.raises(InvalidArgument, match=r"give .*TopicPartition"):
        arguments.several_partitions(given)


def test_a_topic_in_the_place_of_partitions_is_told_of_subscribe() -> None:
    with pytest.raises(InvalidArgument, match=r'TopicPartition\("orders", 0\).*subscribe'):
        arguments.several_partitions("orders")


@pytest.mark.parametrize("name", ["\udcff", "a\ud800b", b"t", "", None, 7])
def test_a_name_that_cannot_travel_is_told_with_the_rule(name: object) -> None:
    with pytest.raises(InvalidArgument, match="1 to 249 characters"):
        arguments.topic_name(name)
