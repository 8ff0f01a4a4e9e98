"""Configure the whole test suite: fixtures, hypothesis profiles, work units, and the report of skipped tests.

`make test` runs the suite in several processes. A folder, or a module of end-to-end tests, is one unit of work, because
its tests share a stack or an emulator that is started once per process. The suite also runs in one process, without the
plugin pytest-xdist.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.loadscope import LoadScopeScheduling

pytest_plugins = ["tests.support.stack"]

# For property tests that do not set max_examples themselves. `make test-all` selects the second profile.
hypothesis.settings.register_profile("every change", max_examples=150, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile("every change")

ORDER: Final = ("e2e", "integration/containers", "sim", "integration", "infra", "contract", "unit")
"""Folders of tests, those with the longest units first: they would otherwise run alone at the end."""

EMULATOR_FIXTURES: Final = frozenset({"stack", "firestore_emulator", "pubsub_emulator", "storage_emulator"})
"""A test that uses one of these, directly or through another fixture, gets the marker `emulator`."""


def pytest_configure() -> None:
    """Handle SIGINT as at a terminal: programs in the background of a shell ignore it, and so do their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class FolderScheduling(LoadScopeScheduling):
        """Hand out folders where xdist hands out modules."""

        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

    return FolderScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if EMULATOR_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.emulator)
    items.sort(key=lambda item: _rank(work_unit(item.nodeid)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List once, at the end, why tests were skipped and how many tests each reason cost."""
    reasons = Counter(_skip_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("tests that did not run")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5d}  {reason}")


def work_unit(nodeid: str) -> str:
    """Return the folder that a test is scheduled with: `unit/core` for a test in `tests/unit/core/rules/`.

    End-to-end tests are scheduled by module, because a folder of them takes longer than any other unit.
    """
    path = PurePosixPath(nodeid.partition("::")[0])
    if path.parts[1:2] == ("e2e",):
        return "/".join(path.parts[1:])
    return "/".join(path.parent.parts[1:3])


def _rank(unit: str) -> int:
    parents = (unit, unit.partition("/")[0])
    return next((ORDER.index(name) for name in parents if name in ORDER), len(ORDER))


def _skip_reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
