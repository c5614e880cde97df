"""The bounded set of descriptors: eviction, pins, flushes before eviction, EMFILE."""

import errno
import os
import random
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ringlog.storage.errors import LogDirFailed
from ringlog.storage.real_files import RealDirectory, RealFile

LIMIT = 4


@pytest.fixture
def root(tmp_path: Path) -> RealDirectory:
    directory = RealDirectory(tmp_path / "data", handle_limit=LIMIT)
    directory.create()
    return directory


def open_under(root: RealDirectory) -> int:
    """Descriptors of this process on files below the directory."""
    return sum(path.startswith(root.path + "/") for path in targets())


def targets() -> list[str]:
    """What each descriptor of this process is open on."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(fd.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def make_files(root: RealDirectory, count: int) -> list[RealFile]:
    files = []
    for n in range(count):
        file = root.open(f"file-{n}", create=True)
        file.pwrite([b"%010d" % n * 100], 0)
        file.sync()
        files.append(file)
    return files


def test_the_limit_holds_and_every_file_works(root: RealDirectory) -> None:
    files = make_files(root, 50)
    for n, file in enumerate(files):
        assert file.pread(10, 10) == b"%010d" % n
        assert open_under(root) <= LIMIT
    for file in files:
        file.close()
    assert open_under(root) == 0


def test_the_least_recently_used_goes_first(root: RealDirectory) -> None:
    files = make_files(root, LIMIT)
    files[0].size_bytes()
    root.open("one-more", create=True)
    assert files[1]._handle.fd < 0
    assert files[0]._handle.fd >= 0


def test_threads_read_and_write_through_few_descriptors(root: RealDirectory) -> None:
    files = make_files(root, 50)
    failures: list[BaseException] = []
    most = [0]

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for round_ in range(300):
                n = rng.randrange(50)
                at = rng.randrange(90) * 10
                assert files[n].pread(20, at) == b"%010d" % n * 2
                if rng.random() < 0.2:
                    files[n].pwrite([b"%010d" % n], 1000 + 10 * seed)
                if rng.random() < 0.05:
                    files[n].sync()
                if rng.random() < 0.05:
                    again = root.open(f"file-{n}")
                    assert again.pread_cached(10, 0) in {None, b"%010d" % n}
                    again.close()
                if round_ % 50 == 0:
                    most[0] = max(most[0], open_under(root))
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert most[0] <= LIMIT + 2 * len(threads), "a thread holds its own and one it is closing"
    root.open("one-more", create=True)
    assert open_under(root) <= LIMIT
    for n, file in enumerate(files):
        data = file.pread(2000, 0)
        assert data[:1000] == b"%010d" % n * 100
        assert set(data[1000:]) <= set(b"\0%010d" % n)


def paused(
    call: Callable[..., object],
) -> tuple[Callable[..., object], threading.Event, threading.Event]:
    """A system call that waits in its first use, with events for `it began` and `go on`."""
    began, go_on = threading.Event(), threading.Event()

    def wait(*arguments: object) -> object:
        if not began.is_set():
            began.set()
            assert go_on.wait(10)
        return call(*arguments)

    return wait, began, go_on


@pytest.mark.parametrize("ending", ["evict", "close", "unlink", "replace", "remove tree"])
def test_no_descriptor_is_closed_under_a_running_read(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    root.make_directory("orders-0")
    below = root.subdirectory("orders-0")
    for name in ("a", "b"):
        file = below.open(name, create=True)
        file.pwrite([name.encode() * 10], 0)
        file.sync()
        file.close()
    file = below.open("a")
    wait, began, go_on = paused(os.pread)
    monkeypatch.setattr(os, "pread", wait)
    data: list[bytes] = []
    reader = threading.Thread(target=lambda: data.append(file.pread(10, 0)))
    reader.start()
    assert began.wait(10)
    if ending == "close":
        file.close()
    elif ending == "unlink":
        below.unlink("a")
    elif ending == "replace":
        below.rename("b", "a")  # nobody has b open
    elif ending == "remove tree":
        root.remove_tree("orders-0")
    make_files(root, 20)
    go_on.set()
    reader.join()
    assert data == [b"a" * 10]
    if ending != "evict":
        assert not any(path.startswith(f"{below.path}/a") for path in targets()), (
            "its space comes back at once"
        )
    make_files(root, 20)
    assert open_under(root) <= LIMIT


def test_unflushed_writes_are_flushed_before_their_descriptor_goes(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty = [root.open(f"dirty-{n}", create=True) for n in range(LIMIT)]
    for file in dirty:
        file.pwrite([b"x"], 0)
    flushed: list[str] = []

    def flush(fd: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fdatasync", flush)
    root.open("one-more", create=True)
    assert flushed == ["dirty-0"]
    assert dirty[0]._handle.fd < 0
    root.open("two-more", create=True)
    assert flushed == ["dirty-0"], "the clean one goes before the unflushed ones"


def test_a_truncation_is_flushed_before_its_descriptor_goes(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    files = [root.open(f"dirty-{n}", create=True) for n in range(LIMIT)]
    for file in files:
        file.truncate(5)
    root.open("one-more", create=True)
    assert len(flushed) == 1


def test_a_flush_that_fails_at_eviction_poisons_the_file(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty = [root.open(f"dirty-{n}", create=True) for n in range(LIMIT + 1)]

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        for file in dirty:
            file.pwrite([b"x"], 0)
    assert open_under(root) <= LIMIT
    with pytest.raises(LogDirFailed, match="EIO"):
        dirty[0].sync()
    dirty[LIMIT].sync()


def test_of_two_flushes_at_once_none_hides_the_failure(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells a failure once; the second flush would be told of success."""
    file, same = root.open("a", create=True), root.open("a")
    calls: list[int] = []
    began, go_on = threading.Event(), threading.Event()

    def fail_first(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            began.set()
            assert go_on.wait(10)
            raise OSError(errno.EIO, "")

    monkeypatch.setattr(os, "fdatasync", fail_first)
    outcomes: list[str] = []

    def flush(which: RealFile) -> None:
        try:
            which.sync()
            outcomes.append("flushed")
        except LogDirFailed:
            outcomes.append("failed")

    threads = [threading.Thread(target=flush, args=(which,)) for which in (file, same)]
    threads[0].start()
    assert began.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert outcomes == ["failed", "failed"]
    assert len(calls) == 1


def test_a_write_beside_a_flush_stays_unflushed(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abc"], 0)
    monkeypatch.setattr(os, "fdatasync", lambda fd: file.pwrite([b"def"], 3))
    file.sync()
    assert file._handle.dirty


def test_a_cached_read_never_opens(root: RealDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_files(root, LIMIT + 1)

    def refuse(*_: object) -> int:
        raise AssertionError("opened")

    monkeypatch.setattr(os, "open", refuse)
    assert files[0].pread_cached(10, 0) is None


def test_no_descriptor_left_makes_room(tmp_path: Path) -> None:
    """EMFILE of the kernel: others are closed, and the call goes on."""
    root = RealDirectory(tmp_path / "data", handle_limit=10_000)
    root.create()
    files = make_files(root, 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        others = [root.open(f"other-{n}", create=True) for n in range(40)]
        root.sync()
        assert [file.pread(10, 0) for file in files] == [b"%010d" % n for n in range(10)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for file in files + others:
        file.close()


def test_no_descriptor_left_and_none_to_close_is_a_failure(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LogDirFailed, match="EMFILE") as failed:
        root.open("a", create=True)
    assert "ulimit" in failed.value.hint
