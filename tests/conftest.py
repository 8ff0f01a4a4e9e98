"""Fixtures for all tests, and the order in which they run where several processes share them (`make test`)."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

pytest_plugins = ["tests.support.stack"]

APART = {
    "e2e/test_rules.py",
    "e2e/test_machines.py",
    "e2e/test_run.py",
    "e2e/test_clients.py",
    "e2e/test_wrong_files.py",
}
"""Whole jobs take longest, and wait for machines more than they compute: two processes share them, each with a stack
of its own, and beside them everything else is done."""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """A folder is one unit of work: its tests share a stack or an emulator, which is started once.

    A wrapper, because xdist's own hook, which reads the marks, wants to be the first.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_unit(item)))
    items.sort(key=lambda item: not _unit(item).startswith("e2e"))
    return (yield)


def _unit(item: pytest.Item) -> str:
    path = item.path.relative_to(Path(__file__).parent)
    return "e2e apart" if path.as_posix() in APART else path.parts[0]
