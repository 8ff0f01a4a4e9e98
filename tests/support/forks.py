"""The pytest plugin: `--processes N` runs the tests in N processes, which the one that collected
them forks.

pytest-xdist starts each process anew. It then imports and collects the whole suite, which takes 14
CPU seconds, and twice as many before everything is compiled. A fork has it all at once.

A process asks for a unit of work (tests/support/work_units.py), runs it, and asks for the next one.
Between units it keeps only the fixtures of the session, and not even those if the next unit needs
no emulators: idle, a local stack still takes a tenth of a core. The first process reports: it gets
the reports of all tests.
"""

from __future__ import annotations

import atexit
import multiprocessing
import random
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Final, cast

import pytest
from _pytest.capture import CaptureManager
from _pytest.runner import runtestprotocol

from tests.support.work_units import units_of, use_emulators

FORK: Final = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("general").addoption(
        "--processes", type=int, default=1, metavar="N", help="run the tests in N processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in forks. pytest's own loop runs them without the option, and handles errors of
    the collection.
    """
    if (
        session.config.option.processes < 2
        or session.config.option.collectonly
        or session.testsfailed
    ):
        return None
    _Forks(session).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


@dataclass
class _Fork:
    process: ForkProcess
    left: deque[pytest.Item] = field(default_factory=deque)
    """The tests of its unit that have not ended."""


class _Forks:
    """The process that collected: it starts the others, and hands out work."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._units = units_of(session.items)
        self._next = 0
        self._forks: dict[Connection, _Fork] = {}

    def run(self) -> None:
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for _ in range(min(self._session.config.option.processes, len(self._units))):
                self._start()
            while self._forks:
                for connection in wait(list(self._forks)):
                    self._receive(cast("Connection", connection))
        finally:
            for connection in self._forks:
                connection.close()
            for fork in self._forks.values():
                fork.process.join()

    def _start(self) -> None:
        self._session.config.get_terminal_writer().flush()
        ours, theirs = FORK.Pipe()
        arguments = self._session, self._units, theirs, (*self._forks, ours)
        process = FORK.Process(target=_run_units, args=arguments)
        process.start()
        theirs.close()
        self._forks[ours] = _Fork(process)

    def _receive(self, connection: Connection) -> None:
        """Handle a message: the reports of a test, None (the process asks for a unit), or the end
        of the process.
        """
        fork, config = self._forks[connection], self._session.config
        try:
            message = connection.recv()
        except (EOFError, ConnectionResetError):
            del self._forks[connection]
            self._end(fork)
            return
        if message is None:
            self._hand_out(connection, fork)
            return
        if fork.left and message[0]["nodeid"] == fork.left[0].nodeid:
            fork.left.popleft()
        for data in message:
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            config.hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail or self._session.shouldstop:
            self._stop()

    def _hand_out(self, connection: Connection, fork: _Fork) -> None:
        if self._next == len(self._units):
            _send(connection, None)
            return
        fork.left.extend(self._units[self._next])
        _send(connection, self._next)
        self._next += 1

    def _stop(self) -> None:
        """Hand out nothing more, and interrupt the processes after their present tests."""
        self._next = len(self._units)
        for connection, fork in self._forks.items():
            if fork.left:
                fork.left.clear()
                _send(connection, None)

    def _end(self, fork: _Fork) -> None:
        """Report the tests of a process that has ended in the middle of them, and replace it."""
        fork.process.join()
        if fork.process.exitcode and not fork.left:
            self._report(fork, "a fork after its last test", ("", None, ""))
        for item in fork.left:
            self._report(fork, item.nodeid, item.location)
        if fork.left and self._next < len(self._units):
            self._start()

    def _report(self, fork: _Fork, nodeid: str, location: tuple[str, int | None, str]) -> None:
        during = f", in {fork.left[0].nodeid}" if fork.left else ""
        text = f"its process ended with exit code {fork.process.exitcode}{during}"
        report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)


def _send(connection: Connection, message: int | None) -> None:
    """Send a message to a fork, unless it has ended, which the next wait shows."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.send(message)


class _Between(pytest.Item):
    """What follows the last test of a unit: nothing that belongs to less than the session stays set
    up.
    """

    def runtest(self) -> None:
        """Do nothing: this only sets up and tears down."""


class _Sender:
    """The plugin of a fork: it sends reports instead of printing them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not isinstance(item, _Between) or not all(report.passed for report in reports):
            to_data, config = item.config.hook.pytest_report_to_serializable, item.config
            self._connection.send([to_data(config=config, report=report) for report in reports])
        return True


def _run_units(
    session: pytest.Session,
    units: list[list[pytest.Item]],
    connection: Connection,
    others: tuple[Connection, ...],
) -> None:
    """Run units until there is none left, or until the first process has gone."""
    for other in others:
        other.close()
    atexit._clear()  # those are the first process's
    _separate(session.config)
    session.config.pluginmanager.register(_Sender(connection))
    between = _Between.from_parent(session, name="between units")
    try:
        for item, following in _tests(units, connection, between):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    except (KeyboardInterrupt, OSError, EOFError):
        pass  # the first process says so, or has gone
    finally:
        session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()


def _tests(
    units: list[list[pytest.Item]], connection: Connection, between: pytest.Item
) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Yield each test with what follows it, as long as the first process hands out units and does
    not interrupt.

    After the last unit, and where the emulators that a unit has used are of no more use, everything
    is torn down.
    """
    emulators_may_run = False
    connection.send(None)
    while (number := connection.recv()) is not None:
        if emulators_may_run and not use_emulators(units[number]):
            yield between, None
        emulators_may_run = use_emulators(units[number])
        for item, following in zip(units[number], (*units[number][1:], between), strict=True):
            if connection.poll():
                return
            yield item, following
        connection.send(None)
    yield between, None


def _separate(config: Any) -> None:
    """Give this process what forks must not share: random numbers, files of captured output,
    temporary folders.
    """
    random.seed()
    capture: CaptureManager = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    folders = config._tmp_path_factory
    folders._basetemp = folders.mktemp("process")
