"""Who may import whom, and which library and which system call has its one home.

Each rule is a function from one `Source` to the violations in it, as sentences that name line
and remedy. `test_layers.py` runs them over the repository and over planted violations.

    tools, tests -> broker -> { client, registry, replication } -> storage
"""

import ast
from collections.abc import Iterator

from tests.repo.source_tree import LAYERS, Source

MAY_IMPORT = {
    "storage": {"storage"},
    "client": {"client", "storage"},
    "registry": {"registry", "storage"},
    "replication": {"replication", "storage"},
    "broker": {*LAYERS},
    "tools": {*LAYERS, "tools"},
    "tests": {*LAYERS, "tools", "tests"},
}

LIBRARY_HOMES = {
    "kazoo": ("registry/zookeeper.py", "tools/stubs/", "tests/"),
    "zmq": (
        "client/connection.py",
        "broker/reactor.py",
        "broker/peers.py",
        "tools/",
        "tests/",
    ),
    "lz4": ("storage/", "tools/stubs/", "tests/"),
    "crc32c": ("storage/", "tests/"),
    "rich": ("tools/", "tests/"),
    "click": ("tools/", "tests/"),
}
"""Path prefixes under which a library may be imported."""

FILE_HOMES = ("storage/files.py", "storage/real_files.py", "storage/descriptors.py")
FILE_MODULES = {"pathlib", "shutil", "tempfile", "mmap", "fcntl", "glob", "io", "fileinput"}
FILE_CALLS = {
    *("open", "read", "write", "pread", "preadv", "pwrite", "pwritev", "lseek"),
    *("fsync", "fdatasync", "sync", "truncate", "ftruncate", "posix_fallocate", "posix_fadvise"),
    *("rename", "renames", "replace", "unlink", "remove", "removedirs", "rmdir", "mkdir"),
    *("makedirs", "listdir", "scandir", "walk", "fwalk", "stat", "lstat", "fstat", "statvfs"),
    *("fstatvfs", "access", "link", "symlink", "readlink", "chmod", "chown", "utime", "path"),
    *("sendfile", "copy_file_range", "mkfifo", "mknod"),
}
"""Names of `os` that reach files. Environment, process ids and eventfd are none."""

SHELL_MODULES = {
    *("time", "threading", "_thread", "socket", "select", "selectors", "asyncio", "signal"),
    *("subprocess", "multiprocessing", "concurrent", "logging", "secrets", "queue", "ctypes"),
}
"""Modules that read a clock, wait, run a thread or log: only shells may."""

LOGGING_LAYERS = {"broker", "client"}
"""Where any module may write log lines: they tell people, and decide nothing."""

RANDOM_TYPE = {"random.Random"}
CHANCE = {"os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4"}
CLOCKS = {"datetime.now", "datetime.utcnow", "date.today"}

SHELLS: dict[str, tuple[str, str]] = {
    "storage/real_files.py": ("*", "the file seam's real side"),
    "storage/descriptors.py": ("*", "the real side's table of open files, shared by threads"),
    "storage/memory_files.py": ("threading", "the file seam in memory, as thread-safe"),
    "storage/durable_marks.py": ("threading", "flush workers put marks, the reactor reads them"),
    "storage/segment.py": ("threading", "workers that open the same file at once do it once"),
    "storage/whole_file.py": ("threading", "workers that compare the same file at once do it once"),
    "registry/standalone.py": ("threading", "workers store the file while the reactor reads"),
    "client/accumulator.py": ("threading", "any thread of the application adds records"),
    "client/fetch_agent.py": ("threading", "the IO thread fetches, the caller takes out"),
    "client/completion.py": ("threading", "callers wait for an outcome"),
    "client/connection.py": ("*", "owns the socket and its thread"),
    "client/producer.py": ("*", "façade: blocks the caller up to a deadline"),
    "client/consumer.py": ("*", "façade: blocks the caller up to a deadline"),
    "client/poller.py": ("threading", "one thread at a time takes records out"),
    "client/admin.py": ("*", "façade: blocks the caller up to a deadline"),
    "broker/reactor.py": ("*", "the event loop"),
    "broker/connections.py": ("*", "ends TCP connections that ZeroMQ cannot end"),
    "broker/server.py": ("*", "composition root and life cycle"),
    "broker/flusher.py": ("*", "groups flushes on a thread"),
    "broker/workers.py": ("*", "threads for what may wait for a disk"),
    "broker/completions.py": ("threading", "where other threads hand over to the reactor"),
}
"""Modules outside the pure core: (which modules they may import or `*`, why)."""

FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__"),
    *("yaml.load", "importlib.import_module"),
}
IMPORTS_BY_NAME = ("tools/cli/__init__.py", "tests/")
"""Where `importlib.import_module` may be called: with names of a table in the code."""


def _imported(node: ast.AST) -> Iterator[str]:
    """Dotted names that an import statement may bring in: `from a import b` gives `a.b`."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield f"{node.module or ''}.{alias.name}"


def _imports(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        for name in _imported(node):
            yield getattr(node, "lineno", 0), name


def _uses(source: Source) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each attribute of a bare name, and of each bare name called."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def layer_violations(source: Source) -> list[str]:
    """Imports that point upward or sideways."""
    allowed = MAY_IMPORT.get(source.folder, set())
    found = []
    for line, name in _imports(source):
        parts = name.split(".")
        target = parts[1] if parts[0] == "ringlog" and len(parts) > 1 else parts[0]
        if target in MAY_IMPORT and target not in allowed:
            found.append(f"{source.path}:{line}: {source.folder} must not import {target} ({name})")
        if parts[0] in MAY_IMPORT and parts[0] != "tests":
            found.append(f"{source.path}:{line}: import ringlog.{name}; {name} loads a second copy")
    return found


def library_violations(source: Source) -> list[str]:
    """Imports of a library outside its home."""
    return [
        f"{source.path}:{line}: {name} may be imported only in {', '.join(LIBRARY_HOMES[library])}"
        for line, name in _imports(source)
        if (library := name.split(".")[0]) in LIBRARY_HOMES
        and not source.path.startswith(LIBRARY_HOMES[library])
    ]


def file_violations(source: Source) -> list[str]:
    """File calls in a product layer outside the file seam."""
    if source.folder not in LAYERS or source.path in FILE_HOMES:
        return []
    calls = {"open", *(f"os.{name}" for name in FILE_CALLS)}
    found = [(line, name) for line, name in _imports(source) if name.split(".")[0] in FILE_MODULES]
    found += [(line, name) for line, name in _imports(source) if name in calls]
    found += [(line, name) for line, name in _uses(source) if name in calls]
    return [
        f"{source.path}:{line}: {name}: files are touched only in {' and '.join(FILE_HOMES)}"
        for line, name in found
    ]


def _is_chance(name: str) -> bool:
    """Whether a dotted name draws from a generator that nobody passed in."""
    return name in CHANCE or (name.startswith("random.") and name not in RANDOM_TYPE)


def shell_violations(source: Source) -> list[str]:
    """Clock, chance, threads, sockets or logging inside the sans-IO core."""
    granted = set(SHELLS.get(source.path, ("", ""))[0].split())
    if source.folder not in LAYERS or "*" in granted:
        return []
    refused = SHELL_MODULES - granted - ({"logging"} if source.folder in LOGGING_LAYERS else set())
    found = [(line, name) for line, name in _imports(source) if name.split(".")[0] in refused]
    found += [(line, name) for line, name in _imports(source) if _is_chance(name)]
    found += [(line, name) for line, name in _uses(source) if _is_chance(name) or name in CLOCKS]
    return [
        f"{source.path}:{line}: {name}: clock, chance and threads enter the core as arguments"
        for line, name in found
    ]


def forbidden_violations(source: Source) -> list[str]:
    """Ways for data to become code."""
    found = [
        (line, name) for line, name in _imports(source) if name.split(".")[0] in FORBIDDEN_MODULES
    ]
    by_name = source.path.startswith(IMPORTS_BY_NAME)
    calls = FORBIDDEN_CALLS - ({"importlib.import_module"} if by_name else set())
    found += [(line, name) for line, name in _uses(source) if name in calls]
    return [f"{source.path}:{line}: {name}: data never becomes code" for line, name in found]


RULES = (
    layer_violations,
    library_violations,
    file_violations,
    shell_violations,
    forbidden_violations,
)
