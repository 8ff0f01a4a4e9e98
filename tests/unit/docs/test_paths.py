"""Every file, folder and heading that a page links to or mentions exists, and the site lists every
page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.pages import read_page

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "infra", "examples", "shared")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))]
)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)\)")
HEADING = re.compile(r"(?m)^#{1,6} (.*)$")
PAGE_IN_SOURCE = re.compile(r"(?<![\w/])(docs/[\w/-]+\.md)(?:#([\w-]+))?")
BLOCK = re.compile(r"(?ms)^ *```.*?^ *```$")
MENTION = re.compile(
    r"`((?:bench|docs|emulators|examples|functions|infra|requirements|shared|smoke|tests)/[\w./-]*)"
)
UPPER_CASE_PART = re.compile(r"(?:^|/)[A-Z]{3,}(?:[./]|$)")
"""A placeholder such as `functions/NAME.py`. README.md and similar names are written as links."""


@cache
def text_of(path: Path) -> str:
    """Return the text of a source, or that of a page as the site has it."""
    return read_page(path) if path.suffix == ".md" else path.read_text(encoding="utf-8")


@cache
def links(page: Path) -> list[tuple[str, str]]:
    """Return the links within the repository, as path (empty: the page itself) and anchor (empty:
    none).
    """
    return LINK.findall(BLOCK.sub("", text_of(page)))


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings that repository browsers and the site's generator give
    alike.
    """
    headings = [
        re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text)
        for text in HEADING.findall(BLOCK.sub("", text_of(page)))
    ]
    plain = [re.sub(r"[^\w\- ]", "", text.strip()).lower() for text in headings]
    count = Counter(plain)
    return {
        text.replace(" ", "-")
        for text in plain
        if count[text] == 1 and not re.search(r"[- ]{2}", text)
    }


def test_links_of_pages_lead_to_files() -> None:
    """No link leads to a folder: a web server may have no page for it."""
    targets = [(page, path) for page in PAGES for path, _ in links(page) if path]
    assert [(str(page), path) for page, path in targets if not (page.parent / path).is_file()] == []


def test_anchors_of_links_are_headings() -> None:
    targets = [
        (page, (page.parent / path).resolve() if path else page, anchor)
        for page in PAGES
        for path, anchor in links(page)
        if anchor
    ]
    assert [
        (page.name, target.name, anchor)
        for page, target, anchor in targets
        if anchor not in anchors(target)
    ] == []


def test_lists_are_lists_in_every_dialect() -> None:
    """The generator of the site needs an empty line before a list, and four spaces before what
    belongs to an entry.
    """
    for page in PAGES:
        text = BLOCK.sub("", text_of(page))
        after_paragraph = re.findall(r"(?m)^(?!\s*-|\s*\d+\.|  |#)\S.*\n((?:-|1\.) .*)", text)
        blocks = re.findall(r"(?m)^( {1,3}```.*)", text_of(page))
        continued = re.findall(r"(?m)^\n( {1,3}\S.*)", text)
        assert after_paragraph + blocks + continued == [], page


def test_sources_name_existing_pages_and_headings() -> None:
    folders = ("bench", "emulators", "functions", "infra", "shared", "smoke", "tests")
    sources = [
        path
        for name in folders
        for path in (ROOT / name).rglob("*")
        if path.suffix in {".py", ".tf", ".yaml"}
    ]
    named = {found for path in sources for found in PAGE_IN_SOURCE.findall(text_of(path))}
    named.remove(("docs/semantics.md", ""))  # a page of gcsfuse
    assert [page for page, _ in named if not (ROOT / page).is_file()] == []
    assert [
        (page, anchor) for page, anchor in named if anchor and anchor not in anchors(ROOT / page)
    ] == []


def site_pages(entries: list[Any]) -> Iterator[Path]:
    """Yield the pages in the navigation of the site."""
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from site_pages(value) if isinstance(value, list) else [ROOT / value]


def test_site_lists_every_page_once() -> None:
    """The index of the decisions lists the records."""
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    records = set((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert sorted(site_pages(configuration["nav"])) == sorted(set(PAGES) - records)


def test_pages_mention_existing_paths() -> None:
    mentions = [
        (page.name, mention) for page in PAGES for mention in MENTION.findall(text_of(page))
    ]
    paths = {
        (page, mention.rstrip("./"))
        for page, mention in mentions
        if not UPPER_CASE_PART.search(mention)
    }
    assert sorted((page, path) for page, path in paths if not (ROOT / path).exists()) == []


def test_glossary_names_existing_code() -> None:
    folders = ("shared", "functions", "emulators", "infra", "smoke")
    files = [
        path
        for name in folders
        for pattern in ("*.py", "*.tf")
        for path in (ROOT / name).rglob(pattern)
    ]
    words = {word for path in files for word in re.findall(r"\w+", text_of(path))}
    rows = re.findall(
        r"^\|.*\| (.*?) \|$",
        (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    names = {name for row in rows for name in re.findall(r"`([A-Za-z_][\w.]*)", row)}
    assert names
    assert sorted(name for name in names if not words.issuperset(name.split("."))) == []
