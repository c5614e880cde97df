"""The files of the repository as git sees them, parsed.

Owns the listing: tracked files, and new ones that git does not ignore, so that a rule holds
before the commit too. Symbolic links are left out: each file counts once, under its folder.
"""

import ast
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("storage", "client", "registry", "replication", "broker")
"""The product layers; tools and tests stand above them."""


class Source(NamedTuple):
    """One Python file: its path below the root, with slashes, and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        """The top-level folder, which is the layer for product code."""
        return self.path.partition("/")[0]


def parse(path: str, text: str) -> Source:
    """Make a `Source` from a made-up or real file."""
    return Source(path, text, ast.parse(text, path))


def git_lines(*arguments: str) -> list[str]:
    """Run git on the repository, whoever owns the clone; its output as lines."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@cache
def files() -> tuple[str, ...]:
    """Paths of all files that are there: no links, nothing ignored, no virtual environment."""
    listed = git_lines("ls-files", "--cached", "--others", "--exclude-standard")
    environments = tuple(
        name.removesuffix("pyvenv.cfg") for name in listed if name.endswith("/pyvenv.cfg")
    )
    listed = [name for name in listed if not name.startswith(environments)]
    kept = {name for name in listed if (ROOT / name).is_file() and not (ROOT / name).is_symlink()}
    return tuple(sorted(kept))


@cache
def sources() -> tuple[Source, ...]:
    """All Python files."""
    names = (name for name in files() if name.endswith(".py"))
    return tuple(parse(name, (ROOT / name).read_text(encoding="utf-8")) for name in names)


@cache
def product_sources() -> tuple[Source, ...]:
    """The Python files of the product layers."""
    return tuple(source for source in sources() if source.folder in LAYERS)


def assert_none(violations: list[str]) -> None:
    """Fail with one violation a line; pytest would cut a long list."""
    if violations:
        pytest.fail("\n".join(["", *violations]), pytrace=False)
