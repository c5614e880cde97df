"""What only the real file seam does: modes, symbolic links, errno, cached reads, the lock."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from ringlog.storage.errors import (
    DirectoryInUse,
    DiskFull,
    FileMissing,
    LogDirFailed,
    ReadFailed,
    StorageError,
)
from ringlog.storage.real_files import RealDirectory, RealFile, lock_directory


@pytest.fixture
def root(tmp_path: Path) -> RealDirectory:
    directory = RealDirectory(tmp_path / "data")
    directory.create()
    return directory


def fail_with(code: int, calls: list[int] | None = None) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        if calls is not None:
            calls.append(code)
        raise OSError(code, os.strerror(code))

    return fail


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Modes and links


def test_directories_are_private_and_files_too(root: RealDirectory, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        root.make_directory("orders-0")
        root.subdirectory("orders-0").open("a", create=True)
    finally:
        os.umask(old)
    data = tmp_path / "data"
    assert mode_of(data) == 0o700
    assert mode_of(data / "orders-0") == 0o700
    assert mode_of(data / "orders-0" / "a") == 0o600


def test_create_makes_an_existing_directory_private(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    RealDirectory(tmp_path / "data").create()
    assert mode_of(tmp_path / "data") == 0o700


def test_create_leaves_the_mode_of_a_directory_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o770)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    RealDirectory(tmp_path / "data").create()
    assert mode_of(tmp_path / "data") == 0o770


def test_a_symbolic_link_is_not_followed(root: RealDirectory, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "data" / "a").symlink_to(tmp_path / "secret")
    with pytest.raises(LogDirFailed, match="ELOOP") as refused:
        root.open("a")
    assert "symbolic link" in refused.value.hint
    root.unlink("a")
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_remove_tree_does_not_follow_links(root: RealDirectory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_bytes(b"")
    root.make_directory("a")
    (tmp_path / "data" / "a" / "link").symlink_to(outside)
    root.remove_tree("a")
    assert (outside / "keep").exists()
    (tmp_path / "data" / "b").symlink_to(outside)
    with pytest.raises(LogDirFailed):
        root.remove_tree("b")
    assert (outside / "keep").exists()


def test_a_pipe_is_refused(root: RealDirectory, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data" / "a")
    with pytest.raises(LogDirFailed, match="regular file"):
        root.open("a")


def test_descriptors_are_not_inherited(root: RealDirectory) -> None:
    file = root.open("a", create=True)
    lock = root.lock()
    assert not os.get_inheritable(file._handle.fd)
    assert not os.get_inheritable(lock._fd)
    lock.release()


# Errors

CALLS: list[tuple[str, str, Callable[[RealDirectory, RealFile], object]]] = [
    ("pwritev", "writing", lambda root, file: file.pwrite([b"x"], 0)),
    ("ftruncate", "truncating", lambda root, file: file.truncate(0)),
    ("fdatasync", "flushing", lambda root, file: file.sync()),
    ("fsync", "flushing names of", lambda root, file: root.sync()),
    ("rename", "renaming", lambda root, file: root.rename("a", "b")),
    ("unlink", "removing", lambda root, file: root.unlink("a")),
    ("mkdir", "creating directory", lambda root, file: root.make_directory("b")),
    ("open", "opening", lambda root, file: root.open("b", create=True)),
]


@pytest.mark.parametrize(("call", "doing", "act"), CALLS, ids=[row[0] for row in CALLS])
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_call_says_what_where_why_and_what_next(
    root: RealDirectory,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    doing: str,
    act: Callable[[RealDirectory, RealFile], object],
    code: int,
) -> None:
    file = root.open("a", create=True)
    monkeypatch.setattr(os, call, fail_with(code))
    full = code in {errno.ENOSPC, errno.EDQUOT}
    full = full and call not in {"fdatasync", "fsync", "ftruncate"}
    with pytest.raises(StorageError) as failed:
        act(root, file)
    assert type(failed.value) is (DiskFull if full else LogDirFailed)
    text = str(failed.value)
    assert text.startswith(doing)
    assert root.path in text
    assert errno.errorcode[code] in text
    assert failed.value.hint


def test_a_failed_read_is_the_loss_of_a_replica_only(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    monkeypatch.setattr(os, "pread", fail_with(errno.EIO))
    monkeypatch.setattr(os, "preadv", fail_with(errno.EIO))
    reads: list[Callable[[], object]] = [
        lambda: file.pread(9, 7),
        lambda: file.pread_cached(9, 7),
    ]
    for read in reads:
        with pytest.raises(ReadFailed, match=r"/a at byte 7 failed.*EIO"):
            read()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fail_with(errno.EIO))
        with pytest.raises(ReadFailed):
            file.size_bytes()


def test_a_full_device_is_disk_full(root: RealDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own ENOSPC, through /dev/full."""
    file = root.open("a", create=True)
    full = os.open("/dev/full", os.O_RDWR)
    try:
        monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: os.writev(full, buffers))
        with pytest.raises(DiskFull, match="ENOSPC"):
            file.pwrite([b"abc"], 0)
    finally:
        os.close(full)


