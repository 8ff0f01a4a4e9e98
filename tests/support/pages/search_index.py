"""The index of the site's search: the passages of all pages, which `search.js` ranks."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ASSETS: Final = "docs/assets"
NAV: Final = "mkdocs.yml"
INTERNALS: Final = "Internals"
"""The part of the navigation whose pages come after those for users."""
_HEADING: Final = re.compile(r"(#{1,6}) (.*)")
_FENCE: Final = re.compile(r" *```")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARK: Final = re.compile(r"<!--.*?-->|[`*]|^ *(?:[-+]|\d+\.) ")
_RULE: Final = re.compile(r"[|\s:-]+")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def index_of(root: Path, read: Callable[[Path], str] = _read) -> dict[str, Any]:
    """Return the index of the pages below a folder that the navigation lists.

    `read`: returns the text of a page as the site has it.
    """
    nav = yaml.safe_load((root / NAV).read_text(encoding="utf-8"))["nav"]
    pages: list[dict[str, Any]] = []
    sections: list[dict[str, Any]] = []
    passages: list[tuple[int, str]] = []
    for name, is_internal in _listed(nav, is_internal=False):
        page = len(pages)
        title = ""
        for level, heading, anchor, texts in _sections(read(root / name)):
            title = title or heading
            is_top = level == 1
            passages += [(len(sections), text) for text in (texts or [heading])]
            sections.append({"page": page, "title": heading, "anchor": "" if is_top else anchor})
        pages.append({"location": location_of(name), "title": title, "internal": is_internal})
    synonyms = yaml.safe_load((root / ASSETS / "synonyms.yaml").read_text(encoding="utf-8"))
    return {"pages": pages, "sections": sections, "passages": passages, "synonyms": synonyms}


def script_of(root: Path) -> str:
    """Return the index as a script, which a page without a web server can load."""
    return f"window.searchIndex = {json.dumps(index_of(root), ensure_ascii=False)};\n"


def location_of(name: str) -> str:
    """Return the address of a page in the site."""
    folder = name.removesuffix("README.md")
    return f"{name.removesuffix('.md')}.html" if folder == name else f"{folder}index.html"


def _listed(nav: object, *, is_internal: bool) -> Iterator[tuple[str, bool]]:
    """Yield the pages of a navigation, and whether each is for those who change Trainmaster."""
    if isinstance(nav, str):
        yield nav, is_internal
    elif isinstance(nav, dict):
        for title, part in nav.items():
            yield from _listed(part, is_internal=is_internal or title == INTERNALS)
    elif isinstance(nav, list):
        for part in nav:
            yield from _listed(part, is_internal=is_internal)


def _sections(text: str) -> Iterator[tuple[int, str, str, list[str]]]:
    """Yield level, heading, anchor and passages of each section of a page."""
    used: Counter[str] = Counter()
    current: tuple[int, str, str] | None = None
    lines: list[str] = []
    in_block = False
    for line in text.splitlines():
        in_block ^= bool(_FENCE.match(line))
        heading = None if in_block else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        if current:
            yield (*current, list(_passages(lines)))
        plain = _plain(heading[2])
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        used[anchor] += 1
        current = (
            len(heading[1]),
            plain,
            anchor if used[anchor] == 1 else f"{anchor}_{used[anchor] - 1}",
        )
        lines = []
    if current:
        yield (*current, list(_passages(lines)))


def _passages(lines: list[str]) -> Iterator[str]:
    """Yield paragraphs, items of lists, rows of tables and blocks as plain text."""
    parts: list[str] = []
    for line in [*lines, ""]:
        begins_part = bool(re.match(r" *(?:\||[-*+] |\d+\. |```)", line))
        if parts and (begins_part or not line.strip()):
            text = _plain(" ".join(parts))
            if text and not _RULE.fullmatch(text):
                yield text
            parts = []
        if line.strip() and not _FENCE.match(line) and not _RULE.fullmatch(line):
            parts.append(line)


def _plain(text: str) -> str:
    without_marks = _MARK.sub("", _LINK.sub(r"\1", text)).replace("|", " ")
    return html.unescape(re.sub(r"\s+", " ", without_marks)).strip()
