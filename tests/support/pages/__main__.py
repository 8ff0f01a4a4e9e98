"""`python -m tests.support.pages FOLDER` completes the pages below a folder, in place.

It also writes the index of the search.

`make docs` calls it for its copy of the pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.pages import PLACEHOLDER, complete, search_index


def main(folder: Path) -> None:
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if PLACEHOLDER.search(text):
            path.write_text(complete(text), encoding="utf-8")
    index = folder / search_index.ASSETS / "search-index.js"
    index.write_text(search_index.script_of(folder), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
