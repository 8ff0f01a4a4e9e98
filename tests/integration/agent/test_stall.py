"""stallTimeout: the agent ends a program that prints nothing for this time, and reports it with its
own cause. One that also uses no CPU and moves no data is still, and is ended earlier (`still_s`).
"""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from trainmaster.agent.control.stall_watch import StallWatch
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.clock import Clock
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import IncarnationKey, SliceHost
from trainmaster.agent.reporting.serial_console import Console

from .support.cloud import Cloud
from .support.vm import NAME, Vm, agent_identity

HANGS = """
    import os, signal, time

    def train():
        print("START", flush=True)
        time.sleep(600)

    {first}
    train()
"""
FIRSTS = {
    "sleeps": "",
    "is stopped": "print('START', flush=True); os.kill(os.getpid(), signal.SIGSTOP)",
    "ignores SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "has a stuck child": "os.fork() or os.setsid()",
}
PRINTS_A_PROGRESS_BAR = """
    import sys, time
    for _ in range(12):
        sys.stdout.write(".")
        sys.stdout.flush()
        time.sleep(0.5)
"""


@pytest.mark.parametrize(
    ("first", "field"),
    [
        ("sleeps", "still_s"),
        ("is stopped", "still_s"),
        ("ignores SIGTERM", "stall_timeout_s"),
        ("has a stuck child", "stall_timeout_s"),
    ],
)
def test_program_that_hangs_prints_its_stacks_is_ended_at_once_and_reported_as_stalled(
    cloud: Cloud, vm: Vm, first: str, field: str
) -> None:
    vm.configure(job_dir="gs://b/jobs/1", **{field: 2})
    vm.program(HANGS.format(first=FIRSTS[first]))
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("stalled", None, 6)
    assert body["error"]["type"] == {"stall_timeout_s": "Silent", "still_s": "Still"}[field]
    assert body["error"]["own_frame"].startswith("trainer/task.py:")
    vm.wait_for_line("Fatal Python error: Aborted")
    vm.wait_for_line("Current thread 0x")
    cloud.wait_for(
        "stacks",
        lambda _: b"task.py" in cloud.objects.get(f"gs://b/jobs/1/stacks/1-1-{NAME}.txt", b""),
    )


LOADER_FAILS = """
    import queue, threading
    batches = queue.Queue()
    def load():
        raise ValueError("row 3 is broken")
    def train():
        batches.get()
    threading.Thread(target=load).start()
    train()
"""


def test_error_of_a_thread_whose_program_then_hangs_is_reported(cloud: Cloud, vm: Vm) -> None:
    vm.configure(stall_timeout_s=2)
    vm.program(LOADER_FAILS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    error = cloud.wait_for_message("replica-exit").body["error"]
    assert error["message"].splitlines() == [
        "printed nothing for 2 s (stallTimeout)",
        "ValueError: row 3 is broken (trainer/task.py:5 in load)",
    ]
    assert error["own_frame"] == "trainer/task.py:7 in train"


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(
            "while time.monotonic() < end: sum(range(200_000)); time.sleep(0.02)",
            id="computes now and then",
        ),
        (
            pytest.param(
                "while time.monotonic() < end: open('/dev/null', 'w').write('x' * 1000) and"
                " time.sleep(0.4)",
                id="writes a little",
            )
        ),
        (
            pytest.param(
                "os.fork() and os.wait()\nwhile time.monotonic() < end: sum(range(200_000));"
                " time.sleep(0.02)",
                id="computes in a child",
            )
        ),
        pytest.param(
            "while time.monotonic() < end: subprocess.run(['sleep', '0.3'])",
            id="starts other programs",
        ),
    ],
)
def test_silent_program_that_works_is_never_still(cloud: Cloud, vm: Vm, work: str) -> None:
    vm.configure(still_s=2)
    vm.program(f"import os, subprocess, time\nend = time.monotonic() + 9\n{work}")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("process", 0)


def test_program_that_prints_no_stacks_has_time_to_end_itself(cloud: Cloud, vm: Vm) -> None:
    # Long enough for Python to have installed the handler, also on a loaded machine.
    vm.configure(stall_timeout_s=8, variables={"PYTHONFAULTHANDLER": ""})
    vm.program(
        HANGS.format(first="import sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))")
    )
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["frame"]) == ("stalled", 0, "")


def test_output_without_line_ends_is_not_a_stall(cloud: Cloud, vm: Vm) -> None:
    vm.configure(stall_timeout_s=3)
    vm.program(PRINTS_A_PROGRESS_BAR)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("process", 0)


NOW_S = 100.0


class StoppedClock(Clock):
    def monotonic_s(self) -> float:
        return NOW_S


class Stalls:
    """A program that has been silent for a time, and its launcher."""

    def __init__(self, silent_s: float) -> None:
        self.printed_at = NOW_S - silent_s
        self.ended = threading.Event()

    def end_stalled(self, *arguments: object) -> None:
        self.ended.set()


@pytest.mark.parametrize(
    ("host", "silent_s", "has_ended"),
    [(None, 0.25, True), (None, 0.125, False), (0, 0.25, True), (1, 0.25, False)],
    ids=["at the limit", "before the limit", "first host of a slice", "other host of a slice"],
)
def test_only_the_first_host_is_watched_and_only_the_limit_counts(
    host: int | None, silent_s: float, *, has_ended: bool
) -> None:
    inbox = Inbox(MetadataServer("127.0.0.1:9"), StoppedClock())
    slice_host = None if host is None else SliceHost(host, ("10.0.0.1", "10.0.0.2"))
    program, key = Stalls(silent_s), IncarnationKey(1, 1)
    identity = agent_identity(slice_host, stall_timeout_s=0.25)
    watch = StallWatch(identity, inbox, Console(), cast("Any", program))
    watch.start(key, cast("Any", program))
    if host != 1:
        inbox.handle_next()
    assert (program.ended.wait(10 if has_ended else 0), watch.has_stalled(key)) == (
        has_ended,
        has_ended,
    )
    assert inbox.is_empty


def test_program_that_a_directive_ends_is_not_stalled() -> None:
    inbox = Inbox(MetadataServer("127.0.0.1:9"))
    program, key = Stalls(1), IncarnationKey(1, 1)
    watch = StallWatch(agent_identity(stall_timeout_s=0.1), inbox, Console(), cast("Any", program))
    watch.start(key, cast("Any", program))
    watch.stop()
    inbox.handle_next()
    assert (program.ended.is_set(), watch.has_stalled(key)) == (False, False)
