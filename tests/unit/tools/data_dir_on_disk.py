"""A data directory as a broker leaves it: one partition `orders-0`, or as many as asked for."""

import random
from pathlib import Path

from ringlog.registry.model import Assignment, RegistryState, TopicInfo, TopicState
from ringlog.registry.standalone import FILE_NAME, FORMAT
from ringlog.storage.data_directory import open_data_directory
from ringlog.storage.log_config import LogConfig
from ringlog.storage.real_files import RealDirectory
from ringlog.storage.state_file import write_state
from ringlog.storage.types import BrokerId
from tests.features.partition_on_disk import PartitionOnDisk

SMALL_SEGMENTS = LogConfig(retention_ms=-1, segment_size_bytes=1024)


def identity(data_dir: Path) -> None:
    """Give a directory its `broker.json`."""
    root = RealDirectory(data_dir)
    open_data_directory(root, cluster_id=None, broker_id=BrokerId(0), rng=random.Random(1)).close()


def registry(data_dir: Path, partitions: int = 1, **config: str) -> None:
    """Give a directory a `registry.json` with the topic `orders`."""
    topic = TopicInfo(
        "orders",
        bytes(15) + b"\1",
        TopicState.ONLINE,
        config,
        tuple(Assignment((0,)) for _ in range(partitions)),
        0,
    )
    state = RegistryState(1, {"orders": topic})
    write_state(RealDirectory(data_dir), FILE_NAME, state, format=FORMAT)


def stopped(data_dir: Path, batches: int = 4, *, partitions: int = 1) -> Path:
    """Fill partitions with batches of three records of 200 bytes; gives the first's directory."""
    identity(data_dir)
    for number in range(partitions):
        partition = PartitionOnDisk(data_dir, partition=number, config=SMALL_SEGMENTS)
        for batch in range(batches):
            partition.append([b"%03d" % (batch * 3 + i) + bytes(197) for i in range(3)])
        partition.close()
    registry(data_dir, partitions)
    return data_dir / "orders-0"


def flip(path: Path, position: int) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def contents(data_dir: Path) -> dict[str, bytes]:
    """All files and what is in them, but the lock."""
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in sorted(data_dir.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
