"""What pip installs is what git holds, and it is installable only when it is whole."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.repo.source_tree import ROOT, files

LINKS = ("broker", "client", "registry", "replication", "storage", "tools")


def copy_tree(target: Path) -> Path:
    """A copy of what git holds, symbolic links kept, as a fresh clone has it."""
    for name in files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    for link in LINKS:
        (target / "ringlog" / link).symlink_to(f"../{link}")
    return target


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run this Python away from the repository; the result with its output as text."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def build_wheel(source: Path, target: Path) -> set[str]:
    """Names of the files in the wheel of `source`, its metadata left out."""
    pip = ("-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation")
    built = run_python(*pip, "--quiet", "--wheel-dir", str(target), str(source), cwd=target)
    assert built.returncode == 0, built.stderr
    (wheel,) = target.glob("ringlog-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    return {name for name in names if ".dist-info/" not in name}


def expected_in_wheel() -> set[str]:
    """Python files of the six folders below ringlog/, and the two files of the import root."""
    modules = {
        f"ringlog/{name}"
        for name in files()
        if name.split("/")[0] in LINKS and name.endswith(".py") and "/stubs/" not in name
    }
    return modules | {"ringlog/__init__.py", "ringlog/py.typed"}


def test_the_links_are_relative_and_in_git() -> None:
    for link in LINKS:
        path = ROOT / "ringlog" / link
        assert path.is_symlink()
        assert str(path.readlink()) == f"../{link}"


def test_the_wheel_holds_what_git_holds(tmp_path: Path) -> None:
    source = copy_tree(tmp_path / "source")
    assert build_wheel(source, tmp_path) == expected_in_wheel()


def test_a_module_left_in_build_is_seen(tmp_path: Path) -> None:
    source = copy_tree(tmp_path / "source")
    ghost = source / "build/lib/ringlog/storage/ghost.py"
    ghost.parent.mkdir(parents=True)
    ghost.write_text('"""A module that was deleted."""\n')
    extra = build_wheel(source, tmp_path) - expected_in_wheel()
    assert extra == {"ringlog/storage/ghost.py"}


def test_the_wheel_of_the_sdist_holds_the_same(tmp_path: Path) -> None:
    source = copy_tree(tmp_path / "source")
    (tmp_path / "dist").mkdir()
    options = ("-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path / "dist"))
    built = run_python(*options, str(source), cwd=tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    (archive,) = (tmp_path / "dist").glob("ringlog-*.tar.gz")
    # tarfile's safe filter came with Python 3.11.4 only.
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-C", str(tmp_path / "unpacked"), "-xzf", str(archive)], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert build_wheel(unpacked, tmp_path) == expected_in_wheel()


def test_a_clone_without_symbolic_links_is_refused_with_a_clear_word(tmp_path: Path) -> None:
    source = copy_tree(tmp_path / "source")
    for link in LINKS:
        (source / "ringlog" / link).unlink()
        (source / "ringlog" / link).write_text(f"../{link}")
    refused = run_python("-c", "import ringlog.client", cwd=source)
    assert refused.returncode == 1
    assert "without symbolic links" in refused.stderr
    assert "git config core.symlinks true" in refused.stderr
    script = subprocess.run(
        ["bash", str(source / "tools/test"), "lint"], capture_output=True, text=True, check=False
    )
    assert script.returncode == 1
    assert "without symbolic links" in script.stderr


PROBE = """
import sys, time
began = time.process_time()
import ringlog.client
alone = time.process_time() - began
for name in ringlog.client.__all__:
    getattr(ringlog.client, name)
unwanted = {"kazoo", "rich", "click", "aiokafka", "kafka",
            "ringlog.broker", "ringlog.registry", "ringlog.replication", "ringlog.tools"}
print(f"{alone:.3f} {time.process_time() - began:.3f}", *sorted(unwanted & set(sys.modules)))
"""


def test_importing_the_client_is_quick_and_loads_nothing_of_the_server() -> None:
    probe = run_python("-c", PROBE, cwd=ROOT)
    assert probe.returncode == 0, probe.stderr
    alone_s, all_names_s, *unwanted = probe.stdout.split()
    assert unwanted == []
    # Processor time, with room for a slow machine; here it is 1 ms and 100 ms.
    assert float(alone_s) < 0.2
    assert float(all_names_s) < 1.0


@pytest.mark.parametrize("name", LINKS)
def test_no_bare_package_is_installed(name: str) -> None:
    probe = run_python("-c", f"import {name}", cwd=Path(sys.prefix))
    assert probe.returncode == 1
    assert "ModuleNotFoundError" in probe.stderr
