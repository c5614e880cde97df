"""The first record at or after a time."""

import crc32c
import pytest

from ringlog.storage.errors import DamagedLog
from ringlog.storage.log_config import LogConfig
from ringlog.storage.record_batch import read_header
from ringlog.storage.record_codec import encode_batch
from ringlog.storage.segment import segment_name
from ringlog.storage.simulated_files import SimulatedDisk
from ringlog.storage.types import LeaderEpoch, Offset
from tests.crash.log_harness import NAME, Harness

CONFIG = LogConfig(segment_size_bytes=400, index_interval_bytes=1, retention_ms=-1)


def with_times(*times: int) -> Harness:
    harness = Harness(SimulatedDisk(), CONFIG)
    harness.start()
    for time_ms in times:
        harness.append(1, None, time_ms, 20)
    harness.flush()
    return harness


def look_up(harness: Harness, time_ms: int, end: int | None = None) -> tuple[int, int] | None:
    bound = harness.log.end.offset if end is None else end
    return harness.log.offset_for_timestamp(time_ms, end=Offset(bound))


def test_the_first_record_by_offset_whose_time_is_late_enough() -> None:
    harness = with_times(5, 9, 3, 7, 9, 20, 1, 30, 2, 2, 2)
    assert look_up(harness, 0) == (0, 5)
    assert look_up(harness, 6) == (1, 9)
    assert look_up(harness, 9) == (1, 9)
    assert look_up(harness, 10) == (5, 20)
    assert look_up(harness, 21) == (7, 30)
    assert look_up(harness, 31) is None


def test_only_records_between_log_start_and_end_count() -> None:
    harness = with_times(5, 9, 3, 7, 9, 20)
    harness.move_log_start(Offset(2))
    harness.flush()
    assert look_up(harness, 6) == (3, 7)
    assert look_up(harness, 8, end=4) is None
    assert look_up(harness, 8, end=5) == (4, 9)
    assert look_up(with_times(), 0) is None


def test_the_record_inside_a_batch_is_found() -> None:
    harness = Harness(SimulatedDisk(), CONFIG)
    harness.start()
    harness.append_own()
    payload = encode_batch([b"a", b"b", b"c"], timestamps=[1, 8, 4], compression="lz4")
    harness.log.append(payload, read_header(payload), leader_epoch=LeaderEpoch(1), now_ms=0)
    harness.flush()
    assert look_up(harness, 2) == (1, 8)
    harness.log.move_log_start(Offset(2))
    assert look_up(harness, 2) == (2, 4)


def test_a_header_that_promises_too_much_is_passed_over() -> None:
    harness = Harness(SimulatedDisk(), CONFIG)
    harness.start()
    harness.append_own()
    lying = bytearray(encode_batch([b"a"], timestamps=1))
    lying[35:43] = (500).to_bytes(8, "big")
    lying[17:21] = crc32c.crc32c(bytes(lying[21:])).to_bytes(4, "big")
    header = read_header(lying)
    assert header.max_timestamp == 500
    harness.log.append(bytes(lying), header, leader_epoch=LeaderEpoch(1), now_ms=0)
    harness.flush()
    assert look_up(harness, 100) is None
    honest = encode_batch([b"b"], timestamps=120)
    harness.log.append(honest, read_header(honest), leader_epoch=LeaderEpoch(1), now_ms=0)
    harness.flush()
    assert look_up(harness, 100) == (1, 120)


def test_damage_on_the_way_is_damage() -> None:
    harness = with_times(1, 2, 3)
    harness.disk.damage(f"{NAME}/{segment_name(Offset(0))}", 30, b"\xff")
    with pytest.raises(DamagedLog):
        look_up(harness, 1)


def test_a_batch_that_cannot_be_opened_is_answered_with_its_first_offset() -> None:
    harness = with_times(1, 2)
    payload = bytearray(encode_batch([b"a", b"b"], timestamps=[7, 9]))
    payload[22] |= 4  # zstd, which no reader here has
    payload[17:21] = crc32c.crc32c(payload[21:]).to_bytes(4, "big")
    batch = bytes(payload)
    harness.log.append(batch, read_header(batch), leader_epoch=LeaderEpoch(1), now_ms=0)
    harness.flush()
    assert look_up(harness, 8) == (2, 9)
    harness.move_log_start(Offset(3))
    assert look_up(harness, 8) == (3, 9)
    assert look_up(harness, 10) is None
