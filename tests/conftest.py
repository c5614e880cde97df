"""Shared pytest configuration: Hypothesis profiles.

`gate` keeps the property tests within their budget; `long` is the 20,000-example run of
`tools/test --long`.
"""

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
