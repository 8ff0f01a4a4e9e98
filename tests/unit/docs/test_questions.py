"""The questions of questions.yaml are answered where the file says, within two links of the home
page. `integration/browser/test_site_search.py` searches for them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support.pages import read_page
from tests.unit.docs.test_paths import BLOCK, PAGES, ROOT, links

HOME = ROOT / "README.md"
CLICKS_MAX = 2
HEADING = re.compile(r"(?m)^(#{1,6}) (.*)$")


class Question(NamedTuple):
    ask: str
    at: str
    """Page, or PAGE#ANCHOR, of the answer."""
    says: str
    """Words that the answer contains."""
    search: str
    """Words that a user may search for."""

    @property
    def page(self) -> Path:
        return ROOT / self.at.partition("#")[0]

    @property
    def anchor(self) -> str:
        return self.at.partition("#")[2]


class Section(NamedTuple):
    page: Path
    anchor: str
    """Empty for the text before the first heading of level 2."""
    level: int
    text: str


QUESTIONS = [
    Question(**row)
    for row in yaml.safe_load(Path(__file__).with_name("questions.yaml").read_text("utf-8"))
]


@cache
def sections(page: Path) -> list[Section]:
    """Return the parts of a page that begin with its headings."""
    text = BLOCK.sub(lambda block: block[0].replace("\n#", "\n "), read_page(page))
    starts = list(HEADING.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return [
        Section(page, anchor_of(match[2]), len(match[1]), text[match.start() : end])
        for match, end in zip(starts, ends, strict=True)
    ]


def anchor_of(heading: str) -> str:
    plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).strip())
    return plain.lower().replace(" ", "-")


def answer(question: Question) -> str:
    """Return the text of the section with its subsections, or of the page."""
    parts = sections(question.page)
    if not question.anchor:
        return "".join(part.text for part in parts)
    first = next(index for index, part in enumerate(parts) if part.anchor == question.anchor)
    rest = parts[first + 1 :]
    length = next(
        (index for index, part in enumerate(rest) if part.level <= parts[first].level), len(rest)
    )
    return "".join(part.text for part in parts[first : first + 1 + length])


@cache
def clicks() -> dict[Path, int]:
    """Return the number of links from the home page to each page."""
    distance = {HOME: 0}
    queue = [HOME]
    while queue:
        page = queue.pop(0)
        for path, _ in links(page):
            target = (page.parent / path).resolve() if path else page
            if target in PAGES and target not in distance:
                distance[target] = distance[page] + 1
                queue.append(target)
    return distance


@pytest.mark.parametrize("question", QUESTIONS, ids=[row.ask for row in QUESTIONS])
def test_question_is_answered_where_the_file_says(question: Question) -> None:
    assert question.says.lower() in answer(question).lower()


@pytest.mark.parametrize("question", QUESTIONS, ids=[row.ask for row in QUESTIONS])
def test_answer_is_at_most_two_links_away_from_the_home_page(question: Question) -> None:
    assert clicks()[question.page] <= CLICKS_MAX
