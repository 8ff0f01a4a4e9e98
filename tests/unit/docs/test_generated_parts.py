"""`make docs` completes each placeholder of the pages once."""

from __future__ import annotations

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


def test_pages_of_a_folder_are_completed_in_place(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "runtimes.md"
    page.parent.mkdir()
    page.write_text("# Runtimes\n\n<!-- make docs: runtimes -->\n<!-- end -->\n", encoding="utf-8")
    main(tmp_path)
    assert "| `2.21`, the default |" in page.read_text(encoding="utf-8")
