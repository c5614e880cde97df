"""The reserve of free space, between measurements."""

import pytest

from ringlog.broker.disk_space import DiskSpace
from ringlog.client.errors import DiskFull


def measured(space: DiskSpace, free_bytes: int, unstored_bytes: int = 0) -> None:
    space.measured(free_bytes, space.begin_measurement(unstored_bytes))


def test_unknown_space_passes() -> None:
    DiskSpace(1 << 60).check(1)


def test_the_reserve_is_kept_to_the_byte() -> None:
    space = DiskSpace(100)
    measured(space, 150)
    space.check(50)
    with pytest.raises(DiskFull, match="keeps 100"):
        space.check(51)


def test_what_is_appended_counts_until_it_was_measured() -> None:
    space = DiskSpace(100)
    measured(space, 200)
    space.appended(80)
    assert space.free_bytes == 120
    with pytest.raises(DiskFull):
        space.check(21)
    measured(space, 120)
    space.check(20)


def test_what_was_not_written_when_measured_still_counts() -> None:
    space = DiskSpace(100)
    measured(space, 200)
    space.appended(80)
    measured(space, 200, unstored_bytes=80)
    assert space.free_bytes == 120


def test_what_is_appended_during_a_measurement_still_counts() -> None:
    space = DiskSpace(100)
    token = space.begin_measurement(0)
    space.appended(30)
    space.measured(200, token)
    assert space.free_bytes == 170
