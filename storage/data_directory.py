"""Whose data directory this is: `broker.json`, the lock, and refusing a directory that is not ours.

Owns the identity of a data directory and the order of checks when it is opened. Must not know
partitions or the registry. Whether a directory with a *new* identity may take the place of a
lost one is the registry's question: it compares `directory_id`.

Invariants:
    ID1 Nothing is created or changed in a directory that is not empty and not ours.
    ID2 `directory_id` is drawn once and never changes: votes belong to it, not to a broker id.
    ID3 No two processes have the directory open at once.
"""

import random
import uuid
from typing import Final

import msgspec

from ringlog.storage.errors import FileMissing, WrongDirectory
from ringlog.storage.files import Directory, DirectoryLock
from ringlog.storage.state_file import TEMPORARY_SUFFIX, load_state, write_state
from ringlog.storage.types import BrokerId

IDENTITY_NAME: Final = "broker.json"
IDENTITY_FORMAT: Final = 1

_NOT_CONTENT: Final = frozenset({"lock", "lost+found", IDENTITY_NAME + TEMPORARY_SUFFIX})
"""Names that an empty directory may hold: a mount's own, and those of a start cut short."""

NAMES_OF_A_NEW_DIRECTORY: Final = _NOT_CONTENT | {IDENTITY_NAME}
"""All that `open_data_directory` leaves in a directory that was absent or empty."""


class DirectoryIdentity(msgspec.Struct, frozen=True):
    """The body of `broker.json`."""

    cluster_id: str
    broker_id: BrokerId
    directory_id: str
    """UUID of this directory."""


class DataDirectory:
    """An open, locked data directory. Owned by the broker process until `close`."""

    __slots__ = ("_lock", "created", "directory", "identity")

    def __init__(
        self,
        directory: Directory,
        identity: DirectoryIdentity,
        lock: DirectoryLock,
        *,
        created: bool,
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.created = created
        """Whether the identity was drawn by this start: the directory was absent or empty."""
        self._lock = lock

    def close(self) -> None:
        """Let another process have it. Idempotent."""
        self._lock.release()


def open_data_directory(
    directory: Directory, *, cluster_id: str | None, broker_id: BrokerId, rng: random.Random
) -> DataDirectory:
    """Lock a data directory and check that it is the one asked for; make it when absent or empty.

    Args:
        directory: the data directory; need not exist.
        cluster_id: cluster it must belong to; None takes any, or draws a new one.
        broker_id: broker it must belong to.
        rng: source of new identities; `random.SystemRandom()` in a real broker.

    Raises:
        DirectoryInUse: another process has it open.
        WrongDirectory: it is another broker's or cluster's, of a newer format, or holds files
            but no `broker.json`.
        DamagedState: both copies of `broker.json` fail their check.
        DiskFull: no space to make it.
        LogDirFailed: it cannot be made or locked.
    """
    _refuse_foreign(directory)
    directory.create()
    lock = directory.lock()
    try:
        if directory.exists(IDENTITY_NAME):
            identity, created = _read_identity(directory), False
        else:
            _refuse_foreign(directory)  # again: it may have been filled before we had the lock
            identity, created = _new_identity(cluster_id, broker_id, rng), True
            write_state(directory, IDENTITY_NAME, identity, format=IDENTITY_FORMAT)
        _check_identity(directory, identity, cluster_id, broker_id)
    except BaseException:
        lock.release()
        raise
    return DataDirectory(directory, identity, lock, created=created)


def _refuse_foreign(directory: Directory) -> None:
    try:
        names = directory.names()
    except FileMissing:
        return
    others = [name for name in names if name not in _NOT_CONTENT]
    if others and IDENTITY_NAME not in others:
        raise WrongDirectory(
            f"{directory.path} holds files ({', '.join(others[:3])}) but no {IDENTITY_NAME}",
            hint="name an empty directory, or restore broker.json from a backup of this one",
        )


def _read_identity(directory: Directory) -> DirectoryIdentity:
    loaded = load_state(directory, IDENTITY_NAME, DirectoryIdentity, format=IDENTITY_FORMAT)
    if loaded.damaged_copy:
        write_state(directory, IDENTITY_NAME, loaded.value, format=IDENTITY_FORMAT)
    return loaded.value


def _new_identity(
    cluster_id: str | None, broker_id: BrokerId, rng: random.Random
) -> DirectoryIdentity:
    return DirectoryIdentity(cluster_id or _draw_uuid(rng), broker_id, _draw_uuid(rng))


def _draw_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _check_identity(
    directory: Directory, identity: DirectoryIdentity, cluster_id: str | None, broker_id: BrokerId
) -> None:
    if identity.broker_id != broker_id:
        raise WrongDirectory(
            f"{directory.path} belongs to broker {identity.broker_id}, not to broker {broker_id}",
            hint="correct broker_id or the data directory; do not copy directories",
        )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise WrongDirectory(
            f"{directory.path} belongs to cluster {identity.cluster_id}, not to {cluster_id}",
            hint="correct the cluster's address or the data directory",
        )
