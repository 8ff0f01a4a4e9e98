"""docs/algorithms.md has the arguments that the algorithms have."""

from __future__ import annotations

from tests.unit.algorithms.argument_page import PAGE, sections, written
from trainmaster.algorithms.arguments.tables import TABLES
from trainmaster.jobspec.catalog.algorithms import ALGORITHMS, NOT_AVAILABLE


def test_page_has_the_tables_of_all_arguments() -> None:
    """If it fails, run `python -m tests.unit.algorithms.argument_page`."""
    assert written() == sections()
    for table in TABLES.values():
        assert not [item.name for item in table.arguments if f"| `{item.name}` |" not in written()]


def test_page_names_every_algorithm_and_image() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = {
        *ALGORITHMS,
        *NOT_AVAILABLE,
        *(image for item in ALGORITHMS.values() for image in item.images),
    }

    assert not [name for name in names if f"`{name}`" not in text]
