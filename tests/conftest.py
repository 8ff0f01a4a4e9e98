"""Fixtures for all tests, and how they are shared out where several processes run them (`make test`).

A folder is one unit of work: its tests share a stack or an emulator, which is started once. The longest units come
first, whole jobs before all: they wait for machines more than they compute, and are two units, each with a stack of its
own, beside which everything else is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

pytest_plugins = ["tests.support.stack"]

# Of properties that do not say themselves how many examples they need; `make test-all` asks for the second.
hypothesis.settings.register_profile("every change", max_examples=150, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile("every change")

LONGEST = (
    "e2e",
    "e2e, second half",
    "integration/containers",
    "sim",
    "integration/stack",
    "integration/cli",
    "integration/agent",
    "integration/api",
    "integration/compute",
    "integration/examples",
    "infra",
    "unit/jobspec",
    "integration/tpu",
    "integration/logging",
    "contract",
)
APART = {
    *(f"e2e/test_{name}.py" for name in ("rules", "machines", "run", "clients", "wrong_files")),
    "integration/cli/test_whole_job.py",
}
"""The second half of the whole jobs."""


class ByUnit(LoadScopeScheduling):
    """Hands out units where xdist hands out modules."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByUnit(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: nth for nth, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(unit(item.nodeid), len(order)))


def unit(nodeid: str) -> str:
    """Return the unit of work that a test belongs to: `unit/core` for `tests/unit/core/test_judge.py::test_…`."""
    file = nodeid.partition("::")[0].removeprefix("tests/")
    if file in APART:
        return "e2e, second half"
    folders = file.split("/")[:-1]
    return "/".join(folders[:2] if folders[0] in ("unit", "integration") else folders[:1])
