"""The shell scripts name what is missing and the command that would mend it.

The scripts run with a PATH of our own, in which Python, apt-get or root can be missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.source_tree import ROOT

NEEDED = ("bash", "cat", "cksum", "cut", "dirname", "getent", "git", "grep", "id", "mkdir", "sed")

NO_ENVIRONMENTS = """#!/bin/bash
case "$*" in *ensurepip*|*virtualenv*) exit 1 ;; esac
exec {python} "$@"
"""


class Machine:
    """A made-up machine: its commands, its user, and what apt-get was asked for."""

    def __init__(self, folder: Path, *, root: bool) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name in NEEDED:
            found = shutil.which(name)
            assert found is not None, name
            (self.bin / name).symlink_to(found)
        self.command("id", f"#!/bin/bash\necho {0 if root else 1000}\n")

    def command(self, name: str, text: str) -> None:
        """Put a script of that name on PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def with_apt(self) -> None:
        """Put an apt-get on PATH that notes its arguments and installs nothing."""
        self.command("apt-get", f'#!/bin/bash\necho "$*" >>{self.folder}/apt\n')

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the repository there, with next to no environment."""
        environment = {
            "PATH": str(self.bin),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "RINGLOG_VENV": str(self.folder / "venv"),
        }
        return subprocess.run(
            [str(self.bin / "bash"), str(ROOT / script), *arguments],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def apt_calls(self) -> str:
        """What apt-get was asked for, a call a line."""
        noted = self.folder / "apt"
        return noted.read_text() if noted.exists() else ""


@pytest.mark.parametrize("script", ["tools/test", "tools/quickstart"])
def test_without_python_a_user_is_told_what_to_install(script: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    machine.with_apt()
    done = machine.run(script)
    assert done.returncode == 1
    assert "sudo apt-get install -y python3 python3-venv" in done.stderr
    assert machine.apt_calls == ""


def test_without_python_root_installs_it_and_says_when_that_did_not_help(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=True)
    machine.with_apt()
    done = machine.run("tools/test")
    assert done.returncode == 1
    assert "install -y --no-install-recommends python3 python3-venv" in machine.apt_calls
    assert machine.apt_calls.startswith("-qq update")
    assert "no Python 3.11 or newer on PATH" in done.stderr
    assert "RINGLOG_PYTHON=" in done.stderr


def test_without_apt_the_packages_are_named(tmp_path: Path) -> None:
    done = Machine(tmp_path, root=True).run("tools/test")
    assert done.returncode == 1
    assert "install these packages: python3 python3-venv" in done.stderr


def test_a_python_that_is_too_old_does_not_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    machine.with_apt()
    machine.command("python3", "#!/bin/bash\nexit 1\n")
    done = machine.run("tools/test")
    assert done.returncode == 1
    assert "sudo apt-get install -y python3 python3-venv" in done.stderr


def test_a_python_without_ensurepip_asks_for_its_venv_package(tmp_path: Path) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    machine = Machine(tmp_path, root=False)
    machine.with_apt()
    machine.command("python3", NO_ENVIRONMENTS.format(python=sys.executable))
    done = machine.run("tools/test")
    assert done.returncode == 1
    assert f"sudo apt-get install -y python{version}-venv" in done.stderr


def test_a_missing_system_package_is_named_with_its_command(tmp_path: Path) -> None:
    machine = Machine(tmp_path, root=False)
    machine.with_apt()
    (machine.bin / "git").unlink()
    done = machine.run("tools/test")
    assert done.returncode == 1
    assert "sudo apt-get install -y git" in done.stderr


@pytest.mark.parametrize("script", ["tools/test", "tools/quickstart"])
def test_help_names_every_option_and_installs_nothing(script: str, tmp_path: Path) -> None:
    done = Machine(tmp_path, root=False).run(script, "--help")
    assert done.returncode == 0
    options = {"tools/test": ["--long", "--keep-going"], "tools/quickstart": ["--keep", "FILE"]}
    for option in options[script]:
        assert option in done.stdout
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("script", "argument"),
    [("tools/test", "--lon"), ("tools/quickstart", "--kep"), ("tools/quickstart", "no-such-file")],
)
def test_an_argument_that_means_nothing_is_refused(
    script: str, argument: str, tmp_path: Path
) -> None:
    done = Machine(tmp_path, root=False).run(script, argument)
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert argument in done.stderr
    assert "hint: " in done.stderr


def test_every_script_is_executable_has_no_ending_and_no_folder_of_its_name() -> None:
    scripts = [path for path in (ROOT / "tools").iterdir() if path.is_file() and not path.suffix]
    assert {path.name for path in scripts} >= {"test", "quickstart", "generate_pages"}
    for path in [*scripts, ROOT / ".ci/run"]:
        assert os.access(path, os.X_OK), path
        assert path.read_text().startswith("#!/usr/bin/env "), path
