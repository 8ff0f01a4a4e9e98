"""`make docs` completes each placeholder of the pages once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.pages import PARTS, PLACEHOLDER, complete
from tests.support.pages.__main__ import main
from tests.unit.docs.test_paths import PAGES

UNKNOWN = "<!-- make docs: weather -->\nIt rains.\n<!-- end -->\n"


def test_each_part_has_one_place() -> None:
    names = [
        name for page in PAGES for name in PLACEHOLDER.findall(page.read_text(encoding="utf-8"))
    ]
    assert sorted(names) == sorted(PARTS)


@pytest.mark.parametrize("name", PARTS)
def test_part_replaces_its_placeholder_and_nothing_else(name: str) -> None:
    text = f"before\n\n<!-- make docs: {name} -->\nSee the code.\n<!-- end -->\n\nafter\n"
    completed = complete(text)
    assert completed.startswith("before\n\n")
    assert completed.endswith("\n\nafter\n")
    assert "See the code." not in completed
    assert len(completed.splitlines()) > 8


def test_unknown_part_is_an_error() -> None:
    with pytest.raises(KeyError, match="weather"):
        complete(UNKNOWN)


def test_pages_of_a_folder_are_completed_and_indexed(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text("nav: [{Internals: docs/runtimes.md}]", encoding="utf-8")
    assets = tmp_path / "docs" / "assets"
    assets.mkdir(parents=True)
    (assets / "synonyms.yaml").write_text("- [gpu, accelerator]", encoding="utf-8")
    page = tmp_path / "docs" / "runtimes.md"
    page.write_text("# Runtimes\n\n<!-- make docs: runtimes -->\n<!-- end -->\n", encoding="utf-8")
    main(tmp_path)
    assert "| `2.21`, the default |" in page.read_text(encoding="utf-8")
    script = (assets / "search-index.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("window.searchIndex = ").removesuffix(";\n"))
    assert index["pages"] == [
        {"location": "docs/runtimes.html", "title": "Runtimes", "internal": True}
    ]
    assert any("2.21, the default" in text for _, text in index["passages"])
