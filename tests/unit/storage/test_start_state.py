"""`start-state`: written whole, read back, refused when it contradicts itself."""

import pytest

from ringlog.storage.errors import DamagedState
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.producer_state import BatchSnapshot, ProducerSnapshot, TableSnapshot
from ringlog.storage.start_state import (
    START_STATE_FORMAT,
    START_STATE_NAME,
    StartState,
    load_start_state,
    save_start_state,
)
from ringlog.storage.state_file import write_state
from ringlog.storage.types import LeaderEpoch, Offset, Position, ProducerId

STATE = StartState(
    base_offset=Offset(100),
    base_own=7,
    term_before=LeaderEpoch(4),
    configuration=("a", "b"),
    producers=TableSnapshot(
        (ProducerSnapshot(ProducerId(2**62), 1, (BatchSnapshot(0, 9, Offset(90)),)),)
    ),
    log_start=Offset(150),
    reset_under_way=True,
)


@pytest.fixture
def directory() -> MemoryDirectory:
    directory = MemoryDirectory()
    directory.create()
    return directory


def test_a_directory_without_it_is_blank(directory: MemoryDirectory) -> None:
    assert load_start_state(directory) is None


@pytest.mark.parametrize("state", [STATE, StartState()])
def test_it_is_read_back(directory: MemoryDirectory, state: StartState) -> None:
    save_start_state(directory, state)
    assert load_start_state(directory) == state


def test_the_base_is_a_position() -> None:
    assert STATE.base == Position(Offset(100), 7)


@pytest.mark.parametrize(
    "wrong",
    [
        StartState(base_offset=Offset(5), log_start=Offset(4)),
        StartState(base_own=-1),
        StartState(term_before=LeaderEpoch(-1)),
        StartState(base_offset=Offset(-1)),
    ],
)
def test_fields_that_contradict_one_another_are_damage(
    directory: MemoryDirectory, wrong: StartState
) -> None:
    write_state(directory, START_STATE_NAME, wrong, format=START_STATE_FORMAT)
    with pytest.raises(DamagedState, match="contradict") as caught:
        load_start_state(directory)
    assert caught.value.path.endswith(START_STATE_NAME)


def test_a_log_start_below_the_base_is_our_own_bug(directory: MemoryDirectory) -> None:
    with pytest.raises(AssertionError, match="SS3"):
        save_start_state(directory, StartState(base_offset=Offset(5)))
    assert load_start_state(directory) is None
