"""`ringlog bench produce`: `BatchProducer` beside the raw loop, in turns.

Owns the method: one partition, values of equal size without key, deliveries created and kept,
everything flushed on the broker before it is acknowledged; both sides write to the same file
system; the sides take turns and the ratio is taken pair by pair.
"""

import tempfile
import time
from pathlib import Path

import msgspec

from ringlog.client import Admin, BatchProducer, Delivery
from ringlog.tools.bench import raw_loop
from ringlog.tools.bench.broker_process import running_broker
from ringlog.tools.bench.spread import Spread, ratios, spread

TOPIC = "bench"
FLUSH_TIMEOUT_S = 120


class ProduceFigures(msgspec.Struct):
    """Rates in records per second."""

    records: int
    value_bytes: int
    batch_records: int
    runs: int
    ringlog: Spread
    raw_loop: Spread
    ratio: Spread
    """ringlog / raw loop, of each pair of runs."""


def measure(
    folder: Path | None, *, records: int, value_bytes: int, batch_records: int, runs: int
) -> ProduceFigures:
    """Run both sides `runs` times in turns, after a warm-up of each."""
    value = b"x" * value_bytes
    batches = max(1, records // batch_records)
    ours: list[float] = []
    raw: list[float] = []
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="ringlog-bench-") as name,
        running_broker(Path(name)) as address,
        raw_loop.running(Path(name)) as socket,
    ):
        with Admin(address) as admin:
            admin.create_topic(TOPIC)
        with BatchProducer(address, batch_size=batch_records) as producer:
            for run in range(runs + 1):
                rate = _send_all(producer, value, batches * batch_records)
                seconds = raw_loop.produce(socket, [value] * batch_records, batches)
                if run:
                    ours.append(rate)
                    raw.append(batches * batch_records / seconds)
    return ProduceFigures(
        records=batches * batch_records,
        value_bytes=value_bytes,
        batch_records=batch_records,
        runs=runs,
        ringlog=spread(ours),
        raw_loop=spread(raw),
        ratio=spread(ratios(ours, raw)),
    )


def _send_all(producer: BatchProducer, value: bytes, records: int) -> float:
    """Send, keep every delivery, wait until all are acknowledged; records per second."""
    kept: list[Delivery] = []
    keep = kept.append
    send = producer.send
    start = time.perf_counter()
    for _ in range(records):
        keep(send(TOPIC, value))
    producer.flush(FLUSH_TIMEOUT_S)
    seconds = time.perf_counter() - start
    for delivery in (kept[0], kept[-1]):
        delivery.result(0)
    return records / seconds
