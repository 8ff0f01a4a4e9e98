"""What is scheduled as one, and in which order, when several processes run the tests.

Each process starts an emulator, a stack or a browser once for all of its tests, so folders whose
tests share one are one unit of work. Elsewhere a unit is a module, so that no process is busy long
after the others. The longest units start first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Final

import pytest

ORDER: Final = (
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
"""Folders and modules, the longest units first: they would otherwise run alone at the end."""

BY_MODULE: Final = {"integration/agent": 0.3, "sim": 0.8, "unit": 1.0}
"""Folders that are scheduled by module, after all others: their tests share no emulator.

Tests of the agent wait, the others compute. So modules of all three run side by side: those of a
folder are spread evenly over this share of the queue. At its end are only quick ones.
"""

TOGETHER: Final = {
    "integration/cli/test_whole_job.py": "e2e/jobs",
    "e2e/faults": "e2e/jobs",
    "e2e/jobs/test_local_run.py": "e2e/jobs/test_local_run.py",
    "contract/store": "contract",
    "integration/cost": "contract",
}
"""Modules and folders that use the emulators of another folder, and are scheduled with it.

`trainmaster local run` starts a stack of its own.
"""


def sort_for_one_process(items: list[pytest.Item]) -> None:
    """Sort in place: quick tests first, whole jobs last."""
    places = _places(work_unit(item.nodeid) for item in items)
    items.sort(key=lambda item: -places[work_unit(item.nodeid)][0])


def units_of(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the items by unit, in the order in which processes should take the units."""
    units: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        units[work_unit(item.nodeid)].append(item)
    places = _places(units)
    return [units[unit] for unit in sorted(units, key=places.__getitem__)]


def use_emulators(unit: Iterable[pytest.Item]) -> bool:
    """Whether a test of the unit has the marker `emulator` (tests/conftest.py)."""
    return any(item.get_closest_marker("emulator") for item in unit)


def folder_of(nodeid: str) -> str:
    """Return `unit/core` for a test in `tests/unit/core/rules/`."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parent.parts[1:3])


def work_unit(nodeid: str) -> str:
    """Return what a test is scheduled with: its folder, such as `infra` or `integration/api`, or
    its module.
    """
    return _unit_of_module(nodeid.partition("::")[0])


@cache
def _unit_of_module(name: str) -> str:
    path, folder = PurePosixPath(name), folder_of(name)
    module = "/".join(path.parts[1:])
    alone = module if BY_MODULE.keys() & {folder, path.parts[1]} else folder
    return TOGETHER.get(module) or TOGETHER.get(folder, alone)


def _places(units: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Return the place of each unit in the queue: the rank of its folder, and its place in a folder
    of `BY_MODULE`.
    """
    places = {}
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for unit in dict.fromkeys(units):
        ranks = (rank for rank, name in enumerate(ORDER) if f"{unit}/".startswith(f"{name}/"))
        folder = next((folder for folder in BY_MODULE if unit.startswith(f"{folder}/")), "")
        places[unit] = (len(ORDER) if folder else next(ranks, len(ORDER)), 0.0)
        modules[folder].append(unit)
    for folder, share in BY_MODULE.items():
        for number, unit in enumerate(modules[folder]):
            places[unit] = (len(ORDER), share * number / len(modules[folder]))
    return places
