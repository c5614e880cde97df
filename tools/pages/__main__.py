"""Write every generated page; run by `tools/generate_pages`."""

import sys
from pathlib import Path

from ringlog.tools.pages.catalogue import pages


def main(root: Path) -> int:
    """Write the pages below `root`, the clone; says which ones changed."""
    for name, text in pages(root).items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
