"""Real files go through `ringlog produce` and come out of `ringlog consume` as they were.

The files are `*.log` of the folder in RINGLOG_TEST_LOGS; without it, large sources of the
standard library.
"""

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cli_process import CliBroker, ringlog

FOLDER = os.environ.get("RINGLOG_TEST_LOGS")
STANDARD_LIBRARY = Path(os.__file__).parent


def real_files() -> list[Path]:
    """The files to send; never none."""
    if FOLDER:
        return sorted(Path(FOLDER).glob("*.log"))
    sources = sorted(STANDARD_LIBRARY.glob("*.py"), key=lambda path: path.stat().st_size)
    return sources[-4:]


def as_it_comes_back(content: bytes) -> bytes:
    """What a consumer writes of a file: the file, its last line ended."""
    return content if content.endswith(b"\n") or not content else content + b"\n"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[CliBroker]:
    with CliBroker(tmp_path) as running:
        yield running


def test_there_are_files_to_send() -> None:
    assert real_files(), f"no *.log in {FOLDER}"
    assert sum(path.stat().st_size for path in real_files()) > 100_000


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_files_come_back_as_they_were_also_after_kill_9(
    broker: CliBroker, compression: str
) -> None:
    files = {f"file-{number}": path for number, path in enumerate(real_files())}
    for topic, path in files.items():
        broker.output_of("topic", "create", topic)
        broker.output_of("produce", topic, "--file", path, "--compression", compression)
        assert broker.everything_in(topic) == as_it_comes_back(path.read_bytes())
    broker.kill()
    broker.start()
    for topic, path in files.items():
        assert broker.everything_in(topic) == as_it_comes_back(path.read_bytes())
    broker.stop()
    dumped = ringlog("log", "dump", broker.data, "--json")
    assert {json.loads(line)["codec"] for line in dumped.stdout.splitlines()} == {compression}
    assert ringlog("log", "verify", broker.data).returncode == 0


def binary_content() -> bytes:
    """All byte values, empty lines, two runs of 3 MiB without a line end, no line end behind."""
    rng = random.Random(2)
    table = bytes(value for value in range(256) if value != 10)
    run = rng.randbytes(3 << 20).translate(bytes.maketrans(b"\n", b"\0"))
    return b"".join(
        [
            bytes(range(256)),
            b"\n\n\n\r\n\0\n",
            run,
            b"\n",
            *(rng.randbytes(rng.randrange(2000)) for _ in range(1000)),
            b"\n",
            table * ((3 << 20) // len(table)),
        ]
    )


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_binary_file_comes_back_as_it_was(
    broker: CliBroker, tmp_path: Path, compression: str
) -> None:
    content = binary_content()
    path = tmp_path / "binary"
    path.write_bytes(content)
    broker.output_of("topic", "create", "binary")
    broker.output_of("produce", "binary", "--file", path, "--compression", compression)
    assert broker.everything_in("binary") == content + b"\n"
    broker.kill()
    broker.start()
    assert broker.everything_in("binary") == content + b"\n"


def keyed_lines() -> list[bytes]:
    """Lines of all files in order, each with one of 97 keys in front."""
    lines = [line for path in real_files() for line in path.read_bytes().split(b"\n")]
    return [b"key %d:%b" % (number * 31 % 97, line) for number, line in enumerate(lines)]


def by_key(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for line in lines:
        found[line.partition(b":")[0]].append(line)
    return found


def test_lines_with_keys_over_16_partitions_are_equal_and_in_order_per_key(
    broker: CliBroker,
) -> None:
    lines = keyed_lines()
    content = b"".join(line + b"\n" for line in lines)
    broker.output_of("topic", "create", "keyed", "--partitions", "16")
    broker.output_of("produce", "keyed", "--key-separator", ":", stdin=content)
    for _ in range(2):
        found = broker.everything_in("keyed", "--print-key", "--key-separator", ":")
        came = found.removesuffix(b"\n").split(b"\n")
        assert Counter(came) == Counter(lines)
        assert by_key(came) == by_key(lines)
        broker.kill()
        broker.start()
    used: set[bytes] = set()
    for partition in range(16):
        option = ("--partition", str(partition), "--print-key", "--key-separator", ":")
        found = broker.everything_in("keyed", *option)
        keys = set(by_key(found.removesuffix(b"\n").split(b"\n")))
        assert not keys & used, "a key is in two partitions"
        used |= keys
    assert len(used) == 97
