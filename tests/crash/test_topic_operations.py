"""Topic operations cut at every call to the disk: a start finishes them or takes them back."""

import contextlib

import pytest

from ringlog.client import messages as m
from ringlog.client.errors import InvalidPartitions, UnknownTopic
from ringlog.registry.model import TopicState
from ringlog.storage.crash_images import CrashMode
from ringlog.storage.simulated_files import SimulatedCrash
from tests.unit.broker.core_bench import Bench, batch

REQUEST_ID = bytes(range(16))
MODES = [CrashMode.LOSE_ALL, CrashMode.KILL, CrashMode.POWER_CUT]


def calls_of(operation: str) -> int:
    """Mutating calls to the disk that an operation makes."""
    bench = _prepared()
    before = bench.disk.call_count
    _run(bench, operation)
    return bench.disk.call_count - before


def is_settled(bench: Bench) -> bool:
    """Whether nothing is left half done, and every partition serves."""
    topics = bench.registry.view().topics.values()
    return (
        all(topic.state is TopicState.ONLINE for topic in topics)
        and not any(partition.creating for topic in topics for partition in topic.partitions)
        and all(slot.failure is None for slot in bench.core.partitions.slots())
        and bench.core.partitions.count() == sum(len(topic.partitions) for topic in topics)
        and not any(name.endswith(".deleted") for name in bench.disk.directory().names())
    )


def _prepared() -> Bench:
    bench = Bench()
    bench.create("other")
    bench.produce(batch(b"kept"), topic="other")
    bench.create("doomed", 2)
    bench.produce(batch(), topic="doomed")
    return bench


def _run(bench: Bench, operation: str) -> None:
    if operation == "create":
        bench.create("t", 2, request_id=REQUEST_ID)
    elif operation == "delete":
        bench.delete("doomed")
    elif operation == "grow":
        body = m.AddPartitionsRequest("other", 3, 1000)
        bench.ask(m.ApiKey.ADD_PARTITIONS, body, m.Done)
    else:
        bench.alter("other", retention_ms="5000")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", ["create", "delete", "grow", "alter"])
def test_a_crash_at_any_call_leaves_what_a_start_can_finish(
    operation: str, mode: CrashMode
) -> None:
    # The modes take turns, so that together they cut at every call.
    for number in range(1 + MODES.index(mode), calls_of(operation) + 1, len(MODES)):
        bench = _prepared()
        bench.disk.crash_at(bench.disk.call_count + number, after=number % 2 == 0)
        with pytest.raises(SimulatedCrash):
            _run(bench, operation)
        after = bench.crashed(mode, seed=number)
        assert after.start_error is None, f"call {number}"
        assert after.fetch(topic="other") == [0]
        assert is_settled(after), f"call {number}"
        # What was asked for can be asked for again, and then holds.
        allowed = (UnknownTopic, InvalidPartitions) if operation in {"delete", "grow"} else ()
        with contextlib.suppress(*allowed):
            _run(after, operation)
        last = after.crashed(seed=number)
        topics = set(last.registry.view().topics)
        expected = {
            "create": {"other", "doomed", "t"},
            "delete": {"other"},
        }.get(operation, {"other", "doomed"})
        assert topics == expected, f"call {number}"
        assert is_settled(last), f"call {number}"
        directories = {
            name.rpartition("-")[0]
            for name in last.disk.directory().names()
            if "-" in name and name != "durable-marks"
        }
        assert directories == expected, f"call {number}"
        if operation == "grow":
            assert last.produce(batch(), topic="other", partition=2) == [0]
