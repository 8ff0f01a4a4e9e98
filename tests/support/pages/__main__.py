"""`python -m tests.support.pages FOLDER` completes the pages below a folder, in place.

`make docs` calls it for its copy of the pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.pages import PLACEHOLDER, complete


def main(folder: Path) -> None:
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if PLACEHOLDER.search(text):
            path.write_text(complete(text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
