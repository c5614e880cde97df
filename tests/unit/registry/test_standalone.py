"""The registry in a file: durable before it returns, cut anywhere, failed for good."""

import errno
import random
import threading
from collections.abc import Callable

import pytest

from ringlog.registry.errors import TopicExists
from ringlog.registry.model import Assignment, BrokerInfo, RegistryState, TopicInfo, TopicState
from ringlog.registry.standalone import FILE_NAME, StandaloneRegistry
from ringlog.storage.crash_images import CrashMode
from ringlog.storage.errors import DamagedState, DiskFull, LogDirFailed
from ringlog.storage.simulated_files import Call, SimulatedCrash, SimulatedDisk

BROKER = BrokerInfo(7, "127.0.0.1:5555")
UUID = b"u" * 16


def topic(name: str) -> TopicInfo:
    assignments = (Assignment((7,)),)
    return TopicInfo(
        name, UUID, TopicState.CREATING, {"retention.ms": "1"}, assignments, 1, name.encode()
    )


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk()
    made.directory().create()
    return made


def opened(disk: SimulatedDisk) -> StandaloneRegistry:
    return StandaloneRegistry.open(disk.directory(), BROKER)


def after_power_cut(disk: SimulatedDisk) -> RegistryState:
    return opened(disk.image(random.Random(1), CrashMode.LOSE_ALL)).view()


def test_a_new_directory_has_no_topics_and_one_broker(disk: SimulatedDisk) -> None:
    registry = opened(disk)
    assert registry.view().topics == {}
    assert registry.brokers() == (BROKER,)
    assert registry.controller_id() == 7


def test_a_lost_file_is_damage_and_not_an_empty_directory(disk: SimulatedDisk) -> None:
    opened(disk)
    root = disk.directory()
    root.make_directory("orders-0")
    root.unlink(FILE_NAME)
    with pytest.raises(DamagedState, match=r"registry.json: is missing.*orders-0") as refused:
        opened(disk)
    assert "restore registry.json from a backup" in refused.value.hint
    assert root.names() == ["orders-0"]
    root.rename("orders-0", "durable-marks")
    with pytest.raises(DamagedState):
        opened(disk)


def test_a_first_start_cut_anywhere_is_no_loss() -> None:
    call_number = 1
    while True:
        disk = SimulatedDisk()
        disk.directory().create()
        identity = disk.directory().open("broker.json", create=True)
        identity.sync()
        disk.directory().sync()
        disk.crash_at(disk.call_count + call_number, after=False)
        try:
            opened(disk)
        except SimulatedCrash:
            for mode in CrashMode:
                image = disk.image(random.Random(call_number), mode)
                assert opened(image).view() == RegistryState()
            call_number += 1
        else:
            break
    assert call_number > 4
    assert after_power_cut(disk) == RegistryState()


def test_every_change_is_durable_when_it_returns(disk: SimulatedDisk) -> None:
    registry = opened(disk)
    changes: list[Callable[[], object]] = [
        lambda: registry.create_topic(topic("a")),
        lambda: registry.set_online("a", UUID),
        lambda: registry.alter_topic("a", UUID, {"retention.ms": None, "x": "y"}),
        lambda: registry.add_partitions("a", UUID, [Assignment((7,))]),
        lambda: registry.mark_deleting("a", UUID),
        lambda: registry.remove_topic("a", UUID),
    ]
    for number, change in enumerate(changes, 1):
        change()
        assert registry.view().version == number
        assert after_power_cut(disk) == registry.view()


def test_a_repeated_request_gives_the_first_topic_and_writes_nothing(disk: SimulatedDisk) -> None:
    registry = opened(disk)
    first = registry.create_topic(topic("a"))
    registry.set_online("a", UUID)
    disk.fail(Call.WRITE)
    assert registry.create_topic(topic("a")).topic_uuid == first.topic_uuid


def test_a_refused_change_changes_nothing(disk: SimulatedDisk) -> None:
    registry = opened(disk)
    registry.create_topic(topic("a.b"))
    before = registry.view()
    with pytest.raises(TopicExists):
        registry.create_topic(topic("a_b"))
    assert registry.view() is before


def test_a_crash_at_any_call_leaves_the_old_or_the_new_state() -> None:
    call_number = 1
    while True:
        disk = SimulatedDisk()
        disk.directory().create()
        registry = opened(disk)
        registry.create_topic(topic("old"))
        old = registry.view()
        start = disk.call_count
        disk.crash_at(start + call_number, after=False)
        try:
            registry.create_topic(topic("new"))
        except SimulatedCrash:
            for mode in CrashMode:
                found = opened(disk.image(random.Random(call_number), mode)).view()
                assert set(found.topics) in ({"old"}, {"old", "new"})
                assert found.topics["old"] == old.topics["old"]
            call_number += 1
        else:
            break
    assert call_number > 4


def test_a_full_disk_refuses_the_change_and_the_next_may_succeed(disk: SimulatedDisk) -> None:
    registry = opened(disk)
    disk.fail(Call.WRITE, code=errno.ENOSPC)
    with pytest.raises(DiskFull):
        registry.create_topic(topic("a"))
    assert registry.view().topics == {}
    registry.create_topic(topic("a"))
    assert set(after_power_cut(disk).topics) == {"a"}


def test_after_a_failed_flush_no_change_is_tried(disk: SimulatedDisk) -> None:
    registry = opened(disk)
    disk.fail(Call.SYNC)
    with pytest.raises(LogDirFailed):
        registry.create_topic(topic("a"))
    assert registry.view().topics == {}
    with pytest.raises(LogDirFailed, match="closed since"):
        registry.create_topic(topic("b"))


def test_one_damaged_copy_is_written_again_and_two_are_refused(disk: SimulatedDisk) -> None:
    opened(disk).create_topic(topic("a"))
    other_copy = disk.directory().open(FILE_NAME).size_bytes() // 2
    disk.damage(FILE_NAME, 40, b"\x00")
    assert set(opened(disk).view().topics) == {"a"}
    # Written again by that start: the other copy may go now.
    disk.damage(FILE_NAME, other_copy + 40, b"\x00")
    assert set(opened(disk).view().topics) == {"a"}
    disk.damage(FILE_NAME, 40, b"\x00")
    disk.damage(FILE_NAME, other_copy + 40, b"\x00")
    with pytest.raises(DamagedState, match=FILE_NAME):
        opened(disk)


def test_a_change_during_another_waits_for_it(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = opened(disk)
    second = threading.Thread(target=registry.create_topic, args=(topic("second"),))
    keep = registry._keep

    def keep_while_another_tries(state: RegistryState) -> None:
        monkeypatch.undo()
        second.start()
        second.join(0.1)  # it cannot end: the first has not returned
        keep(state)

    monkeypatch.setattr(registry, "_keep", keep_while_another_tries)
    registry.create_topic(topic("first"))
    second.join()
    assert set(registry.view().topics) == {"first", "second"}
    assert after_power_cut(disk) == registry.view()
