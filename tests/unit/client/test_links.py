"""The greeting, versions and replies of one connection."""

import pytest

from ringlog.client import wire
from ringlog.client.errors import Busy, UnsupportedVersion
from ringlog.client.links import GREETING_ID, Link, read_reply
from ringlog.client.messages import (
    APIS,
    ApiKey,
    ApiVersions,
    Done,
    InitProducerIdRequest,
    InitProducerIdResponse,
    VersionsResponse,
)
from ringlog.client.requests import ANY_BROKER, Request
from ringlog.client.wire import MalformedFrame

ROWS = [ApiVersions(int(key), api.min_version, api.max_version) for key, api in APIS.items()]


def greeted(rows: list[ApiVersions]) -> Link:
    link = Link("a:1")
    link.on_greeting(VersionsResponse("c", 4, "2.0", rows, 77, 5, 0), "0.1.0")
    return link


def request() -> Request:
    return Request(
        ANY_BROKER, InitProducerIdRequest(), [b"p"], timeout_ms=1, on_done=lambda _a, _n: None
    )


def test_the_greeting_says_who_asks() -> None:
    header = wire.decode_request(Link("a:1").greeting("me", "0.1.0"))
    assert (header.api_key, header.correlation_id) == (int(ApiKey.VERSIONS), GREETING_ID)
    assert b"me" in bytes(header.body)
    assert b"0.1.0" in bytes(header.body)


def test_what_the_broker_says_of_itself_is_kept() -> None:
    link = greeted(ROWS)
    assert (link.broker_id, link.cluster_id, link.max_message_bytes) == (4, "c", 77)
    assert link.max_payload_frames == 5


@pytest.mark.parametrize(("theirs", "chosen"), [((0, 9), 0), ((0, 0), 0)])
def test_the_newest_common_version_is_used(theirs: tuple[int, int], chosen: int) -> None:
    link = greeted([*ROWS, ApiVersions(int(ApiKey.PRODUCE), *theirs)])
    assert link.version_of(ApiKey.PRODUCE, "0.1.0") == chosen


@pytest.mark.parametrize("theirs", [(1, 2), (7, 9)])
def test_without_a_common_version_both_sides_are_named(theirs: tuple[int, int]) -> None:
    link = greeted([*ROWS, ApiVersions(int(ApiKey.PRODUCE), *theirs)])
    with pytest.raises(UnsupportedVersion, match=f"{theirs[0]} to {theirs[1]}.*ringlog 0.1.0"):
        link.version_of(ApiKey.PRODUCE, "0.1.0")


def test_a_broker_without_metadata_is_of_no_use() -> None:
    with pytest.raises(UnsupportedVersion, match="METADATA not at all"):
        greeted([row for row in ROWS if row.api_key != ApiKey.METADATA])


def test_a_request_is_a_header_and_its_frames() -> None:
    one = request()
    one.correlation_id = 12
    header, *frames = greeted(ROWS).encode(one, "0.1.0")
    assert wire.decode_request(bytes(header)).correlation_id == 12
    assert frames == [b"p"]


def test_replies_are_typed_by_what_was_asked() -> None:
    waiting = {3: request()}
    good = read_reply(wire.encode_response(3, None, InitProducerIdResponse(5, 0)), waiting)
    assert good is not None
    assert good.body == InitProducerIdResponse(5, 0)
    bad = read_reply(wire.encode_response(3, Busy("full").info(), None), waiting)
    assert bad is not None
    assert isinstance(bad.error, Busy)
    assert read_reply(wire.encode_response(4, None, Done()), waiting) is None
    with pytest.raises(MalformedFrame):
        read_reply(wire.encode_response(3, None, Done()), waiting)
