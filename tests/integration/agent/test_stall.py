"""stallTimeout: the agent ends a program that prints nothing for this time, and reports it with its own cause."""

from __future__ import annotations

import pytest

from trainmaster.agent.control.stall_watch import StallWatch
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import IncarnationKey, SliceHost
from trainmaster.agent.reporting.serial_console import Console

from .support.cloud import Cloud
from .support.vm import Vm, agent_identity

HANGS = "import time; print('START', flush=True); time.sleep(600)"
SAVES_AND_HANGS = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("START", flush=True)
    time.sleep(600)
"""
PRINTS_A_PROGRESS_BAR = """
    import sys, time
    for _ in range(12):
        sys.stdout.write(".")
        sys.stdout.flush()
        time.sleep(0.5)
"""


@pytest.mark.parametrize(("program", "status", "signal"), [(HANGS, None, 15), (SAVES_AND_HANGS, 0, None)])
def test_silent_program_is_ended_and_reported_as_stalled(
    cloud: Cloud, vm: Vm, program: str, status: int | None, signal: int | None
) -> None:
    vm.configure(stall_timeout_s=3)
    vm.program(program)
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("stalled", status, signal)
    vm.wait_for_line("[trainmaster] The program has printed nothing for 3 s (stallTimeout): ending it.")


def test_output_without_line_ends_is_not_a_stall(cloud: Cloud, vm: Vm) -> None:
    vm.configure(stall_timeout_s=3)
    vm.program(PRINTS_A_PROGRESS_BAR)
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("process", 0)


class SilentProgram:
    """A program that has been silent for a time."""

    def __init__(self, silent_s: float) -> None:
        self.silent_s = silent_s
        self.has_ended = False

    def end(self, grace_s: float) -> None:
        self.has_ended = True


@pytest.mark.parametrize(
    ("host", "silent_s", "has_ended"),
    [(None, 0.3, True), (None, 0.1, False), (0, 0.3, True), (1, 0.3, False)],
    ids=["at the limit", "before the limit", "first host of a slice", "other host of a slice"],
)
def test_only_the_first_host_is_watched_and_only_the_limit_counts(
    host: int | None, silent_s: float, *, has_ended: bool
) -> None:
    inbox = Inbox(MetadataServer("127.0.0.1:9"))
    slice_host = None if host is None else SliceHost(host, ("10.0.0.1", "10.0.0.2"))
    watch = StallWatch(agent_identity(slice_host, stall_timeout_s=0.3), inbox, Console())
    program, key = SilentProgram(silent_s), IncarnationKey(1, 1)
    watch.start(key, program)  # type: ignore[arg-type]  # it needs only these two members of a program
    if host != 1:
        inbox.handle_next()
    assert (program.has_ended, watch.has_stalled(key)) == (has_ended, has_ended)
    assert inbox.is_empty


def test_program_that_a_directive_ends_is_not_stalled() -> None:
    inbox = Inbox(MetadataServer("127.0.0.1:9"))
    watch = StallWatch(agent_identity(stall_timeout_s=0.1), inbox, Console())
    program, key = SilentProgram(1), IncarnationKey(1, 1)
    watch.start(key, program)  # type: ignore[arg-type]
    watch.stop()
    inbox.handle_next()
    assert (program.has_ended, watch.has_stalled(key)) == (False, False)
