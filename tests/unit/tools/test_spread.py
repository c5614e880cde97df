"""Medians, percentiles and ratios of runs."""

import pytest

from ringlog.tools.bench.spread import percentile, ratios, spread


def test_a_spread_is_lowest_median_and_highest() -> None:
    assert spread([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert spread([4.0, 1.0, 2.0, 3.0]) == (1.0, 2.5, 4.0)


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (0.995, 100), (1.0, 100)]
)
def test_a_percentile_is_the_nearest_rank(share: float, value: float) -> None:
    assert percentile([float(i) for i in range(100, 0, -1)], share) == value


def test_ratios_are_taken_pair_by_pair_and_need_equal_numbers() -> None:
    assert ratios([1.0, 9.0], [2.0, 3.0]) == [0.5, 3.0]
    with pytest.raises(ValueError, match="argument 2"):
        ratios([1.0, 2.0], [1.0])
