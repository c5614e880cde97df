"""The ready file: whole, replaced, withdrawn."""

from pathlib import Path

import pytest

from ringlog.broker.ready_file import ReadyFile


def test_it_holds_the_address_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    ready = ReadyFile(str(path))
    ready.withdraw()
    (tmp_path / "ready.tmp").write_text("left by a crash, and longer than an address")
    ready.announce("127.0.0.1:12345")
    assert path.read_text(encoding="utf-8") == "127.0.0.1:12345\n"
    ready.announce("127.0.0.1:1")
    assert path.read_text(encoding="utf-8") == "127.0.0.1:1\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["ready"]
    ready.withdraw()
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ReadyFile("ready").announce("x")
    assert (tmp_path / "ready").exists()


def test_without_a_path_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ready = ReadyFile("")
    ready.announce("x")
    ready.withdraw()
    assert list(tmp_path.iterdir()) == []