@pytest.mark.parametrize("step", [1, 3, 4, 7, 10_000])
def test_short_writes_are_continued(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    file = root.open("a", create=True)
    real = os.pwritev

    def short(fd: int, buffers: list[memoryview], position: int) -> int:
        return real(fd, [b"".join(buffers)[:step]], position)

    monkeypatch.setattr(os, "pwritev", short)
    file.pwrite([b"abc", b"", b"defg", memoryview(b"h"), b"ijklmnop"], 5)
    assert file.pread(100, 5) == b"abcdefghijklmnop"


def test_a_write_that_takes_nothing_is_a_failure(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(LogDirFailed):
        file.pwrite([b"abc"], 0)


def test_interrupted_reads_are_continued(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abcdefgh"], 0)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 3), at))
    assert file.pread(7, 0) == b"abcdefg"
    assert file.pread(70, 0) == b"abcdefgh"


# Flushes that fail


def test_a_failed_flush_poisons_the_file_for_good(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = root.open("a", create=True), root.open("b", create=True)
    file.pwrite([b"abc"], 0)
    calls: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail_with(errno.EIO, calls))
        with pytest.raises(LogDirFailed, match="EIO"):
            file.sync()
        with pytest.raises(LogDirFailed, match=r"not written any more.*EIO"):
            file.sync()
    assert calls == [errno.EIO], "a failed flush is not retried"
    file.close()
    again = root.open("a")
    for act in (again.sync, lambda: again.pwrite([b"x"], 0), lambda: again.truncate(0)):
        with pytest.raises(LogDirFailed, match="not written any more"):
            act()
    assert again.pread(9, 0) == b"abc"
    other.pwrite([b"x"], 0)
    other.sync()


def test_the_poison_follows_a_rename_and_ends_with_the_file(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail_with(errno.EIO))
        with pytest.raises(LogDirFailed):
            file.sync()
    file.close()
    root.rename("a", "b")
    with pytest.raises(LogDirFailed):
        root.open("b").sync()
    root.unlink("b")
    root.open("b", create=True).sync()


def test_a_failed_flush_of_names_poisons_the_directory(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.make_directory("orders-0")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_with(errno.EIO))
        with pytest.raises(LogDirFailed, match="EIO"):
            root.sync()
    with pytest.raises(LogDirFailed, match="earlier"):
        root.sync()
    root.subdirectory("orders-0").sync()


# Cached reads


def test_a_cold_page_is_not_waited_for(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abc"], 0)
    monkeypatch.setattr(os, "preadv", fail_with(errno.EAGAIN))
    monkeypatch.setattr(os, "pread", fail_with(errno.EIO))
    assert file.pread_cached(3, 0) is None


def test_a_half_cached_read_is_none_but_the_end_of_the_file_is_short(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abcdef"], 0)
    real = os.preadv
    assert file.pread_cached(100, 2) == b"cdef"
    monkeypatch.setattr(os, "preadv", lambda fd, views, at, flags: real(fd, [views[0][:2]], at))
    assert file.pread_cached(4, 1) is None
    assert file.pread_cached(4, 4) == b"ef"


def test_the_kernel_is_asked_not_to_wait(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root.open("a", create=True)
    flags: list[int] = []

    def nothing(fd: int, views: list[memoryview], position: int, flag: int) -> int:
        flags.append(flag)
        return 0

    monkeypatch.setattr(os, "preadv", nothing)
    file.pread_cached(1, 0)
    assert flags == [os.RWF_NOWAIT]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_the_kernel_can_not_say_it_reads(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = root.open("a", create=True)
    file.pwrite([b"abc"], 0)
    calls: list[int] = []
    monkeypatch.setattr(os, "preadv", fail_with(code, calls))
    assert file.pread_cached(3, 0) == b"abc"
    assert file.pread_cached(3, 0) == b"abc"
    assert calls == [code], "asked once only"


def test_cached_reads_larger_than_the_scratch_buffer(root: RealDirectory) -> None:
    file = root.open("a", create=True)
    data = os.urandom(5 << 20)
    file.pwrite([data], 0)
    assert file.pread_cached(5 << 20, 0) in {data, None}
    assert file.pread_cached(10, 3) == data[3:13]


# The lock


def test_the_lock_names_its_holder_in_another_process(root: RealDirectory) -> None:
    code = (
        "import sys; from ringlog.storage.real_files import lock_directory\n"
        f"lock = lock_directory({root.path!r}); print(flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        with pytest.raises(DirectoryInUse, match=f"process {holder.pid} ") as refused:
            root.lock()
        assert root.path in str(refused.value)
        assert refused.value.hint
        holder.kill()
        holder.wait()
        root.lock().release()


def test_the_lock_file_holds_the_process_id(root: RealDirectory, tmp_path: Path) -> None:
    (tmp_path / "data" / "lock").write_text("123456789012\n")
    lock = lock_directory(root.path)
    assert (tmp_path / "data" / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_file_system_without_locks_is_a_failure(
    root: RealDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {fd.name for fd in Path("/proc/self/fd").iterdir()}
    monkeypatch.setattr("fcntl.flock", fail_with(errno.ENOLCK))
    with pytest.raises(LogDirFailed, match="ENOLCK"):
        root.lock()
    with pytest.raises(FileMissing):
        lock_directory(root.path + "/absent")
    assert {fd.name for fd in Path("/proc/self/fd").iterdir()} == before


def test_free_bytes_is_that_of_the_file_system(root: RealDirectory) -> None:
    status = os.statvfs(root.path)
    assert abs(root.free_bytes() - status.f_bavail * status.f_frsize) < 1 << 30
