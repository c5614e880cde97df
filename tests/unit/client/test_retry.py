"""Pauses between attempts."""

import random

import pytest

from ringlog.client.retry import Backoff


@pytest.mark.parametrize(
    ("attempts", "whole"), [(1, 50), (2, 100), (3, 200), (5, 800), (6, 1000), (400, 1000)]
)
def test_pause_doubles_up_to_the_maximum_and_lies_in_its_upper_half(
    attempts: int, whole: int
) -> None:
    rng = random.Random(1)
    pauses = [Backoff(50, 1000).pause_ms(attempts, rng) for _ in range(300)]
    assert whole // 2 <= min(pauses)
    assert max(pauses) <= whole
    assert len(set(pauses)) > 10, "without jitter clients come back together"


def test_never_at_once() -> None:
    assert Backoff(1, 1).pause_ms(1, random.Random(1)) == 1
