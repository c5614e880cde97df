"""What is checked beside the partitions, and the claim on a data directory."""

import contextlib
import errno
import os
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from ringlog.registry.model import RegistryState
from ringlog.registry.standalone import FORMAT
from ringlog.storage.data_directory import IDENTITY_NAME
from ringlog.storage.durable_marks import DurableMarks
from ringlog.storage.errors import DirectoryInUse, WrongDirectory
from ringlog.storage.findings import PartitionVerdict, Severity
from ringlog.storage.real_files import RealDirectory
from ringlog.storage.state_file import read_state, write_state
from ringlog.tools.cli import log as log_command
from ringlog.tools.cli import log_check
from tests.unit.tools.data_dir_on_disk import contents, registry, stopped


def root_findings(data_dir: Path) -> list[tuple[Severity, str]]:
    verdict = log_check.verify_root(RealDirectory(data_dir))
    assert verdict.is_damaged == any(f.severity is Severity.DAMAGE for f in verdict.findings)
    return [(finding.severity, finding.path) for finding in verdict.findings]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    stopped(tmp_path / "data")
    return tmp_path / "data"


def test_a_whole_directory_has_no_findings(data_dir: Path) -> None:
    assert root_findings(data_dir) == []


def test_one_holder_at_a_time_and_the_other_one_learns_who(data_dir: Path) -> None:
    with log_check.claimed(data_dir):
        with pytest.raises(DirectoryInUse, match=f"process {os.getpid()} ") as caught:
            log_check.claimed(data_dir).__enter__()
        assert "stop that process first" in caught.value.hint
    with log_check.claimed(data_dir):
        pass


