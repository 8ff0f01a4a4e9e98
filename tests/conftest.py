"""Fixtures for all tests, and the order in which they run where several processes share them (`make test`)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.support.stack"]

FIRST = ("e2e",)
"""What waits for machines more than it computes, and takes longest: beside it everything else is done."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A folder is one unit of work: its tests share a stack or an emulator, which is started once."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_folder(item)))
    items.sort(key=lambda item: _folder(item) not in FIRST)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]
