"""What `test_session` does not show: the pool on its own."""

import random

from ringlog.client.config import ClientConfig
from ringlog.client.errors import InternalError, UnsupportedVersion
from ringlog.client.links import Link, LinkState
from ringlog.client.messages import InitProducerIdRequest
from ringlog.client.metadata import MetadataCache
from ringlog.client.pool import Close, LinkPool, Open, Send, reasons, unreachable
from ringlog.client.requests import ANY_BROKER, Request
from ringlog.client.timers import Timers
from tests.unit.client.session_world import SessionWorld

Dropped = list[tuple[str, list[Request], int]]


def pool(*addresses: str) -> tuple[LinkPool, Timers, Dropped]:
    timers, dropped = Timers(), Dropped()
    config = ClientConfig(addresses or ("a:1",), connect_timeout_ms=400)
    made = LinkPool(
        config,
        random.Random(1),
        timers,
        MetadataCache(),
        client_version="0.1.0",
        on_dropped=lambda link, waiting, now: dropped.append((link.address, waiting, now)),
    )
    return made, timers, dropped


def greet(made: LinkPool, link: Link) -> bool:
    body = SessionWorld().greeting(1)
    return made.on_greeting(link, body, None, 0)


def test_a_link_goes_from_idle_over_opening_and_greeting_to_ready() -> None:
    made, timers, _ = pool()
    link = made.link("a:1")
    states = [link.state]
    made.open(link, 0)
    states.append(link.state)
    made.on_opened("a:1")
    states.append(link.state)
    assert greet(made, link)
    states.append(link.state)
    assert states == list(LinkState)
    assert [type(effect) for effect in made.effects] == [Open, Send]
    assert timers.next_ms() is None, "no timer is left on a ready link"
    assert made.any_ready() is link
    assert made.ready_broker(1) is link
    assert made.ready_broker(2) is None


def test_a_drop_hands_back_what_waited_and_marks_what_was_sent_as_lost() -> None:
    made, _, dropped = pool()
    link = made.link("a:1")
    made.open(link, 0)
    sent, queued = (
        Request(ANY_BROKER, InitProducerIdRequest(), timeout_ms=1, on_done=lambda _a, _n: None)
        for _ in range(2)
    )
    link.in_flight[1] = sent
    link.queue.append(queued)
    made.drop(link, "gone", 50, close=True)
    assert dropped == [("a:1", [sent, queued], 50)]
    assert (sent.lost, queued.lost) == (True, False)
    assert (link.state, link.reason, link.in_flight) == (LinkState.IDLE, "gone", {})
    assert link.retry_at_ms > 50
    assert made.effects[-1] == Close("a:1")
    made.drop(link, "again", 60, close=True)
    assert len(dropped) == 1, "an idle link has nothing to drop"


def test_the_pause_grows_with_failures_and_a_greeting_ends_it() -> None:
    made, _, _ = pool()
    link = made.link("a:1")
    pauses = []
    for _ in range(6):
        made.open(link, 0)
        made.drop(link, "refused", 0, close=False)
        pauses.append(link.retry_at_ms)
    assert pauses[-1] > 4 * pauses[0]
    made.open(link, 0)
    made.on_opened("a:1")
    greet(made, link)
    assert link.attempts == 0


def test_an_address_that_does_not_answer_is_dropped_with_the_reason() -> None:
    made, timers, dropped = pool()
    link = made.link("a:1")
    made.open(link, 0)
    timers.run(400)
    assert link.reason == "no connection within 400 ms"
    made.open(link, 1000)
    made.on_opened("a:1")
    timers.run(1400)
    assert "no ringlog broker" in link.reason
    assert len(dropped) == 2


def test_a_greeting_answered_with_an_error_drops_the_link() -> None:
    made, _, _ = pool()
    link = made.link("a:1")
    for error in (InternalError("broken"), UnsupportedVersion("ringlog 9")):
        made.open(link, 0)
        made.on_opened("a:1")
        assert not made.on_greeting(link, None, error, 0)
        assert error.cause in link.reason
    assert isinstance(link.fatal, UnsupportedVersion)


def test_hopeless_only_when_every_address_is() -> None:
    made, _, _ = pool("a:1", "b:2")
    mismatch = UnsupportedVersion("ringlog 9")
    made.link("a:1").fatal = mismatch
    assert made.try_candidate(0, lambda: True) is None
    made.link("b:2").fatal = mismatch
    assert made.try_candidate(0, lambda: True) is mismatch
    assert made.try_candidate(5, lambda: True) is None, "the next call tries again"


def test_reasons_of_links_that_were_never_tried() -> None:
    assert reasons([Link("a:1")]) == (("a:1", "no answer yet"),)
    error = unreachable([Link("a:1"), Link("b:2")])
    assert error.cause == "no broker can be reached: a:1: no answer yet; b:2: no answer yet"
