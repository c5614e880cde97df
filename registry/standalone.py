"""The registry of one broker without a cluster: a state file in its data directory.

Owns `registry.json`. Must not know partitions: whoever makes and removes their directories
calls the changes in order.

Invariants:
    A1  A change is durable before its method returns and before `view` shows it.
    A2  Changes are applied one after another, each to the state the one before it left.
    A3  After a change could not be kept, no further one is tried: what is on disk is unknown.
    A4  `registry.json` is the second file of a data directory, made before anything that it
        could list. So a directory that holds more and lacks it has lost it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ringlog.registry import model
from ringlog.registry.model import Assignment, BrokerInfo, RegistryState, TopicInfo
from ringlog.storage.data_directory import NAMES_OF_A_NEW_DIRECTORY
from ringlog.storage.errors import DamagedState, DiskFull, LogDirFailed, StorageError
from ringlog.storage.files import Directory
from ringlog.storage.state_file import TEMPORARY_SUFFIX, load_state, write_state

FILE_NAME: Final = "registry.json"
FORMAT: Final = 1

LOST_HINT: Final = (
    f"restore {FILE_NAME} from a backup of this directory: it alone says which topics there are; "
    f"their records are still in the partitions' directories, and ringlog log dump shows them"
)


class StandaloneRegistry:
    """`registry.registry.Registry` over one file. `view` from any thread, changes on workers."""

    def __init__(self, directory: Directory, state: RegistryState, broker: BrokerInfo) -> None:
        self._directory = directory
        self._state = state
        self._broker = broker
        self._lock = threading.Lock()
        self._failed: StorageError | None = None

    @classmethod
    def open(cls, directory: Directory, broker: BrokerInfo) -> "StandaloneRegistry":
        """Read `registry.json`; in a new data directory make it, with no topics (A4).

        Raises:
            DamagedState: the file is lost, or both of its copies are damaged.
            WrongDirectory, ReadFailed: the file cannot be used.
            DiskFull, LogDirFailed: it cannot be made.
        """
        if not directory.exists(FILE_NAME):
            _refuse_loss(directory)
            write_state(directory, FILE_NAME, RegistryState(), format=FORMAT)
        loaded = load_state(directory, FILE_NAME, RegistryState, format=FORMAT)
        if loaded.damaged_copy:
            write_state(directory, FILE_NAME, loaded.value, format=FORMAT)
        return cls(directory, loaded.value, broker)

    def view(self) -> RegistryState:
        """The state as of the last durable change."""
        return self._state

    def brokers(self) -> Sequence[BrokerInfo]:
        """This broker."""
        return (self._broker,)

    def controller_id(self) -> int:
        """This broker."""
        return self._broker.broker_id

    def create_topic(self, topic: TopicInfo) -> TopicInfo:
        """Add a topic in state `creating`. A repeated request id gives the topic made first."""
        return self._change(lambda state: model.create_topic(state, topic)).topics[topic.name]

    def set_online(self, name: str, topic_uuid: bytes) -> TopicInfo:
        """All partitions, added ones too, are durable."""
        return self._change(lambda state: model.set_online(state, name, topic_uuid)).topics[name]

    def alter_topic(
        self, name: str, topic_uuid: bytes, changes: Mapping[str, str | None]
    ) -> TopicInfo:
        """Set settings, or with None take them back."""
        return self._change(
            lambda state: model.alter_topic(state, name, topic_uuid, changes)
        ).topics[name]

    def add_partitions(
        self, name: str, topic_uuid: bytes, added: Sequence[Assignment]
    ) -> TopicInfo:
        """Append partitions, `creating` until `set_online`."""
        return self._change(
            lambda state: model.add_partitions(state, name, topic_uuid, added)
        ).topics[name]

    def mark_deleting(self, name: str, topic_uuid: bytes) -> TopicInfo:
        """Take a topic out of use."""
        return self._change(lambda state: model.mark_deleting(state, name, topic_uuid)).topics[name]

    def remove_topic(self, name: str, topic_uuid: bytes) -> None:
        """Forget a topic whose directories are gone."""
        self._change(lambda state: model.remove_topic(state, name, topic_uuid))

    def _change(self, change: Callable[[RegistryState], RegistryState]) -> RegistryState:
        with self._lock:
            if self._failed is not None:
                raise LogDirFailed(f"the registry is closed since: {self._failed}")
            state = change(self._state)
            if state is not self._state:
                self._keep(state)
                self._state = state
            return state

    def _keep(self, state: RegistryState) -> None:
        try:
            write_state(self._directory, FILE_NAME, state, format=FORMAT)
        except DiskFull:
            raise  # the old value stands
        except StorageError as error:
            self._failed = error
            raise


def _refuse_loss(directory: Directory) -> None:
    made_before = NAMES_OF_A_NEW_DIRECTORY | {FILE_NAME + TEMPORARY_SUFFIX}
    others = [name for name in directory.names() if name not in made_before]
    if others:
        raise DamagedState(
            f"is missing, though the directory is not new (it holds {', '.join(others[:3])})",
            path=f"{directory.path}/{FILE_NAME}",
            hint=LOST_HINT,
        )
