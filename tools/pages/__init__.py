"""pages: the pages under docs/ that are made from the code, so that they cannot drift from it.

`tools/generate_pages` writes them; a test fails when one is stale.
"""
