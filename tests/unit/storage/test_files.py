"""The rule for names, and that the three implementations are what the protocols ask for."""

from pathlib import Path

import pytest

from ringlog.storage.files import MAX_NAME_BYTES, Directory, DirectoryLock, File, check_name
from tests.unit.storage.file_seams import SEAMS


@pytest.mark.parametrize("name", ["a", "orders-0", "...", ".hidden", "a b", "é", "x" * 255])
def test_a_component_is_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/b", "../a", "a/", "a\0", "\0"])
def test_what_leads_elsewhere_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a directory entry"):
        check_name(name)


def test_the_length_is_counted_in_bytes() -> None:
    assert check_name("é" * (MAX_NAME_BYTES // 2))
    with pytest.raises(ValueError, match="256 bytes is over 255"):
        check_name("é" * 128)


@pytest.mark.parametrize("kind", SEAMS)
def test_each_implementation_has_every_call_of_the_protocols(kind: str, tmp_path: Path) -> None:
    root = SEAMS[kind](tmp_path)
    root.create()
    for protocol, made in (
        (Directory, root),
        (File, root.open("a", create=True)),
        (DirectoryLock, root.lock()),
    ):
        calls = {name for name in vars(protocol) if not name.startswith("_")}
        assert calls <= set(dir(made))
