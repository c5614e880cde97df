"""The pages under docs/ that are made from the code are those that the code makes now."""

import pytest

from ringlog.tools.pages.catalogue import pages
from tests.repo.source_tree import ROOT, assert_none


@pytest.mark.parametrize("name", pages(ROOT))
def test_the_page_is_fresh(name: str) -> None:
    path = ROOT / name
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    stale = [] if written == pages(ROOT)[name] else [f"{name} is stale: run tools/generate_pages"]
    assert_none(stale)
