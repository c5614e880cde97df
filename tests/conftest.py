"""Shared pytest configuration: Hypothesis profiles, and the marker of the cluster folder.

`gate` keeps the property tests within their budget; `long` is the 20,000-example run of
`tools/test --long`.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "gate",
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", max_examples=20_000, deadline=None)
settings.load_profile("gate")

_CLUSTER = Path(__file__).parent / "cluster"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of tests/cluster `cluster`, so that no test there falls between the stages."""
    for item in items:
        if _CLUSTER in item.path.parents:
            item.add_marker(pytest.mark.cluster)
