"""Verifying and repairing a data directory that no broker has open.

Owns the claim on the directory, what is checked beside the partitions, and which partitions a
repair touches. Must not know how damage is found or mended: `storage.verify` and
`storage.repair` do.

Invariants:
    LC1 Nothing is read before the lock is held, so no broker writes meanwhile.
    LC2 Without `repair` no file but the lock is written.
    LC3 What is reported after a repair was read anew.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ringlog.broker.partition_files import deleted_name
from ringlog.registry.model import RegistryState, TopicInfo, TopicState
from ringlog.registry.standalone import FILE_NAME as REGISTRY_NAME
from ringlog.registry.standalone import FORMAT as REGISTRY_FORMAT
from ringlog.registry.standalone import LOST_HINT
from ringlog.storage.data_directory import IDENTITY_FORMAT, IDENTITY_NAME, DirectoryIdentity
from ringlog.storage.durable_marks import DURABLE_MARKS_NAME, DurableMarks
from ringlog.storage.errors import (
    AccessRefused,
    DamagedState,
    DirectoryInUse,
    FileMissing,
    StorageError,
    WrongDirectory,
)
from ringlog.storage.files import Directory
from ringlog.storage.findings import PartitionVerdict, Severity
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.partition_identity import (
    PARTITION_IDENTITY_NAME,
    PartitionIdentity,
    load_partition_identity,
)
from ringlog.storage.real_files import RealDirectory
from ringlog.storage.repair import RepairPlan, apply_repair, plan_repair
from ringlog.storage.state_file import load_state
from ringlog.storage.types import TopicPartition
from ringlog.storage.verify import verify_partition


@contextmanager
def claimed(path: Path) -> Iterator[Directory]:
    """Hold the lock of a data directory.

    Raises:
        FileNotFoundError: there is no such path.
        WrongDirectory: it is no data directory; nothing was made in it.
        DirectoryInUse: a broker, or another command, has it open; the text names the process.
    """
    path.stat()
    if not (path / IDENTITY_NAME).exists() and not (path / DURABLE_MARKS_NAME).exists():
        raise WrongDirectory(
            f"{path} is no data directory: it holds no {IDENTITY_NAME}",
            hint="name the directory that the broker's data_dir names",
        )
    root = RealDirectory(path)
    try:
        lock = root.lock()
    except DirectoryInUse as error:
        raise DirectoryInUse(
            str(error), hint="stop that process first: only a log at rest can be judged"
        ) from error
    try:
        yield root
    finally:
        lock.release()


def partition_names(root: Directory) -> list[str]:
    """Names of the directories that say they are a partition."""
    return [name for name in root.names() if _says_partition(root, name)]


def _says_partition(root: Directory, name: str) -> bool:
    try:
        return root.subdirectory(name).exists(PARTITION_IDENTITY_NAME)
    except AccessRefused:
        return False  # the verdict on the data directory names it


def verdict_of(root: Directory, name: str, marks: DurableMarks | None) -> PartitionVerdict:
    """Read one partition; what may not be read is damage of it alone. Raises ReadFailed."""
    directory = root.subdirectory(name)
    try:
        return verify_partition(directory, marks)
    except AccessRefused as error:
        verdict = PartitionVerdict(directory.path, [])
        verdict.add(Severity.DAMAGE, PARTITION_IDENTITY_NAME, f"cannot be judged: {_told(error)}")
        return verdict


def _told(error: StorageError) -> str:
    return f"{error}; {error.hint}"


def open_marks(root: Directory) -> DurableMarks | None:
    """The durable marks, None when the file is gone. Raises WrongDirectory, ReadFailed."""
    return DurableMarks.open(root) if root.exists(DURABLE_MARKS_NAME) else None


def verify_root(root: Directory) -> PartitionVerdict:
    """Read what a data directory holds beside partitions, and ask for those that should be."""
    verdict = PartitionVerdict(root.path, [])
    _state(root, IDENTITY_NAME, DirectoryIdentity, IDENTITY_FORMAT, verdict)
    if not root.exists(DURABLE_MARKS_NAME):
        verdict.add(Severity.DAMAGE, DURABLE_MARKS_NAME, "is missing")
    registry = None
    if root.exists(REGISTRY_NAME):
        registry = _state(root, REGISTRY_NAME, RegistryState, REGISTRY_FORMAT, verdict)
    else:
        verdict.add(Severity.DAMAGE, REGISTRY_NAME, f"is missing; {LOST_HINT}")
    expected = _expected(registry or RegistryState())
    for name in root.names():
        try:
            root.subdirectory(name).exists(PARTITION_IDENTITY_NAME)
        except AccessRefused as error:
            verdict.add(Severity.DAMAGE, name, f"cannot be judged: {_told(error)}")
            expected.pop(name, None)
    for name in expected:
        if not root.exists(name):
            verdict.add(Severity.DAMAGE, name, f"is missing; {REGISTRY_NAME} lists this partition")
        elif not root.subdirectory(name).exists(PARTITION_IDENTITY_NAME):
            verdict.add(Severity.DAMAGE, f"{name}/{PARTITION_IDENTITY_NAME}", "is missing")
    for name in partition_names(root):
        _compare(root, name, registry, expected, verdict)
    return verdict


def _compare(
    root: Directory,
    name: str,
    registry: RegistryState | None,
    expected: Mapping[str, TopicInfo],
    verdict: PartitionVerdict,
) -> None:
    """Whether a directory holds the partition that its name and the registry say."""
    path = f"{name}/{PARTITION_IDENTITY_NAME}"
    try:
        found = load_partition_identity(root.subdirectory(name))
    except (AccessRefused, DamagedState, FileMissing, WrongDirectory):
        return  # the verdict on the partition names it
    holds = f"holds partition {found.partition} of topic {found.topic}"
    if name == deleted_name(found.topic_partition, found.topic_uuid):
        verdict.add(Severity.HARMLESS, name, "was deleted; the next start removes it")
    elif name != str(found.topic_partition):
        verdict.add(
            Severity.DAMAGE,
            path,
            f"{holds}; no broker opens it here: give the directory (or this file) back the place "
            f"it had, {found.topic_partition}, or move it out of the data directory",
        )
    elif name in expected and expected[name].topic_uuid != found.topic_uuid.bytes:
        verdict.add(
            Severity.DAMAGE,
            path,
            f"{holds} with UUID {found.topic_uuid.hex}, {REGISTRY_NAME} lists it with "
            f"{expected[name].topic_uuid.hex()}; restore both from the same backup",
        )
    elif registry is not None and not _is_listed(registry, found):
        verdict.add(
            Severity.HARMLESS,
            name,
            f"{REGISTRY_NAME} does not list it; the broker leaves it alone, and nobody reads it",
        )


def _is_listed(registry: RegistryState, found: PartitionIdentity) -> bool:
    topic = registry.topics.get(found.topic)
    return (
        topic is not None
        and topic.topic_uuid == found.topic_uuid.bytes
        and found.partition < len(topic.partitions)
    )


def _state(
    root: Directory,
    name: str,
    kind: type[msgspec.Struct],
    newest_format: int,
    verdict: PartitionVerdict,
) -> RegistryState | None:
    if not root.exists(name):
        verdict.add(Severity.DAMAGE, name, "is missing")
        return None
    try:
        loaded = load_state(root, name, kind, format=newest_format)
    except (DamagedState, WrongDirectory) as error:
        verdict.add(Severity.DAMAGE, name, str(error))
        return None
    if loaded.damaged_copy:
        verdict.add(Severity.HARMLESS, name, "one of its two copies is damaged")
    return loaded.value if isinstance(loaded.value, RegistryState) else None


def _expected(registry: RegistryState) -> dict[str, TopicInfo]:
    """Directories of partitions that the registry says are whole and on disk, with their topic."""
    return {
        str(TopicPartition(topic.name, number)): topic
        for topic in registry.topics.values()
        if topic.state is TopicState.ONLINE and topic.config.get("storage") != "memory"
        for number, assignment in enumerate(topic.partitions)
        if not assignment.creating
    }


def plan_of(root: Directory, name: str, marks: DurableMarks | None) -> RepairPlan | None:
    """What a repair of a partition would do; None when it is not damaged."""
    return plan_repair(root.subdirectory(name), marks if marks is not None else _no_marks())


def repair(root: Directory, name: str, plan: RepairPlan) -> PartitionVerdict:
    """Carry out a plan and read the partition anew. Raises StorageError as `apply_repair`."""
    marks = DurableMarks.open(root)
    apply_repair(root.subdirectory(name), marks, plan)
    return verdict_of(root, name, marks)


def check_owner(path: Path) -> None:
    """Refuse to write files that the broker could not open afterwards. Raises WrongDirectory."""
    identity = path / IDENTITY_NAME
    if identity.exists() and (owner := identity.stat().st_uid) != os.geteuid():
        raise WrongDirectory(
            f"{path} belongs to user {owner}; files that a repair by user {os.geteuid()} makes "
            f"would not open for its broker",
            hint=f"sudo -u '#{owner}' ringlog log verify --repair {path}",
        )


def _no_marks() -> DurableMarks:
    """Marks of a directory that lost them, without making the file (LC2)."""
    nowhere = MemoryDirectory()
    nowhere.create()
    return DurableMarks.open(nowhere)
