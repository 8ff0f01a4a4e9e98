"""Every file and folder that a page mentions exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "infra", "examples", "shared")
PAGES = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))])
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
MENTION = re.compile(r"`((?:bench|docs|emulators|examples|functions|infra|requirements|shared|smoke|tests)/[\w./-]*)")
UPPER_CASE_PART = re.compile(r"(?:^|/)[A-Z]{3,}(?:[./]|$)")
"""A placeholder such as `functions/NAME.py`. README.md and similar names are written as links."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_links_lead_to_files(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_mentions_existing_paths(page: Path) -> None:
    mentions = (mention for mention in MENTION.findall(page.read_text(encoding="utf-8")))
    paths = (mention.rstrip("./") for mention in mentions if not UPPER_CASE_PART.search(mention))
    assert sorted({path for path in paths if not (ROOT / path).exists()}) == []


def test_glossary_names_existing_code() -> None:
    folders = ("shared", "functions", "emulators", "infra", "smoke")
    files = [path for name in folders for pattern in ("*.py", "*.tf") for path in (ROOT / name).rglob(pattern)]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    rows = re.findall(r"^\|.*\| (.*?) \|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`([A-Za-z_][\w.]*)", row)}
    assert names
    assert sorted(name for name in names if not words.issuperset(name.split("."))) == []
