"""How a docstring becomes a row of docs/modules.md."""

from pathlib import Path

from ringlog.tools.pages.module_map import invariant_range, module_map, must_not_know

DOCSTRING = """The log of one partition.

Owns offsets. Must not know Raft, `storage.simulated_files`
or threads; `driver` does.

Invariants:
    L1  One.
    L2  Two.

Source: L9  is not one.
"""


def test_what_a_module_must_not_know_ends_with_its_sentence() -> None:
    assert must_not_know(DOCSTRING) == "Raft, `storage.simulated_files` or threads"
    assert must_not_know("Owns names.") == ""


def test_the_range_of_invariants_is_that_of_their_list() -> None:
    assert invariant_range(DOCSTRING) == "L1-L2"
    assert invariant_range("Invariants:\n    L1  One.\n") == "L1"
    assert invariant_range("Owns names. L1  is none.") == ""


def test_a_page_has_a_row_for_each_module_but_not_for_packages(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage/__init__.py").write_text('"""storage: bytes."""\n')
    (tmp_path / "storage/log.py").write_text('"""A | B.\n\nMust not know C."""\n')
    assert r"| `storage/log.py` | A \| B | C |  |" in module_map(tmp_path)
    assert "__init__" not in module_map(tmp_path)
