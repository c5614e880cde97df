"""Credit of peers: caps on requests and replies, order, counted drops, nothing left behind."""

from collections.abc import Sequence

import pytest

from ringlog.broker.config import MIB, BrokerConfig
from ringlog.broker.sessions import (
    REPLY_OVERHEAD_BYTES,
    PeerBlocked,
    PeerGone,
    Sessions,
    Transit,
)
from ringlog.client.errors import Busy, InvalidRequest
from ringlog.storage.types import Buffer

A, B = b"peer-a", b"peer-b"


class FakeTransit:
    """A reply on its way, done when the test says so."""

    def __init__(self) -> None:
        self.finished = False

    @property
    def done(self) -> bool:
        return self.finished


class Network:
    """Takes what is sent, or refuses: `blocked` and `gone` hold peers."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, list[bytes]]] = []
        self.blocked: set[bytes] = set()
        self.gone: set[bytes] = set()
        self.tracked = False
        self.transits: list[FakeTransit] = []

    def transmit(self, peer: bytes, frames: Sequence[Buffer]) -> Transit | None:
        if peer in self.gone:
            raise PeerGone
        if peer in self.blocked:
            raise PeerBlocked
        self.sent.append((peer, [bytes(frame) for frame in frames]))
        if not self.tracked:
            return None
        self.transits.append(FakeTransit())
        return self.transits[-1]


def make(**settings: int) -> tuple[Sessions, Network]:
    network = Network()
    config = BrokerConfig(
        max_message_bytes=MIB, max_session_bytes=MIB, max_request_bytes=2 * MIB,
        max_session_outbound_bytes=MIB, max_outbound_bytes=2 * MIB,
    )  # fmt: skip
    for name, value in settings.items():
        object.__setattr__(config, name, value)  # below the limits a user may set
    return Sessions(config, network.transmit), network


def test_requests_of_one_session_are_capped_by_number() -> None:
    sessions, _ = make(max_session_requests=2)
    assert sessions.admit(A, 10) is None
    assert sessions.admit(A, 10) is None
    refusal = sessions.admit(A, 10)
    assert isinstance(refusal, Busy)
    assert "max_session_requests" in refusal.hint
    assert sessions.admit(B, 10) is None
    sessions.finish(A, 10)
    assert sessions.admit(A, 10) is None


def test_requests_of_one_session_are_capped_by_bytes() -> None:
    sessions, _ = make(max_session_bytes=100)
    assert sessions.admit(A, 60) is None
    assert isinstance(sessions.admit(A, 41), Busy)
    assert sessions.admit(A, 40) is None
    assert isinstance(sessions.admit(B, 101), InvalidRequest)


def test_requests_of_all_sessions_are_capped_by_bytes() -> None:
    sessions, _ = make(max_request_bytes=100)
    assert sessions.admit(A, 60) is None
    refusal = sessions.admit(B, 41)
    assert isinstance(refusal, Busy)
    assert "max_request_bytes" in refusal.hint
    assert sessions.refused == 1
    sessions.finish(A, 60)
    assert sessions.request_bytes == 0
    assert sessions.admit(B, 41) is None


def test_a_session_without_work_is_forgotten() -> None:
    sessions, network = make()
    assert sessions.admit(A, 10) is None
    sessions.finish(A, 10)
    sessions.send(B, [b"reply"])
    network.gone.add(A)
    assert not sessions.send(A, [b"reply"])
    assert isinstance(sessions.admit(A, 2 * MIB), InvalidRequest)
    assert len(sessions) == 0


def test_replies_wait_for_a_blocked_peer_and_keep_their_order() -> None:
    sessions, network = make()
    network.blocked.add(A)
    for number in range(3):
        assert sessions.send(A, [b"%d" % number])
    assert sessions.unsettled
    assert sessions.send(B, [b"other"])
    assert [peer for peer, _ in network.sent] == [B]
    sessions.sweep()
    assert len(network.sent) == 1
    network.blocked.clear()
    assert sessions.send(A, [b"3"])
    sessions.sweep()
    assert [frames[0] for peer, frames in network.sent if peer == A] == [b"0", b"1", b"2", b"3"]
    assert len(sessions) == 0
    assert sessions.outbound_bytes == 0
    sessions.sweep()
    assert len(network.sent) == 5


def test_a_reply_over_the_cap_is_dropped_and_counted() -> None:
    size = 100 + REPLY_OVERHEAD_BYTES
    sessions, network = make(max_session_outbound_bytes=2 * size)
    network.blocked.add(A)
    assert sessions.send(A, [bytes(100)])
    assert sessions.send(A, [bytes(100)])
    assert not sessions.send(A, [bytes(100)])
    assert sessions.drops.outbound_full == 1
    assert sessions.outbound_bytes == 2 * size


def test_one_reply_larger_than_the_cap_is_still_sent() -> None:
    sessions, network = make(max_session_outbound_bytes=100)
    assert sessions.send(A, [bytes(5000)])
    network.blocked.add(A)
    assert sessions.send(A, [bytes(5000)])
    assert not sessions.send(A, [b""])


def test_empty_replies_are_not_free() -> None:
    sessions, network = make(max_session_outbound_bytes=10 * REPLY_OVERHEAD_BYTES)
    network.blocked.add(A)
    kept = [sessions.send(A, [b""]) for _ in range(100)]
    assert sum(kept) == 10


def test_a_peer_that_vanishes_loses_what_waits_and_it_is_counted() -> None:
    sessions, network = make()
    network.blocked.add(A)
    sessions.send(A, [b"one"])
    sessions.send(A, [b"two"])
    network.gone.add(A)
    sessions.sweep()
    assert sessions.drops.vanished == 2
    assert sessions.outbound_bytes == 0
    assert len(sessions) == 0


def test_moving_replies_count_until_they_have_left() -> None:
    sessions, network = make(max_session_outbound_bytes=1000)
    network.tracked = True
    assert sessions.send(A, [bytes(2000)])
    assert sessions.room_bytes(A) == 0
    refusal = sessions.admit(A, 10)
    assert isinstance(refusal, Busy)
    assert "max_session_outbound_bytes" in refusal.hint
    network.transits[0].finished = True
    sessions.sweep()
    assert sessions.room_bytes(A) == 1000
    assert sessions.admit(A, 10) is None
    assert not sessions.unsettled


def test_a_full_session_makes_room_from_what_has_left_meanwhile() -> None:
    sessions, network = make(max_session_outbound_bytes=1000)
    network.tracked = True
    assert sessions.send(A, [bytes(900)])
    network.transits[0].finished = True
    assert sessions.send(A, [bytes(900)])


def test_all_waiting_replies_together_are_capped() -> None:
    sessions, network = make(max_outbound_bytes=3000)
    network.tracked = True
    for peer in (A, B):
        assert sessions.send(peer, [bytes(2000)])
    refusal = sessions.admit(b"peer-c", 10)
    assert isinstance(refusal, Busy)
    assert "max_outbound_bytes" in refusal.hint
    assert sessions.room_bytes(b"peer-c") == 0


def test_credit_given_back_twice_is_our_bug() -> None:
    sessions, _ = make()
    assert sessions.admit(A, 10) is None
    assert sessions.admit(A, 10) is None
    sessions.finish(A, 10)
    with pytest.raises(AssertionError, match="K1"):
        sessions.finish(A, 11)
