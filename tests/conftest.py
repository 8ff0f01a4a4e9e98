"""Configure the whole test suite: fixtures, hypothesis profiles, and the reports at its end.

`make test` runs the suite in several processes, by pytest-xdist (tests/support/groups.py).
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from tests.support.groups import folder_of, group_of, mark_groups, sort_by_group
from tests.support.heavy import problems_of

pytest_plugins = [
    "tests.support.captured_logs",
    "tests.support.compiled_rules",
    "tests.support.conformance.recorder",
    "tests.support.stack",
]

# For property tests that do not set max_examples themselves. `make test-all` selects the second
# profile.
hypothesis.settings.register_profile("every change", max_examples=30, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile("every change")

JAVA_HOME: Final = Path(__file__).parents[1] / "build" / "java"
"""Java with archives of the emulators' classes; `make test` creates it (tests/support/java.py)."""

FOLDERS_SHOWN_MAX: Final = 15
NO_ENGINE: Final = "no container engine"
"""How the reasons begin of tests that are skipped without an engine."""

EMULATOR_FIXTURES: Final = frozenset(
    {"stack", "firestore_emulator", "pubsub_emulator", "storage_emulator"}
)
"""A test that uses one of these, directly or through another fixture, gets the marker `emulator`.
"""


def pytest_configure() -> None:
    """Handle SIGINT as at a terminal: programs in the background of a shell ignore it, and so do
    their children.

    Run the emulators with the archives of their classes, if there are any.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (JAVA_HOME / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(JAVA_HOME)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collections.

    Later ones leave out what exists now, which lives until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail to collect a module with a wrong marker `heavy`, also if its tests are deselected."""
    report = yield
    problems = problems_of(report.result or [])
    if problems:
        report.outcome = "failed"
        report.longrepr = "\n".join(problems)
        report.result = []
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Commands that run in this process, and the simulator, may have turned logging off."""
    if logging.root.manager.disable:
        logging.disable(logging.NOTSET)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests of emulators. In a process of pytest-xdist, mark and sort the groups, too."""
    for item in items:
        if EMULATOR_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.emulator)
    if hasattr(config, "workerinput"):
        sort_by_group(items)
        mark_groups(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report each test by the name that runs it alone: pytest-xdist has appended its group."""
    came_from_another_process = hasattr(report, "node")
    if came_from_another_process:
        report.nodeid = report.nodeid.removesuffix(f"@{group_of(report.nodeid)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which folders took longest, and once per reason why tests were skipped and how many."""
    _report_folders(terminalreporter)
    reasons = Counter(_skip_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("tests that did not run")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5d}  {reason}")
    _report_missing_engine(terminalreporter, reasons)


def _report_missing_engine(
    terminalreporter: pytest.TerminalReporter, reasons: Mapping[str, int]
) -> None:
    """Name tests that did not run for want of a container engine in the last line of the report.

    Nobody reads further up where a continuous integration passed.
    """
    count = sum(number for reason, number in reasons.items() if reason.startswith(NO_ENGINE))
    if not count:
        return
    build = terminalreporter.build_summary_stats_line

    def build_with_engine() -> tuple[list[tuple[str, dict[str, bool]]], str]:
        parts, color = build()
        return [*parts, (f"{count} NOT RUN: {NO_ENGINE}", {"red": True})], color

    terminalreporter.build_summary_stats_line = build_with_engine  # type: ignore[method-assign]


def _report_folders(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds and tests of each folder, if more than one folder ran."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            folder = folder_of(report.nodeid)
            seconds[folder] += report.duration
            tests[folder] += report.when == "call"
    if len(seconds) > 1:
        terminalreporter.section("seconds and tests per folder")
        for folder, total_s in sorted(seconds.items(), key=itemgetter(1), reverse=True)[
            :FOLDERS_SHOWN_MAX
        ]:
            terminalreporter.write_line(f"{total_s:8.1f} s {tests[folder]:6d}  {folder}")


def _skip_reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
