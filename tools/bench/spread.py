"""Medians and spreads of interleaved runs.

Owns the arithmetic. Must not know what was measured.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Minimum, median and maximum of several runs."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Minimum, median and maximum. `values` is not empty."""
    return Spread(min(values), statistics.median(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least `share` (0 to 1) of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Pair by pair: run i of one beside run i of the other, taken one after the other."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]
