"""The search of the built site finds the page that answers each question of users."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.unit.docs.test_paths import ROOT
from tests.unit.docs.test_questions import QUESTIONS, RESULTS

pytestmark = [
    pytest.mark.heavy(
        fact="the site's own search finds the answers to users' questions",
        quick="`unit/docs/test_questions.py`",
    ),
    pytest.mark.timeout(600),
]

LINKS = """() => {
  const host = [...document.querySelectorAll("*")].find((element) => element.shadowRoot);
  return [...host.shadowRoot.querySelectorAll("ol[role=listbox] a")].map((link) => link.href);
}"""
"""The addresses of the results. The search is in a shadow tree."""
SETTLED_MS = 700
"""The search runs in a worker, and shows no sign that it is done."""


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def site_path(page: Path) -> str:
    """Return the path of a page in the site."""
    path = str(page.relative_to(ROOT)).removesuffix("README.md")
    return f"/{path}index.html" if path.endswith("/") or not path else f"/{path[:-3]}.html"


def test_search_of_the_site_finds_each_answer(browser: Browser) -> None:
    subprocess.run(["make", "docs"], cwd=ROOT, check=True, capture_output=True)
    missed = []
    with served(ROOT / "build" / "site") as origin:
        page = browser.new_page()
        page.goto(f"{origin}/index.html")
        page.get_by_role("button", name="Search").click()
        field = page.get_by_role("combobox", name="Search")
        for question in QUESTIONS:
            field.fill(question.search)
            page.wait_for_timeout(SETTLED_MS)
            found = [link.removeprefix(origin).partition("#")[0] for link in page.evaluate(LINKS)]
            paths = list(dict.fromkeys(path.partition("?")[0] for path in found))
            if site_path(question.page) not in paths[:RESULTS]:
                missed.append((question.ask, question.search, paths))
        page.close()
    assert missed == []
