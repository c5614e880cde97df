"""The raw loop: what this machine can do with the same records and nothing else.

Owns the yardstick of `ringlog bench`: encode, ROUTER/DEALER, CRC, write and fdatasync before
each ack. Must not know any part of ringlog but the record codec; at most 80 lines. What it leaves
out (topics, deliveries, retries, deadlines, recovery) is what the ratio to it prices.

Invariants:
    RL1  A batch is acknowledged only after the fdatasync that covers it.
    RL2  Batches that wait together share one write and one fdatasync, as in the broker.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from ringlog.storage.record_batch import assign, check_batch
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.types import LeaderEpoch, Offset

IN_FLIGHT = 16


def serve(address: str, path: str, flush: bool) -> None:  # noqa: FBT001  # a process target
    """Answer batches from `address` until an empty frame comes; write them to `path`."""
    router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    router.connect(address)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    offset = 0
    while True:
        group = [router.recv_multipart(copy=False)]
        while len(group) < IN_FLIGHT and router.poll(0):
            group.append(router.recv_multipart(copy=False))
        parts: list[bytes | memoryview] = []
        for message in group:
            payload = message[1].buffer
            if not len(payload):
                return os.close(file)
            header = check_batch(payload, max_bytes=1 << 26)
            parts += (assign(Offset(offset), LeaderEpoch(1), len(payload)), payload[16:])
            offset += header.record_count
        os.writev(file, parts)
        if flush:
            os.fdatasync(file)
        for message in group:
            router.send_multipart((message[0], offset.to_bytes(8, "big")))


@contextmanager
def running(folder: Path, *, flush: bool = True) -> Iterator[zmq.Socket[bytes]]:
    """Start the server in a process of its own; yield a loopback TCP socket to it."""
    dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    dealer.setsockopt(zmq.RCVTIMEO, 60_000)  # a server that died must not hang the run
    port = dealer.bind_to_random_port("tcp://127.0.0.1")
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(f"tcp://127.0.0.1:{port}", f"{folder}/raw.log", flush), daemon=True
    )
    server.start()
    yield dealer
    dealer.send(b"")
    server.join(10)
    dealer.close(0)


def produce(dealer: zmq.Socket[bytes], values: list[bytes], batches: int) -> float:
    """Send `values` as one batch, `batches` times over, each acknowledged; return seconds."""
    waiting, start = 0, time.perf_counter()
    for _ in range(batches):
        if waiting == IN_FLIGHT:
            dealer.recv()
            waiting -= 1
        dealer.send(encode_batch(values, timestamps=time.time_ns() // 1_000_000), copy=False)
        waiting += 1
    for _ in range(waiting):
        dealer.recv()
    return time.perf_counter() - start
