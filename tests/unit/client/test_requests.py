"""Requests and answers as values."""

import pytest

from ringlog.client.errors import Busy, InternalError
from ringlog.client.messages import APIS, Done, InitProducerIdResponse, MetadataRequest
from ringlog.client.requests import ANY_BROKER, API_OF, Answer, Request


def test_every_request_type_has_its_api() -> None:
    assert {API_OF[api.request] for api in APIS.values()} == set(APIS)


def test_expect_gives_the_body_or_raises_what_there_is_instead() -> None:
    assert Answer(Done()).expect(Done) == Done()
    with pytest.raises(Busy):
        Answer(error=Busy("later")).expect(Done)
    with pytest.raises(InternalError, match="InitProducerIdResponse"):
        Answer(InitProducerIdResponse(1, 0), address="a:1").expect(Done)


def test_a_request_knows_its_api() -> None:
    request = Request(ANY_BROKER, MetadataRequest(), timeout_ms=5, on_done=lambda _a, _n: None)
    assert request.api.name == "METADATA"
    assert (request.sent, request.lost, request.done) == (False, False, False)
