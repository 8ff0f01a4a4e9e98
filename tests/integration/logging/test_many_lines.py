"""The real agent as a real process, and a program that prints faster than its lines can be sent:
each line is in the log, or counted there as missing.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.agent.support import cloud as support
from tests.integration.agent.support.cloud import Cloud as Google
from tests.integration.agent.support.vm import Vm
from tests.integration.logging.cloud import PROJECT
from tests.integration.logging.shipper import account

LOG = {
    "name": f"projects/{PROJECT}/logs/trainmaster",
    "task": "worker-replica",
    "region": "us-central1",
}
PRINT = """
    import sys
    for number in range({lines}):
        sys.stdout.write("line %d\\n" % number)
"""
PRINT_STEADILY = """
    import sys, time
    began = time.monotonic()
    number = 0
    while number < {lines}:
        due = min({lines}, int((time.monotonic() - began) * 10_000))
        sys.stdout.write("".join("line %d\\n" % n for n in range(number, due)))
        number = max(number, due)
        time.sleep(0.01)
"""
STAY = """
    import time
    time.sleep(600)
"""
HEAVY = pytest.mark.heavy(
    fact="of up to a million printed lines, each is in the log or counted as missing",
    quick="fewer lines in the same module, and all failures in test_shipping",
)


@dataclass(frozen=True)
class Logging:
    """The emulator of Cloud Logging, in a process of its own."""

    address: str
    folder: Path

    def account(self) -> tuple[int, int]:
        """Return how many lines are stored, and how many are counted as missing."""
        with closing(sqlite3.connect(self.folder / "entries.sqlite")) as database:
            rows = database.execute("SELECT entry FROM entries")
            return account(json.loads(entry) for (entry,) in rows)


@pytest.fixture
def logging(tmp_path: Path) -> Iterator[Logging]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path / "log"
    module = [sys.executable, "-m", "trainmaster_emulators.logging"]
    options = ["--port", str(port), "--state-dir", str(folder)]
    with subprocess.Popen([*module, *options]) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield Logging(f"http://127.0.0.1:{port}", folder)
        process.terminate()


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    """The metadata server and Pub/Sub."""
    monkeypatch.setattr(support, "TIMEOUT_S", 500.0)
    google = Google()
    yield google
    google.close()


@pytest.fixture
def vm(google: Google, logging: Logging, tmp_path: Path) -> Iterator[Vm]:
    vm = Vm(google, tmp_path)
    vm.environ["TRAINMASTER_LOGGING_ENDPOINT"] = logging.address
    vm.configure(log=LOG, project=PROJECT, grace_s=1)
    google.direct(attempt=1, incarnation=1)
    yield vm
    vm.power_off()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("program", "lines"),
    [
        (PRINT, 20_000),
        pytest.param(PRINT, 200_000, marks=HEAVY),
        pytest.param(PRINT_STEADILY, 200_000, marks=HEAVY),
        pytest.param(PRINT, 1_000_000, marks=HEAVY),
    ],
    ids=["20000", "200000", "10000 a second", "a million"],
)
def test_all_lines_are_in_the_log_when_the_exit_is_reported(
    google: Google, vm: Vm, logging: Logging, program: str, lines: int
) -> None:
    vm.program(program.format(lines=lines))
    vm.boot()
    google.wait_for_message("replica-exit", (1, 1))
    is_quiet = os.getloadavg()[0] < 2 * len(os.sched_getaffinity(0))
    stored, _ = logging.account()
    vm.terminate()
    vm.wait()
    late, missing = logging.account()
    assert late + missing == lines
    if is_quiet:
        assert (stored, missing) == (lines, 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_directed", [True, False], ids=["cancelled", "preempted"])
def test_lines_of_a_vm_that_shuts_down_are_stored_or_counted(
    google: Google, vm: Vm, logging: Logging, tmp_path: Path, *, is_directed: bool
) -> None:
    printed = tmp_path / "printed"
    vm.program(PRINT.format(lines=150_000) + f"    open({str(printed)!r}, 'w').close()\n" + STAY)
    vm.boot()
    google.wait_for_message("vm-ready", (1, 1))
    deadline = time.monotonic() + 100
    while not printed.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    if is_directed:
        google.direct(attempt=1, incarnation=1, action="stop")
    else:
        google.set("instance/preempted", "TRUE")
    vm.terminate()
    vm.wait()
    stored, missing = logging.account()
    assert stored + missing == 150_000
