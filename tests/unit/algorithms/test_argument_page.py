"""docs/algorithms.md has the arguments that the algorithms have."""

from __future__ import annotations

from pathlib import Path

from tests.support.pages import read_page
from trainmaster.algorithms.arguments.tables import TABLES
from trainmaster.jobspec.catalog.algorithms import ALGORITHMS, NOT_AVAILABLE

PAGE = read_page(Path(__file__).parents[3] / "docs" / "algorithms.md")


def test_page_has_the_arguments_of_every_algorithm() -> None:
    for table in TABLES.values():
        assert not [item.name for item in table.arguments if f"| `{item.name}` |" not in PAGE]


def test_page_names_every_algorithm_and_image() -> None:
    names = {
        *ALGORITHMS,
        *NOT_AVAILABLE,
        *(image for item in ALGORITHMS.values() for image in item.images),
    }

    assert not [name for name in names if f"`{name}`" not in PAGE]
