"""Which tests run in one process, and in which order, when several processes run the suite.

pytest-xdist hands out groups of tests. Each process starts an emulator, a stack or a browser once
for all of its tests, so folders whose tests share one are one group. Elsewhere a group is a module,
so that no process is busy long after the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import PurePosixPath
from typing import Final

import pytest

LONGEST_FIRST: Final = (
    "e2e",
    "integration/containers",
    "integration/browser",
    "contract",
    "integration/stack",
    "integration/cli",
    "infra",
    "integration/compute",
    "integration/api",
    "integration",
    "explorer",
    "fuzz",
)
"""Folders, the longest groups first: they would otherwise run alone at the end."""

BY_MODULE: Final = frozenset({"integration/agent", "sim", "unit"})
"""Folders whose modules share no emulator: each module is a group, and starts after all others."""

TOGETHER: Final = {
    "integration/cli/test_whole_job.py": "e2e/jobs",
    "e2e/faults": "e2e/jobs",
    "e2e/jobs/test_local_run.py": "e2e/jobs/test_local_run.py",
    "contract/store": "contract",
    "integration/cost": "contract",
}
"""Modules and folders that use the emulators of another folder, and belong to its group.

`trainmaster local run` starts a stack of its own.
"""


def mark_groups(items: Iterable[pytest.Item]) -> None:
    """Give each test the marker from which `--dist loadgroup` takes its group."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item.nodeid)))


def sort_by_group(items: list[pytest.Item]) -> None:
    """Sort in place by group, in the order in which processes should take the groups."""
    items.sort(key=lambda item: _place(group_of(item.nodeid)))


def folder_of(nodeid: str) -> str:
    """Return `unit/core` for a test in `tests/unit/core/rules/`."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parent.parts[1:3])


def group_of(nodeid: str) -> str:
    """Return a test's group: a folder such as `infra` or `integration/api`, or a module."""
    return _group_of_module(nodeid.partition("::")[0])


@cache
def _group_of_module(path: str) -> str:
    module = "/".join(PurePosixPath(path).parts[1:])
    folder = folder_of(path)
    if _is_grouped_by_module(module):
        return module
    return TOGETHER.get(module) or TOGETHER.get(folder, folder)


def _is_grouped_by_module(group: str) -> bool:
    return any(group.startswith(f"{folder}/") for folder in BY_MODULE)


@cache
def _place(group: str) -> tuple[int, str]:
    """Return the rank of a group's folder. Modules are sorted by their own name.

    So modules of all folders run side by side: those of the agent wait, the others compute.
    """
    if not _is_grouped_by_module(group):
        for rank, folder in enumerate(LONGEST_FIRST):
            if f"{group}/".startswith(f"{folder}/"):
                return rank, group
    return len(LONGEST_FIRST), PurePosixPath(group).name
