"""The simulated disk against a dumb model, after any calls and any cut."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ringlog.storage.crash_images import CrashMode
from ringlog.storage.simulated_files import SimulatedDisk

NAMES = ("a", "b", "c")


class Model:
    """Plain copies: what is seen, and what is durable, as bytes by name and by file number."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.durable_names: dict[str, int] = {}
        self.seen_bytes: dict[int, bytes] = {}
        self.durable_bytes: dict[int, bytes] = {}

    def must_survive(self) -> dict[str, bytes]:
        return {name: self.durable_bytes[n] for name, n in self.durable_names.items()}

    def visible(self) -> dict[str, bytes]:
        return {name: self.seen_bytes[n] for name, n in self.seen.items()}


def apply(disk: SimulatedDisk, model: Model, call: tuple[str, str, str, int, int]) -> None:
    kind, name, other, position, size = call
    root = disk.directory()
    if kind == "sync names":
        root.sync()
        model.durable_names = dict(model.seen)
        return
    if kind == "unlink":
        root.unlink(name)
        model.seen.pop(name, None)
        return
    if name not in model.seen:
        number = len(model.seen_bytes)
        model.seen[name] = number
        model.seen_bytes[number] = model.durable_bytes[number] = b""
    file = root.open(name, create=True)
    number = model.seen[name]
    data = model.seen_bytes[number]
    if kind == "write":
        written = bytes([disk.call_count % 255 + 1]) * size
        file.pwrite([written[:1], written[1:]], position)
        if written:
            data = data.ljust(position, b"\0")
        model.seen_bytes[number] = data[:position] + written + data[position + size :]
    elif kind == "truncate":
        file.truncate(size)
        model.seen_bytes[number] = data[:size].ljust(size, b"\0")
    elif kind == "sync":
        file.sync()
        model.durable_bytes[number] = data
    elif kind == "rename":
        root.rename(name, other)
        model.seen[other] = model.seen.pop(name)


calls = st.lists(
    st.tuples(
        st.sampled_from(
            ["write", "write", "sync", "sync", "truncate", "rename", "unlink", "sync names"]
        ),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(0, 1500),
        st.integers(0, 1500),
    ),
    max_size=30,
)


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    root = disk.directory()
    return {name: root.open(name).pread(1 << 20, 0) for name in root.names()}


@given(calls)
def test_what_is_seen_and_what_must_survive_are_those_of_the_model(
    history: list[tuple[str, str, str, int, int]],
) -> None:
    disk, model = SimulatedDisk(), Model()
    disk.directory().create()
    for call in history:
        apply(disk, model, call)
    assert files_of(disk) == model.visible()
    survivors = files_of(disk.image(random.Random(0), CrashMode.LOSE_ALL))
    assert survivors == model.must_survive()
    assert {name: disk.durable_bytes(name) for name in survivors} == survivors
    assert all(disk.durable_bytes(name) is None for name in NAMES if name not in survivors)
    assert files_of(disk.image(random.Random(0), CrashMode.SURVIVE_ALL)) == model.visible()
    assert files_of(disk.image(random.Random(0), CrashMode.KILL)) == model.visible()
    killed = disk.image(random.Random(0), CrashMode.KILL)
    assert files_of(killed.image(random.Random(0), CrashMode.LOSE_ALL)) == survivors


@given(calls, st.integers(0, 1 << 32))
def test_flushed_names_and_bytes_survive_every_cut(
    history: list[tuple[str, str, str, int, int]], seed: int
) -> None:
    disk, model = SimulatedDisk(), Model()
    disk.directory().create()
    for call in history:
        apply(disk, model, call)
    disk.directory().sync()
    for name in model.seen:
        disk.directory().open(name).sync()
    assert files_of(disk.image(random.Random(seed), CrashMode.POWER_CUT)) == model.visible()


@given(
    st.integers(0, 2000),
    st.lists(st.integers(1, 1500), min_size=1, max_size=6),
    st.integers(0, 1 << 32),
)
def test_appends_behind_a_flush_never_reach_before_it(
    flushed: int, appends: list[int], seed: int
) -> None:
    disk = SimulatedDisk()
    root = disk.directory()
    root.create()
    file = root.open("a", create=True)
    file.pwrite([b"d" * flushed], 0)
    file.sync()
    root.sync()
    for number, size in enumerate(appends):
        file.pwrite([bytes([number + 1]) * size], file.size_bytes())
    whole = file.pread(1 << 20, 0)
    image = files_of(disk.image(random.Random(seed), CrashMode.POWER_CUT))["a"]
    assert flushed <= len(image) <= len(whole)
    assert image[:flushed] == whole[:flushed]


@given(calls, st.integers(0, 1 << 32))
def test_equal_seeds_give_equal_disks(
    history: list[tuple[str, str, str, int, int]], seed: int
) -> None:
    images = []
    for _ in range(2):
        disk = SimulatedDisk()
        disk.directory().create()
        model = Model()
        for call in history:
            apply(disk, model, call)
        images.append(files_of(disk.image(random.Random(seed), CrashMode.POWER_CUT)))
    assert images[0] == images[1]
