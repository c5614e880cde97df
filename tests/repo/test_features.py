"""Each row of docs/features.md has its test in tests/features, and each test has its row."""

import re

from tests.repo.source_tree import ROOT, assert_none, files


def listed_rows() -> set[str]:
    """Rows of the page."""
    text = (ROOT / "docs/features.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| ([A-Z]\d\d) \|", text, re.MULTILINE))


def rows_with_tests() -> set[str]:
    """Rows that a test file, or a test function in one, names."""
    rows = set()
    for name in files():
        if name.startswith("tests/features/test_"):
            rows |= set(re.findall(r"\btest_([a-z]\d\d)_", (ROOT / name).read_text()))
            rows |= set(re.findall(r"/test_([a-z]\d\d)_", name))
    return {row.upper() for row in rows}


def test_each_row_has_a_test_and_each_test_a_row() -> None:
    listed, tested = listed_rows(), rows_with_tests()
    untested = [f"{row} has no test" for row in sorted(listed - tested)]
    unlisted = [f"{row} is not in docs/features.md" for row in sorted(tested - listed)]
    assert_none(untested + unlisted)
