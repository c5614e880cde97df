"""What `ringlog doctor` makes of the facts: pure judgements, each with the next step.

Owns the thresholds and the words. Must not know sockets: it is given what came back.

Invariants:
    DC1 A check that is not OK names its next step.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

from ringlog.client.admin import BrokerInfo
from ringlog.client.messages import DescribeBrokerResponse

MAX_SKEW_MS = 1_000
"""Difference of clocks beyond what the round trip explains, from which on it is named."""

LOW_SPACE_BYTES = 64 << 20
"""Less free space than this is wrong, whatever the reserve."""

FEW_OPEN_FILES = 4_096
"""A limit on open files below this is named."""


class Level(enum.StrEnum):
    """How a check went."""

    OK = "ok"
    NOTE = "note"
    """Works, and should be known."""
    WRONG = "WRONG"
    DAMAGE = "DAMAGE"


class Check(NamedTuple):
    """One line of the report."""

    where: str
    what: str
    level: Level
    text: str


class Asked(NamedTuple):
    """An answer of one broker, with this machine's clock before and after, in ms since 1970."""

    address: str
    answer: DescribeBrokerResponse
    before_ms: int
    after_ms: int


def broker_checks(asked: Asked, version: str) -> list[Check]:
    """Judge what one broker says of itself. `version`: of this command."""
    judged = (
        _version(asked.answer, version),
        _clock(asked),
        _space(asked.answer),
        _files(asked.answer),
        _policy(asked.answer),
        *_damage(asked.answer),
    )
    return [Check(asked.address, what, level, text) for what, level, text in judged]


def address_checks(
    asked: Sequence[Asked], brokers: Sequence[BrokerInfo], unreachable: dict[str, str]
) -> list[Check]:
    """Judge the addresses that brokers advertise, all of which were dialled.

    Args:
        asked: who answered, and at which address.
        brokers: from the metadata: what clients are told to dial.
        unreachable: address -> why it could not be asked.
    """
    answered = {one.address: one.answer for one in asked}
    checks = []
    for broker in brokers:
        where, answer = broker.endpoint, answered.get(broker.endpoint)
        name = f"broker {broker.broker_id}"
        if answer is None:
            reason = unreachable.get(where, "not asked")
            text = (
                f"{name} tells clients to dial it: {reason}; set advertise to an address that "
                f"clients reach"
            )
            checks.append(Check(where, "advertised", Level.WRONG, text))
        elif answer.broker_id != broker.broker_id:
            text = (
                f"{name} tells clients to dial it, but broker {answer.broker_id} answers there; "
                f"correct advertise of broker {broker.broker_id}"
            )
            checks.append(Check(where, "advertised", Level.WRONG, text))
        else:
            checks.append(Check(where, "advertised", Level.OK, f"{name} answers"))
    return checks


def cluster_checks(asked: Sequence[Asked]) -> list[Check]:
    """Whether all that answered belong together."""
    clusters = sorted({one.answer.cluster_id for one in asked})
    if len(clusters) < 2:
        return []
    text = f"the addresses lead to {len(clusters)} clusters ({', '.join(clusters)}); name one only"
    return [Check("", "cluster", Level.WRONG, text)]


_Judged = tuple[str, Level, str]


def _version(answer: DescribeBrokerResponse, version: str) -> _Judged:
    if answer.broker_version == version:
        return "version", Level.OK, version
    text = f"broker {answer.broker_version}, this command {version}; install the same version"
    return "version", Level.NOTE, text


def _clock(asked: Asked) -> _Judged:
    now_ms = asked.answer.now_ms
    if now_ms < asked.before_ms:
        skew_ms = now_ms - asked.before_ms
    else:
        skew_ms = max(0, now_ms - asked.after_ms)
    if abs(skew_ms) <= MAX_SKEW_MS:
        return "clock", Level.OK, f"within {MAX_SKEW_MS} ms of this machine's"
    side = "ahead of" if skew_ms > 0 else "behind"
    text = (
        f"{abs(skew_ms)} ms {side} this machine's; set both by NTP: records carry the client's "
        f"time, and the broker refuses those from its future"
    )
    return "clock", Level.WRONG, text


def _space(answer: DescribeBrokerResponse) -> _Judged:
    free, reserve = _mib(answer.free_bytes), _mib(answer.reserve_bytes)
    text = f"{free} free in {answer.data_directory}, reserve {reserve}"
    if answer.free_bytes < answer.reserve_bytes:
        text += ": produce is refused; free space, or lower retention.ms or retention.bytes"
        return "space", Level.WRONG, text
    if answer.free_bytes < LOW_SPACE_BYTES:
        text += ": almost full; free space, and keep disk_reserve_bytes above 0"
        return "space", Level.WRONG, text
    if answer.free_bytes < max(2 * answer.reserve_bytes, 2 * LOW_SPACE_BYTES):
        return "space", Level.NOTE, f"{text}: produce is refused soon; free space"
    return "space", Level.OK, text


def _files(answer: DescribeBrokerResponse) -> _Judged:
    used, limit = answer.open_files, answer.open_files_limit
    text = f"{used} open of {limit} allowed"
    if limit < 0:
        return "files", Level.OK, f"{used} open, no limit"
    if used > 0.9 * limit:
        return "files", Level.WRONG, f"{text}; raise the limit (ulimit -n) and start again"
    if limit < FEW_OPEN_FILES:
        return "files", Level.NOTE, f"{text}: few; raise the limit (ulimit -n {FEW_OPEN_FILES})"
    return "files", Level.OK, text


def _policy(answer: DescribeBrokerResponse) -> _Judged:
    if not answer.warnings:
        return "flush", Level.OK, f"{answer.flush_policy}: flushed before it is acknowledged"
    text = "; ".join(answer.warnings)
    return "flush", Level.NOTE, f"{text}; flush.policy=majority and storage=wal if that is no wish"


def _damage(answer: DescribeBrokerResponse) -> list[_Judged]:
    if not answer.damaged:
        return [("partitions", Level.OK, f"{answer.partitions} online, none damaged")]
    hint = f"stop the broker, then ringlog log verify {answer.data_directory}"
    return [("partitions", Level.DAMAGE, f"{text}; {hint}") for text in answer.damaged]


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"
