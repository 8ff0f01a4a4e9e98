"""docs/decisions/README.md lists every decision once: records by title, sections by number.

A record is a file of its own for one decision. The other decisions are sections of five pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[3] / "docs" / "decisions"
INDEX: Final = (FOLDER / "README.md").read_text(encoding="utf-8")
RECORD: Final = re.compile(r"(?m)^- \[(?P<title>.+)\]\((?P<file>[^)]+)\)$")
SECTION: Final = re.compile(r"\[(\d+)\]\(([\w-]+\.md)#decision-(\d+)\)")
"""A link to a section: its text is the number, its address the page and the same number."""
HEADING: Final = re.compile(r"(?m)^### Decision (\d+)$")


def test_index_lists_every_record_once_with_its_title() -> None:
    listed = sorted((entry["file"], entry["title"]) for entry in RECORD.finditer(INDEX))
    assert listed == sorted((record.name, title_of(record)) for record in FOLDER.glob("[0-9]*.md"))


def test_index_lists_every_section_of_the_five_pages_once() -> None:
    pages = [page for page in FOLDER.glob("[a-z]*.md") if page.name != "README.md"]
    sections = [
        (number, page.name, number)
        for page in pages
        for number in HEADING.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(pages) == 5
    assert sorted(SECTION.findall(INDEX)) == sorted(sections)


def test_no_decision_is_both_a_record_and_a_section() -> None:
    records = {int(record.name[:4]) for record in FOLDER.glob("[0-9]*.md")}
    assert records.isdisjoint(int(number) for number, _, _ in SECTION.findall(INDEX))


def title_of(record: Path) -> str:
    return record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
