"""B10: `PRODUCE topic message` is stored, then answered with `ACK`.

Ours: stored means flushed. The flush is seen before the answer, and what was answered is there
after a kill.
"""

import shutil
from pathlib import Path

import pytest

from ringlog.storage.real_files import RealFile
from ringlog.storage.record_codec import encode_batch
from tests.cluster.core_client import CoreClient, records_in
from tests.features.broker_on_loopback import broker_on_loopback


def test_b10_the_answer_comes_after_the_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    sync = RealFile.sync

    def watched(file: RealFile) -> None:
        sync(file)
        flushed.append(file.name)

    monkeypatch.setattr(RealFile, "sync", watched)
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        client.create_topic("t")
        for number in range(20):
            flushed.clear()
            assert client.produce("t", encode_batch([b"message"])) == number
            assert f"t-0/{0:020d}.log" in flushed


def test_b10_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    with broker_on_loopback(tmp_path) as endpoint, CoreClient(str(endpoint)) as client:
        client.create_topic("t")
        client.produce("t", encode_batch([b"message"], keys=[b"key"]))
        # The files as they are now, before any graceful stop: what a kill leaves.
        shutil.copytree(tmp_path / "data", tmp_path / "killed" / "data")
    with broker_on_loopback(tmp_path / "killed") as endpoint, CoreClient(str(endpoint)) as client:
        (record,) = records_in(client.fetch("t", 0)[1])
        assert (record.offset, record.key, record.value) == (0, b"key", b"message")
