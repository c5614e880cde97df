"""B07: a layout by role, so that whoever looks for a part finds it by its name."""

import importlib.util

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "ringlog.broker.server",
        "ringlog.broker.partition",
        "ringlog.client.producer",
        "ringlog.client.consumer",
        "ringlog.registry.registry",
        "ringlog.storage.segment",
        "tests.features",
    ],
)
def test_b07_each_role_has_its_module(module: str) -> None:
    assert importlib.util.find_spec(module) is not None
