"""docs/decisions/README.md lists every record once, with the record's own title."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[3] / "docs" / "decisions"
ENTRY: Final = re.compile(r"(?m)^- \[(?P<title>.+)\]\((?P<file>[^)]+)\)$")


def test_index_lists_every_record_once_with_its_title() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = sorted((entry["file"], entry["title"]) for entry in ENTRY.finditer(index))
    assert listed == sorted((record.name, title_of(record)) for record in FOLDER.glob("[0-9]*.md"))


def title_of(record: Path) -> str:
    return record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