def test_a_directory_that_is_none_of_ours_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(WrongDirectory, match="is no data directory"):
        log_check.claimed(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    with pytest.raises(FileNotFoundError):
        log_check.claimed(tmp_path / "nowhere").__enter__()
    with pytest.raises(WrongDirectory):
        log_check.claimed(tmp_path / "notes").__enter__()


@pytest.mark.parametrize("name", ["broker.json", "durable-marks", "registry.json"])
def test_a_missing_file_is_damage(data_dir: Path, name: str) -> None:
    (data_dir / name).unlink()
    assert root_findings(data_dir) == [(Severity.DAMAGE, name)]


@pytest.mark.parametrize("name", ["broker.json", "registry.json"])
def test_one_copy_damaged_is_harmless_both_are_damage(data_dir: Path, name: str) -> None:
    path = data_dir / name
    one, other, *_ = path.read_bytes().split(b"\n")
    path.write_bytes(one + b"\n" + other[:-5] + b"\n")
    assert root_findings(data_dir) == [(Severity.HARMLESS, name)]
    path.write_bytes(one[:-5] + b"\n" + other[:-5] + b"\n")
    assert root_findings(data_dir) == [(Severity.DAMAGE, name)]


def test_a_partition_that_the_registry_lists_must_be_there(data_dir: Path) -> None:
    registry(data_dir, partitions=2)
    assert root_findings(data_dir) == [(Severity.DAMAGE, "orders-1")]
    (data_dir / "orders-1").mkdir()
    assert root_findings(data_dir) == [(Severity.DAMAGE, "orders-1/partition.json")]
    registry(data_dir, partitions=2, storage="memory")
    assert root_findings(data_dir) == []


def test_swapped_directories_and_swapped_identities_are_damage(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    one = stopped(data_dir, partitions=2)
    other = data_dir / "orders-1"
    both = [
        (Severity.DAMAGE, "orders-0/partition.json"),
        (Severity.DAMAGE, "orders-1/partition.json"),
    ]
    assert root_findings(data_dir) == []
    for first, second in ((one, other), (one / "partition.json", other / "partition.json")):
        _swap(first, second)
        assert root_findings(data_dir) == both
        _swap(first, second)


def _swap(one: Path, other: Path) -> None:
    aside = one.parent / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def test_a_partition_of_another_topic_of_that_name_is_damage(data_dir: Path) -> None:
    path = data_dir / "registry.json"
    state = read_state(RealDirectory(data_dir), path.name, RegistryState, format=FORMAT)
    again = msgspec.structs.replace(state.topics["orders"], topic_uuid=b"n" * 16)
    state = RegistryState(2, {"orders": again})
    write_state(RealDirectory(data_dir), path.name, state, format=FORMAT)
    assert root_findings(data_dir) == [(Severity.DAMAGE, "orders-0/partition.json")]


def test_a_partition_that_the_registry_does_not_list_is_named(data_dir: Path) -> None:
    write_state(RealDirectory(data_dir), "registry.json", RegistryState(), format=FORMAT)
    assert root_findings(data_dir) == [(Severity.HARMLESS, "orders-0")]
    (data_dir / "orders-0").rename(data_dir / f"orders-0.{UUID(int=1).hex}.deleted")
    assert root_findings(data_dir) == [(Severity.HARMLESS, f"orders-0.{UUID(int=1).hex}.deleted")]


def test_what_may_not_be_read_is_named_with_the_cause(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deny(monkeypatch, "stat", data_dir / "orders-0")
    (finding,) = log_check.verify_root(RealDirectory(data_dir)).findings
    assert (finding.severity, finding.path) == (Severity.DAMAGE, "orders-0")
    assert "Permission denied (EACCES); give the data directory to the user" in finding.text
    assert log_check.partition_names(RealDirectory(data_dir)) == []


def deny(monkeypatch: pytest.MonkeyPatch, call: str, below: Path) -> None:
    """Refuse a call on what is in a directory, also to a user who may do all."""
    original = getattr(os, call)

    def refuse(path: str, *args: int, **named: object) -> object:
        if str(path).startswith(f"{below}/"):
            raise PermissionError(errno.EACCES, "no", str(path))
        return original(path, *args, **named)

    monkeypatch.setattr(os, call, refuse)


@pytest.mark.parametrize("name", ["partition.json", "raft-log", "00000000000000000000.log"])
def test_a_directory_in_the_place_of_a_file_costs_its_partition_alone(
    data_dir: Path, name: str
) -> None:
    path = data_dir / "orders-0" / name
    path.unlink()
    path.mkdir()
    root = RealDirectory(data_dir)
    with contextlib.closing(DurableMarks.open(root)) as marks:
        verdict = log_check.verdict_of(root, "orders-0", marks)
    assert verdict.is_damaged
    assert "move that directory away" in verdict.findings[0].text


def test_names_of_partitions_are_those_with_an_identity(data_dir: Path) -> None:
    (data_dir / "lost+found").mkdir()
    assert log_check.partition_names(RealDirectory(data_dir)) == ["orders-0"]


def test_a_mark_is_named_where_it_is(data_dir: Path) -> None:
    verdict = PartitionVerdict(str(data_dir / "orders-0"), [])
    verdict.add(Severity.DAMAGE, "../durable-marks", "holds no mark of this partition")
    place = log_command._place_of(verdict, verdict.findings[0])
    assert place == f"{data_dir}/durable-marks: holds no mark of this partition"


def test_a_plan_without_marks_makes_no_file(data_dir: Path) -> None:
    (data_dir / "durable-marks").unlink()
    before = contents(data_dir)
    root = RealDirectory(data_dir)
    assert log_check.open_marks(root) is None
    plan = log_check.plan_of(root, "orders-0", None)
    assert plan is not None
    assert plan.refusal == ""
    assert contents(data_dir) == before


def test_files_are_made_by_the_directory_s_owner_only(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_check.check_owner(data_dir)
    owner = (data_dir / IDENTITY_NAME).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(WrongDirectory, match=f"belongs to user {owner}") as caught:
        log_check.check_owner(data_dir)
    assert f"sudo -u '#{owner}'" in caught.value.hint
