"""Configure the whole test suite: fixtures, hypothesis profiles, work units, and the reports at its end.

`make test` runs the suite in several processes. Each process starts an emulator, a stack or a browser once for all of
its tests, so folders whose tests share one are one unit of work. Elsewhere a unit is a module, so that no process is
busy long after the others. The longest units start first. The suite also runs in one process, without the plugin
pytest-xdist; the shortest units then run first.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from functools import cache
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.loadscope import LoadScopeScheduling

pytest_plugins = [
    "tests.support.captured_logs",
    "tests.support.compiled_rules",
    "tests.support.conformance.recorder",
    "tests.support.fewer_messages",
    "tests.support.stack",
]

# For property tests that do not set max_examples themselves. `make test-all` selects the second profile.
hypothesis.settings.register_profile("every change", max_examples=30, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile("every change")

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

BY_MODULE: Final = {"integration/agent": 0.4, "sim": 0.8, "unit": 1.0}
"""Folders that are scheduled by module, after all others: their tests share no emulator.

Tests of the agent wait, the others compute. So modules of all three run side by side: those of a folder are spread
evenly over this share of the queue. At its end are only quick ones.
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

JAVA_HOME: Final = Path(__file__).parents[1] / "build" / "java"
"""Java with archives of the emulators' classes; `make test` creates it (tests/support/java.py)."""

FOLDERS_SHOWN_MAX: Final = 15

EMULATOR_FIXTURES: Final = frozenset({"stack", "firestore_emulator", "pubsub_emulator", "storage_emulator"})
"""A test that uses one of these, directly or through another fixture, gets the marker `emulator`."""


def pytest_configure() -> None:
    """Handle SIGINT as at a terminal: programs in the background of a shell ignore it, and so do their children.

    Run the emulators with the archives of their classes, if there are any.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (JAVA_HOME / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(JAVA_HOME)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Schedule by folder where the command line asks for `--dist loadscope`."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class FolderScheduling(LoadScopeScheduling):
        """Hand out folders where xdist hands out modules."""

        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

    return FolderScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collections. Later ones leave out what exists now, which lives until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Commands that run in this process, and the simulator, may have turned logging off."""
    if logging.root.manager.disable:
        logging.disable(logging.NOTSET)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if EMULATOR_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.emulator)
    units = _places(work_unit(item.nodeid) for item in items)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: units[work_unit(item.nodeid)])
    else:
        items.sort(key=lambda item: -units[work_unit(item.nodeid)][0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which folders took longest, and once per reason why tests were skipped and how many."""
    _report_folders(terminalreporter)
    reasons = Counter(_skip_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("tests that did not run")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5d}  {reason}")


def _report_folders(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds and tests of each folder, if more than one folder ran."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            folder = _folder(report.nodeid)
            seconds[folder] += report.duration
            tests[folder] += report.when == "call"
    if len(seconds) > 1:
        terminalreporter.section("seconds and tests per folder")
        for folder, total_s in sorted(seconds.items(), key=itemgetter(1), reverse=True)[:FOLDERS_SHOWN_MAX]:
            terminalreporter.write_line(f"{total_s:8.1f} s {tests[folder]:6d}  {folder}")


def work_unit(nodeid: str) -> str:
    """Return what a test is scheduled with: its folder, such as `infra` or `integration/api`, or its module."""
    return _unit_of_module(nodeid.partition("::")[0])


@cache
def _unit_of_module(name: str) -> str:
    path, folder = PurePosixPath(name), _folder(name)
    module = "/".join(path.parts[1:])
    alone = module if BY_MODULE.keys() & {folder, path.parts[1]} else folder
    return TOGETHER.get(module) or TOGETHER.get(folder, alone)


def _folder(nodeid: str) -> str:
    """Return `unit/core` for a test in `tests/unit/core/rules/`."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parent.parts[1:3])


def _places(units: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Return the place of each unit in the queue: the rank of its folder, and its place in a folder of `BY_MODULE`."""
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


def _skip_reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
