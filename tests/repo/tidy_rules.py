"""Size, documentation and naming rules that the linter cannot see.

Each rule is a function from one `Source` to the violations in it. `test_tidy.py` runs them over
the repository and over planted violations.
"""

import ast
import re
from pathlib import PurePosixPath

from tests.repo.source_tree import LAYERS, Source

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "shared", "base", "lib"}
INVARIANT = re.compile(r"^\s+([A-Z]{1,3})(\d+)\s", re.MULTILINE)
SILENCED = re.compile(
    r"#\s*(?:noqa|type:\s*ignore)\b"
    r"(?P<code>:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|\[[a-z-, ]+\])?(?P<reason>.*)$"
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

UNMIRRORED: dict[str, str] = {
    "broker/connections.py": "needs sockets: tests/cluster/test_connections.py",
    "broker/reactor.py": "needs sockets: tests/cluster/test_hostile_peers.py",
    "broker/server.py": "needs sockets: tests/cluster/test_server.py",
}
"""Modules with logic but without a unit test file of their own, each with its reason."""


def size_violations(source: Source) -> list[str]:
    """Modules and functions over their bound."""
    lines = source.text.count("\n")
    found = []
    if lines > MAX_MODULE_LINES:
        found.append(f"{source.path}: {lines} lines, at most {MAX_MODULE_LINES}: split it by idea")
    for node in ast.walk(source.tree):
        if isinstance(node, FUNCTIONS):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(
                    f"{source.path}:{node.lineno}: {node.name} has {length} lines, "
                    f"at most {MAX_FUNCTION_LINES}"
                )
    return found


def name_violations(source: Source) -> list[str]:
    """Modules and folders named after nothing."""
    parts = PurePosixPath(source.path).with_suffix("").parts
    return [
        f"{source.path}: {part!r} says nothing about what it owns"
        for part in parts
        if part in VAGUE_NAMES
    ]


def holds_logic(source: Source) -> bool:
    """Whether a module decides anything: a function, or a method outside protocols and errors.

    Tables of names, messages and error types hold none, nor do package docstrings.
    """
    for node in source.tree.body:
        if isinstance(node, FUNCTIONS):
            return True
        if isinstance(node, ast.ClassDef) and "Protocol" not in {
            base.id for base in node.bases if isinstance(base, ast.Name)
        }:
            methods = (member for member in node.body if isinstance(member, FUNCTIONS))
            if any(not method.name.startswith("__") for method in methods):
                return True
    return False


def invariants(source: Source) -> list[tuple[str, str]]:
    """(letters, number) of each invariant that a module's docstring numbers."""
    text = ast.get_docstring(source.tree) or ""
    _, heading, rest = text.partition("Invariants")
    return INVARIANT.findall(rest) if heading else []


def docstring_violations(source: Source) -> list[str]:
    """Modules that do not say what they own; product logic without numbered invariants."""
    if source.folder in {"ringlog", *LAYERS, "tools", "tests"}:
        text = ast.get_docstring(source.tree)
        empty_package = source.path.endswith("__init__.py") and not source.text.strip()
        if text is None and not empty_package:
            return [f"{source.path}: no module docstring"]
        stated = source.folder not in LAYERS or source.path.endswith("__init__.py")
        if not stated and holds_logic(source) and not invariants(source):
            return [f"{source.path}: its docstring names no numbered invariant"]
    return []


def silenced_check_violations(source: Source) -> list[str]:
    """Comments that silence ruff or mypy without naming the code and the reason.

    The reason stands behind the code, or is a comment on the line above.
    """
    found = []
    lines = source.text.splitlines()
    for number, line in enumerate(lines, 1):
        silenced = SILENCED.search(line)
        if silenced is None:
            continue
        above = lines[number - 2].strip() if number > 1 else ""
        reasoned = silenced["reason"].strip(" #-:") or above.startswith("# ")
        if not (silenced["code"] and reasoned):
            found.append(f"{source.path}:{number}: name the code and the reason of {silenced[0]!r}")
    return found


def mirror_path(source: Source) -> str | None:
    """Path of the unit test file that belongs to a module; None when it needs none."""
    path = PurePosixPath(source.path)
    if path.name in {"__init__.py", "__main__.py"} or source.path in UNMIRRORED:
        return None
    if source.folder in LAYERS and holds_logic(source):
        return str(PurePosixPath("tests/unit") / path.parent / f"test_{path.name}")
    return None


RULES = (
    size_violations,
    name_violations,
    docstring_violations,
    silenced_check_violations,
)
