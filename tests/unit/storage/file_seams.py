"""The three implementations of the file seam, as the contract tests take them."""

from collections.abc import Callable
from pathlib import Path

from ringlog.storage.files import Directory
from ringlog.storage.memory_files import MemoryDirectory
from ringlog.storage.real_files import RealDirectory
from ringlog.storage.simulated_files import SimulatedDisk

SEAMS: dict[str, Callable[[Path], Directory]] = {
    "real": lambda path: RealDirectory(path / "data", handle_limit=3),
    "memory": lambda path: MemoryDirectory(),
    "simulated": lambda path: SimulatedDisk().directory(),
}
