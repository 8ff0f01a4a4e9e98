"""The search of the site finds the pages that answer users' questions."""

from __future__ import annotations

import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
import yaml
from playwright.sync_api import Browser, expect

from tests.support.pages import read_page, search_index
from tests.support.serving import serving
from tests.unit.docs.test_paths import ROOT
from tests.unit.docs.test_questions import QUESTIONS

SEARCHES: Final = yaml.safe_load(
    (ROOT / "tests" / "unit" / "docs" / "searches.yaml").read_text(encoding="utf-8")
)
FIRST: Final = 3
"""Number of results that a user looks at."""
MISSED_SHARE_MAX: Final = 0.1
"""Share of the searches that may have no right page among them."""
SCRIPT: Final = (ROOT / search_index.ASSETS / "search.js").read_text(encoding="utf-8")
RANKS: Final = """([index, queries]) => {
  const prepared = prepare(index);
  return queries.map((query) => rank(prepared, query).map((found) => index.pages[found.page]));
}"""
"""Finds the pages of each query with the functions of the site's script."""


@pytest.fixture(scope="module")
def results(browser: Browser) -> dict[str, list[dict[str, Any]]]:
    """Return the pages that each query finds, best first."""
    queries = [row["search"] for row in SEARCHES] + [row.search for row in QUESTIONS]
    page = browser.new_page()
    page.set_content("<p>")
    page.add_script_tag(content=SCRIPT)
    ranked = page.evaluate(RANKS, [search_index.index_of(ROOT, read_page), queries])
    page.close()
    return dict(zip(queries, ranked, strict=True))


def rank_of(found: list[dict[str, Any]], names: list[str]) -> int | None:
    """Return the position in `found` of the first of these pages, from 1; None: it has none of
    them.

    `names` are pages of docs/ without their extension, or paths of Markdown files.
    """
    paths = [name if name.endswith(".md") else f"docs/{name}.md" for name in names]
    locations = {search_index.location_of(path) for path in paths}
    return next((at for at, page in enumerate(found, 1) if page["location"] in locations), None)


def test_search_answers_what_users_type(results: dict[str, list[dict[str, Any]]]) -> None:
    ranks = {row["search"]: rank_of(results[row["search"]], row["pages"]) for row in SEARCHES}
    for query, rank in ranks.items():
        print(f"{rank or '-':>3}  {query}")
    missed = [query for query, rank in ranks.items() if rank is None or rank > FIRST]
    assert len(missed) <= len(ranks) * MISSED_SHARE_MAX, missed


def test_search_finds_the_page_of_each_question(results: dict[str, list[dict[str, Any]]]) -> None:
    missed = [
        question.search
        for question in QUESTIONS
        if rank_of(results[question.search], [str(question.page.relative_to(ROOT))]) is None
    ]
    assert missed == []


def test_pages_for_users_come_before_internals(results: dict[str, list[dict[str, Any]]]) -> None:
    """A page is internal if it is for those who change Trainmaster, such as a decision record."""
    first = [results[row["search"]][0] for row in SEARCHES]
    assert [page["location"] for page in first if page["internal"]] == []


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.mark.timeout(600)
@pytest.mark.heavy(
    fact="the field in the site's header finds a section, and its link leads there",
    quick="the ranking in the same module",
)
def test_field_of_the_site_leads_to_a_section(browser: Browser) -> None:
    subprocess.run(["make", "docs"], cwd=ROOT, check=True, capture_output=True)
    site = partial(Handler, directory=ROOT / "build" / "site")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), site)) as origin:
        page = browser.new_page()
        page.goto(f"{origin}/docs/cost.html")
        page.get_by_role("searchbox").fill("jobs without a package")
        page.get_by_role("searchbox").fill("apt packages")
        page.get_by_role("list", name="Results").get_by_role("link").first.click()
        expect(
            page.get_by_role("heading", name="Setup commands and apt packages")
        ).to_be_in_viewport()
        page.close()
