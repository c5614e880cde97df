"""Whose data directory it is: made, opened again, refused."""

import random
import uuid
from pathlib import Path

import pytest

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.data_directory import (
    IDENTITY_FORMAT,
    DirectoryIdentity,
    open_data_directory,
)
from ringlog.storage.errors import DamagedState, DirectoryInUse, WrongDirectory
from ringlog.storage.files import Directory
from ringlog.storage.real_files import FlockedDirectory, RealDirectory
from ringlog.storage.simulated_files import SimulatedCrash, SimulatedDisk
from ringlog.storage.state_file import encode_state, load_state, write_state
from ringlog.storage.types import BrokerId
from tests.unit.storage.file_seams import SEAMS

ONE = BrokerId(1)


@pytest.fixture(params=SEAMS)
def absent(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return SEAMS[request.param](tmp_path)


def put(directory: Directory, name: str, data: bytes) -> None:
    file = directory.open(name, create=True)
    file.truncate(0)
    file.pwrite([data], 0)
    file.close()


def test_an_absent_directory_is_made_and_found_again(absent: Directory) -> None:
    first = open_data_directory(absent, cluster_id=None, broker_id=ONE, rng=random.Random(1))
    assert first.created
    assert first.identity.broker_id == 1
    assert uuid.UUID(first.identity.directory_id).version == 4
    assert uuid.UUID(first.identity.cluster_id).version == 4
    assert first.identity.cluster_id != first.identity.directory_id
    first.close()
    first.close()
    for cluster_id in (None, first.identity.cluster_id):
        again = open_data_directory(
            absent, cluster_id=cluster_id, broker_id=ONE, rng=random.Random(2)
        )
        assert not again.created
        assert again.identity == first.identity
        again.close()


def test_a_given_cluster_is_kept(absent: Directory) -> None:
    opened = open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1))
    assert opened.identity.cluster_id == "c"


def test_two_do_not_have_it_at_once(absent: Directory) -> None:
    first = open_data_directory(absent, cluster_id=None, broker_id=ONE, rng=random.Random(1))
    with pytest.raises(DirectoryInUse):
        open_data_directory(absent, cluster_id=None, broker_id=ONE, rng=random.Random(1))
    first.close()
    open_data_directory(absent, cluster_id=None, broker_id=ONE, rng=random.Random(1)).close()


def test_an_empty_mount_is_taken(absent: Directory) -> None:
    absent.create()
    absent.make_directory("lost+found")
    put(absent, "broker.json.tmp", b"a start cut short")
    opened = open_data_directory(absent, cluster_id=None, broker_id=ONE, rng=random.Random(1))
    assert opened.created


def test_files_of_somebody_else_are_not_touched(absent: Directory) -> None:
    absent.create()
    put(absent, "family-photos", b"x")
    with pytest.raises(WrongDirectory, match=r"family-photos.*no broker\.json") as refused:
        open_data_directory(absent, cluster_id=None, broker_id=ONE, rng=random.Random(1))
    assert absent.path in str(refused.value)
    assert refused.value.hint
    assert absent.names() == ["family-photos"]


def test_files_that_came_before_the_lock_was_had_are_not_touched(tmp_path: Path) -> None:
    class Filled(RealDirectory):
        def lock(self) -> FlockedDirectory:
            put(self, "family-photos", b"x")
            return super().lock()

    directory = Filled(tmp_path / "data")
    with pytest.raises(WrongDirectory, match="family-photos"):
        open_data_directory(directory, cluster_id=None, broker_id=ONE, rng=random.Random(1))
    assert directory.names() == ["family-photos", "lock"]


def test_the_mode_of_somebody_elses_directory_stays(tmp_path: Path) -> None:
    (tmp_path / "photos").write_bytes(b"")
    tmp_path.chmod(0o755)
    with pytest.raises(WrongDirectory):
        open_data_directory(
            RealDirectory(tmp_path), cluster_id=None, broker_id=ONE, rng=random.Random(1)
        )
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("broker_id", "cluster_id", "text"),
    [
        (2, None, "belongs to broker 1, not to broker 2"),
        (2, "c", "belongs to broker 1, not to broker 2"),
        (1, "d", "belongs to cluster c, not to d"),
    ],
)
def test_another_brokers_or_clusters_directory_is_refused_and_unlocked(
    absent: Directory, broker_id: int, cluster_id: str | None, text: str
) -> None:
    open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1)).close()
    with pytest.raises(WrongDirectory, match=text) as refused:
        open_data_directory(
            absent, cluster_id=cluster_id, broker_id=BrokerId(broker_id), rng=random.Random(1)
        )
    assert refused.value.hint
    open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1)).close()


def test_a_damaged_copy_is_written_again(absent: Directory) -> None:
    open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1)).close()
    file = absent.open("broker.json")
    file.pwrite([b"X"], 20)
    file.close()
    again = open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1))
    assert not again.created
    loaded = load_state(absent, "broker.json", DirectoryIdentity, format=IDENTITY_FORMAT)
    assert not loaded.damaged_copy
    assert loaded.value == again.identity


def test_two_damaged_copies_are_refused_and_nothing_is_written(absent: Directory) -> None:
    open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1)).close()
    put(absent, "broker.json", b"X" * 300)
    with pytest.raises(DamagedState, match=r"broker\.json"):
        open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1))
    assert absent.open("broker.json").pread(999, 0) == b"X" * 300


def test_a_newer_format_is_refused(absent: Directory) -> None:
    absent.create()
    identity = DirectoryIdentity("c", ONE, "d")
    put(absent, "broker.json", encode_state(identity, format=IDENTITY_FORMAT + 1))
    with pytest.raises(WrongDirectory, match="newer ringlog"):
        open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1))


def test_a_start_cut_at_any_call_can_be_repeated() -> None:
    identities = set()
    for number in range(1, 20):
        for after in (False, True):
            disk = SimulatedDisk()
            disk.crash_at(number, after=after)
            try:
                open_data_directory(
                    disk.directory(), cluster_id="c", broker_id=ONE, rng=random.Random(1)
                ).close()
            except SimulatedCrash:
                pass
            else:
                assert number > 6
            for mode in CrashMode:
                for seed in range(10):
                    directory = disk.image(random.Random(seed), mode).directory()
                    opened = open_data_directory(
                        directory, cluster_id="c", broker_id=ONE, rng=random.Random(2)
                    )
                    identities.add(opened.identity.directory_id)
    assert len(identities) == 2, "that of the first start or that of the second"


def test_a_state_of_another_type_is_damage(absent: Directory) -> None:
    absent.create()
    write_state(absent, "broker.json", IdentityWithoutBroker("c"), format=1)
    with pytest.raises(DamagedState, match="not as expected"):
        open_data_directory(absent, cluster_id="c", broker_id=ONE, rng=random.Random(1))


class IdentityWithoutBroker(DirectoryIdentity, frozen=True, rename=str.upper):
    broker_id: BrokerId = ONE
    directory_id: str = ""
