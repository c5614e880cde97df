"""`ringlog bench latency`: a lone `send().result()` beside a raw round trip and a flush.

Owns the method: one record at a time, each waited for; the raw side is the same record through
the raw loop without a flush (round trip, its write to the page cache included) and an fdatasync
of one more such record in this process; all three take turns.
"""

import os
import tempfile
import time
from pathlib import Path

import msgspec

from ringlog.client import Admin, BatchProducer
from ringlog.tools.bench import raw_loop
from ringlog.tools.bench.broker_process import running_broker
from ringlog.tools.bench.spread import Spread, percentile, ratios, spread

TOPIC = "bench"
RESULT_TIMEOUT_S = 30
BLOCK = 100
"""Records of one side before the next has its turn."""


class LatencyFigures(msgspec.Struct):
    """Microseconds; each a spread over blocks of `BLOCK` records."""

    records: int
    p50: Spread
    p99: Spread
    round_trip_p50: Spread
    fdatasync_p50: Spread
    ratio: Spread
    """p50 / (raw round trip p50 + fdatasync p50), block by block."""


def measure(folder: Path | None, *, blocks: int) -> LatencyFigures:
    """Measure `blocks` blocks after one of warm-up."""
    value = b"x" * 100
    rows: list[tuple[float, float, float, float]] = []
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="ringlog-bench-") as name,
        running_broker(Path(name)) as address,
        raw_loop.running(Path(name), flush=False) as socket,
    ):
        with Admin(address) as admin:
            admin.create_topic(TOPIC)
        with BatchProducer(address) as producer:
            for block in range(blocks + 1):
                lone = _lone_sends(producer, value)
                trips = [raw_loop.produce(socket, [value], 1) for _ in range(BLOCK)]
                flushes = _flushes(Path(name) / "flush", value)
                if block:
                    rows.append(
                        (
                            percentile(lone, 0.5) * 1e6,
                            percentile(lone, 0.99) * 1e6,
                            percentile(trips, 0.5) * 1e6,
                            percentile(flushes, 0.5) * 1e6,
                        )
                    )
    p50, p99, trip, flush = ([row[place] for row in rows] for place in range(4))
    floor = [one + other for one, other in zip(trip, flush, strict=True)]
    return LatencyFigures(
        records=blocks * BLOCK,
        p50=spread(p50),
        p99=spread(p99),
        round_trip_p50=spread(trip),
        fdatasync_p50=spread(flush),
        ratio=spread(ratios(p50, floor)),
    )


def _lone_sends(producer: BatchProducer, value: bytes) -> list[float]:
    times = []
    for _ in range(BLOCK):
        start = time.perf_counter()
        producer.send(TOPIC, value).result(RESULT_TIMEOUT_S)
        times.append(time.perf_counter() - start)
    return times


def _flushes(path: Path, value: bytes) -> list[float]:
    times = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(BLOCK):
            os.write(file, value)
            start = time.perf_counter()
            os.fdatasync(file)
            times.append(time.perf_counter() - start)
    finally:
        os.close(file)
    return times
