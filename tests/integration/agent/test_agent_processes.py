"""What programs leave behind does not live beside the next one: ranks and daemons without a mark
and without a parent.

The mark is an environment variable that the agent gives to everything that it starts, so that it
finds the processes again. A program may start others with an empty environment.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack import eventually
from trainmaster.agent.program.process_table import PARENT, read_stats

from .support.cloud import Cloud
from .support.vm import Vm, is_alive

IGNORES: str = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
"""A rank that does not obey SIGTERM."""
LAUNCHER = """
    import os, signal, subprocess, sys, time
    print("START", time.monotonic())
    rank = subprocess.Popen(
        [sys.executable, "-c", {source!r}], env={{}}, start_new_session=True
    )
    print("RANK", rank.pid)
    {end}
    rank.wait()
"""
DAEMON = """
    import os, signal, subprocess, sys, time
    if os.fork() == 0:
        os.setsid()
        daemon = subprocess.Popen([sys.executable, "-c", {source!r}], env={{}})
        print("RANK", daemon.pid)
        os._exit(0)
    os.wait()
    print("START", time.monotonic())
    {end}
    signal.pause()
"""
KILLED = "time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
FAILS = "time.sleep(0.5); sys.exit(1)"


@pytest.fixture
def left() -> Iterator[list[int]]:
    """Processes that the test ends if the agent has not."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("program", [LAUNCHER, DAEMON], ids=["launcher", "daemon"])
@pytest.mark.parametrize("end", ["pass", KILLED, FAILS], ids=["hold", "killed", "fails"])
def test_process_without_mark_and_parent_is_dead_when_the_next_round_is_ready(
    cloud: Cloud, vm: Vm, left: list[int], program: str, end: str
) -> None:
    """The program ends at the directive, or by the kernel's hand, or by itself; its process has an
    empty environment, and a session of its own.
    """
    vm.configure(grace_s=2)
    vm.program(program.format(source=IGNORES, end=end))
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    left.append(int(vm.wait_for_number("RANK ")))
    vm.wait_for_line("START ")
    if end != "pass":
        cloud.wait_for_message("replica-exit", (1, 1))
    else:
        assert is_alive(left[0])
    cloud.direct(attempt=1, incarnation=2, action="hold")
    cloud.wait_for_message("vm-ready", (1, 2))
    assert not is_alive(left[0])
    cloud.direct(attempt=1, incarnation=2)
    vm.wait_for_line("START ", number=2)
    left.append(int(vm.wait_for_number("RANK ", number=2)))


def test_ended_orphans_of_a_running_program_leave_no_zombies(cloud: Cloud, vm: Vm) -> None:
    vm.program("""
        import os, signal, time
        for _ in range(20):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(0.1)
                os._exit(0)
            os.wait()
        print("AGENT", os.getppid())
        print("PROGRAM", os.getpid())
        signal.pause()
    """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    agent = int(vm.wait_for_number("AGENT "))
    program = int(vm.wait_for_number("PROGRAM "))
    # Orphans that still sleep are children of the agent, too: all of them must have gone.
    eventually(lambda: children_of(agent) == [program])
    cloud.direct(attempt=1, incarnation=2)
    cloud.wait_for_message("vm-ready", (1, 2))


def test_temporary_files_of_a_killed_program_are_gone_before_the_next_one(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program("""
        import os, signal, tempfile
        file = tempfile.NamedTemporaryFile(delete=False)
        print("FILE", file.name)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    file = Path(vm.wait_for_line("FILE ").split()[1])
    cloud.wait_for_message("replica-exit", (1, 1))
    assert file.exists(), "until another program starts"
    cloud.direct(attempt=1, incarnation=2, action="hold")
    cloud.wait_for_message("vm-ready", (1, 2))
    assert not file.parent.exists()


def children_of(parent: int) -> list[int]:
    """Return the process ids of all children, with those that have ended and were not reaped."""
    return [pid for pid, fields in read_stats().items() if int(fields[PARENT]) == parent]
