"""Partition directories on a worker: made, opened, put aside, removed."""

from uuid import UUID

import pytest

from ringlog.broker.partition_files import Files, deleted_name
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import FileMissing, WrongDirectory
from ringlog.storage.files import MAX_NAME_BYTES
from ringlog.storage.log_config import LogConfig
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.partition_identity import PartitionIdentity
from ringlog.storage.types import MAX_TOPIC_NAME_LENGTH, TopicPartition

CONFIG = LogConfig()


class Place:
    def __init__(self) -> None:
        self.root = MemoryDirectory()
        self.root.create()
        self.marks = DurableMarks.open(self.root)
        self.files = Files(self.root, self.marks, "voter", memory_bytes=1 << 20)

    def names(self) -> list[str]:
        return [name for name in self.root.names() if name != "durable-marks"]


@pytest.fixture
def place() -> Place:
    return Place()


def identity(uuid: int = 1, topic: str = "t") -> PartitionIdentity:
    return PartitionIdentity(topic=topic, topic_uuid=UUID(int=uuid), partition=0, created_ms=0)


def test_creating_may_be_repeated(place: Place) -> None:
    for _ in range(2):
        opened = place.files.create(identity(), CONFIG, in_memory=False, now_ms=0)
        assert opened.log.end.offset == 0
        opened.log.close()
    assert place.names() == ["t-0"]


def test_a_half_made_directory_is_taken_over(place: Place) -> None:
    place.root.make_directory("t-0")
    place.root.subdirectory("t-0").open("raft-log", create=True).close()
    place.files.create(identity(), CONFIG, in_memory=False, now_ms=0)


def test_opening_wants_the_partition_to_be_there_and_the_right_one(place: Place) -> None:
    with pytest.raises(FileMissing):
        place.files.open(identity(), CONFIG, in_memory=False, now_ms=0)
    place.files.create(identity(1), CONFIG, in_memory=False, now_ms=0)
    with pytest.raises(WrongDirectory):
        place.files.open(identity(2), CONFIG, in_memory=False, now_ms=0)
    with pytest.raises(WrongDirectory):
        place.files.create(identity(2), CONFIG, in_memory=False, now_ms=0)


def test_a_removed_partition_is_put_aside_first(place: Place) -> None:
    place.files.create(identity(), CONFIG, in_memory=False, now_ms=0)
    for _ in range(2):
        place.files.put_aside(identity(), in_memory=False)
    assert place.names() == [deleted_name(TopicPartition("t", 0), UUID(int=1))]
    assert place.marks.keys() == []
    for _ in range(2):
        place.files.remove_aside(identity(), in_memory=False)
    assert place.names() == []


def test_another_topics_partition_is_not_put_aside(place: Place) -> None:
    place.files.create(identity(1), CONFIG, in_memory=False, now_ms=0)
    place.files.put_aside(identity(2), in_memory=False)
    assert place.names() == ["t-0"]


def test_what_a_stop_left_put_aside_is_removed(place: Place) -> None:
    place.files.create(identity(), CONFIG, in_memory=False, now_ms=0)
    place.files.put_aside(identity(), in_memory=False)
    place.files.create(identity(2), CONFIG, in_memory=False, now_ms=0)
    place.files.remove_deleted()
    assert place.names() == ["t-0"]


def test_a_partition_in_memory_leaves_the_data_directory_alone(place: Place) -> None:
    place.files.create(identity(), CONFIG, in_memory=True, now_ms=0)
    assert place.names() == []
    assert place.marks.keys() == []
    place.files.put_aside(identity(), in_memory=True)
    place.files.remove_aside(identity(), in_memory=True)
    with pytest.raises(FileMissing):
        place.files.open(identity(), CONFIG, in_memory=True, now_ms=0)


def test_partitions_in_memory_share_their_room(place: Place) -> None:
    before = place.files.memory_free_bytes()
    assert before <= 1 << 20
    place.files.create(identity(), CONFIG, in_memory=True, now_ms=0)
    assert place.files.memory_free_bytes() < before


def test_names_of_what_is_put_aside_fit_and_stay_apart() -> None:
    long = "x" * MAX_TOPIC_NAME_LENGTH
    made = {
        deleted_name(TopicPartition(long, number), UUID(int=uuid))
        for number in (0, 99_999)
        for uuid in (1, 2)
    }
    assert len(made) == 4
    assert max(map(len, made)) <= MAX_NAME_BYTES
