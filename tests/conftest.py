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
    *("e2e", "e2e, apart", "containers", "sim", "emulators", "cli", "agent", "api", "compute", "examples", "infra"),
    *("jobspec", "tpu", "logging", "contract"),
)
APART = {
    *(f"e2e/test_{name}.py" for name in ("rules", "machines", "run", "clients", "wrong_files")),
    "cli/test_whole_job.py",
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
    """`tests/core/test_judge.py::test_…` is of unit `core`."""
    file = nodeid.partition("::")[0].removeprefix("tests/")
    return "e2e, apart" if file in APART else file.partition("/")[0]
