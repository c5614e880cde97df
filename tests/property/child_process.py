"""Feed hostile inputs to a decoder in a child process with a hard limit on memory.

A target is a module with

    REFUSALS                 exception types that mean "refused", as they should be
    make(rng, number)        one input: bytes
    feed(data)               decode it

The child gives itself `room_mib` of address space beyond what it has after its imports, and
each input a few seconds. Anything but an answer or a refusal (another exception, MemoryError,
a crash, a hang) fails the parent with the input in hex and the command that repeats it.

    python -m tests.property.child_process tests.property.fuzz_record_codec 1000 7 192
"""

import importlib
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
from types import FrameType

import msgspec

INPUT_SECONDS = 10
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ROOT = pathlib.Path(__file__).resolve().parents[2]


class Report(msgspec.Struct):
    """What became of the inputs."""

    accepted: int
    refused: int
    peak_mib: int


def run_in_child(
    target: str, *, count: int, seed: int, room_mib: int, timeout_seconds: int = 100
) -> Report:
    """Run `count` inputs of `target` in a limited child; AssertionError unless all went well."""
    command = [
        sys.executable, "-m", "tests.property.child_process",
        target, str(count), str(seed), str(room_mib),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=timeout_seconds, check=False
    )
    text = f"{' '.join(command[1:])} ended with {done.returncode}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, text
    return msgspec.json.decode(done.stdout, type=Report)


def _on_alarm(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"an input took over {INPUT_SECONDS} s")


def _limit_address_space(room_mib: int) -> None:
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit_bytes = pages * _PAGE_BYTES + room_mib * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def main(target_name: str, count: int, seed: int, room_mib: int) -> int:
    """The child's side: print a report, or the input that broke the decoder."""
    target = importlib.import_module(target_name)
    rng = random.Random(seed)
    signal.signal(signal.SIGALRM, _on_alarm)
    _limit_address_space(room_mib)
    refused = 0
    for number in range(count):
        data = target.make(rng, number)
        signal.alarm(INPUT_SECONDS)
        try:
            target.feed(data)
        except target.REFUSALS:
            refused += 1
        except BaseException:
            sys.stderr.write(f"input {number}: {data[:3000].hex()}\n")
            raise
        signal.alarm(0)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    report = Report(accepted=count - refused, refused=refused, peak_mib=peak_mib)
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *(int(word) for word in sys.argv[2:])))
