"""The agent's reaction to a directive that changes.

A directive is the order of the stored state to an agent, in a metadata entry of its VM: to run,
hold or stop an incarnation. An incarnation is one execution of the program within an attempt of the
whole job. A program that trains with peers is held until all of them are ready. The agent publishes
`vm-ready` when it has followed a directive, and `replica-exit` when a program has ended by itself.
"""

from __future__ import annotations

import time

import pytest

from tests.support.load import is_quick
from trainmaster.agent.model.vm_config import IncarnationKey, supersedes

from .support.cloud import Cloud
from .support.vm import Vm, is_alive

BLOCKS = """
    import signal, sys, time
    print("START", time.monotonic())
    signal.pause()
"""
FAILS = """
    import sys, time
    print("START", time.monotonic())
    sys.exit(1)
"""
SAVES = """
    import signal, sys, time
    def save(*_):
        time.sleep(0.1)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("START", time.monotonic())
    while True:
        signal.pause()
"""
ENDS = """
    import time
    print("START")
    time.sleep(2)
"""
IGNORES_SIGTERM = """
    import signal, time
    signal.signal(signal.SIGTERM, lambda *_: print("TERM", time.monotonic()))
    print("START", time.monotonic())
    while True:
        signal.pause()
"""


def test_restart_in_the_same_vm_takes_a_fraction_of_a_second(cloud: Cloud, vm: Vm) -> None:
    vm.program(FAILS)
    vm.boot()
    vm.wait_for_line("[trainmaster] Waiting for a directive.")
    cloud.direct(attempt=1, incarnation=1)
    body = cloud.wait_for_message("replica-exit", (1, 1)).body
    assert body["ran_s"] > 0
    assert is_quick(body["ran_s"], 10.0)
    took_s = []
    for incarnation in (2, 3, 4):
        directed = cloud.direct(attempt=1, incarnation=incarnation)
        took_s.append(vm.wait_for_number("START ", number=incarnation) - directed)
        cloud.wait_for_message("replica-exit", (1, incarnation))
    print(f"directive to running program: {', '.join(f'{s * 1000:.0f} ms' for s in took_s)}")
    assert is_quick(min(took_s), 1.0), "an idle machine needs a fraction of that"


def test_restart_waits_for_the_pause_of_its_directive_unless_it_is_stopped_meanwhile(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program(FAILS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    directed = cloud.direct(attempt=1, incarnation=2, pause_s=1)
    assert vm.wait_for_number("START ", number=2) - directed >= 1
    waiting = (
        "[trainmaster] Waiting 1 s before the restart, because the program failed soon after its"
        " start."
    )
    vm.wait_for_line(waiting)
    cloud.wait_for_message("replica-exit", (1, 2))
    assert ("vm-ready", (1, 2)) in cloud.published()

    cloud.direct(attempt=1, incarnation=3, pause_s=1)
    vm.wait_for_line(waiting, number=2)
    cloud.direct(attempt=1, incarnation=3, action="stop")
    vm.wait_for_line("[trainmaster] Directive: stop attempt 1, incarnation 3.")
    cloud.direct(attempt=1, incarnation=4)
    cloud.wait_for_message("replica-exit", (1, 4))
    assert ("vm-ready", (1, 3)) not in cloud.published(), "it was stopped during its pause"


def test_start_after_a_hold_takes_a_fraction_of_a_second(cloud: Cloud, vm: Vm) -> None:
    vm.program(FAILS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    polls = [path for path, _ in cloud.requests if path.endswith("trainmaster-directive")]
    assert len(polls) <= 3, "long polls send the last etag"
    took_s = []
    for incarnation in (2, 3, 4):
        cloud.direct(attempt=1, incarnation=incarnation, action="hold")
        cloud.wait_for_message("vm-ready", (1, incarnation))
        directed = cloud.direct(attempt=1, incarnation=incarnation)
        took_s.append(vm.wait_for_number("START ", number=incarnation) - directed)
    print(f"run to running program: {', '.join(f'{s * 1000:.0f} ms' for s in took_s)}")
    assert is_quick(min(took_s), 1.0)


def test_first_hold_starts_nothing_and_newer_incarnations_end_the_running_one_without_an_exit_event(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=1, incarnation=1, action="hold")
    vm.boot()
    cloud.wait_for_message("vm-ready", (1, 1))
    directed = cloud.direct(attempt=1, incarnation=1)
    assert vm.wait_for_number("START ") > directed
    cloud.direct(attempt=1, incarnation=2)
    vm.wait_for_line("START ", number=2)
    cloud.wait_for_message("vm-ready", (1, 2))  # otherwise a newer event could replace it
    cloud.direct(attempt=2, incarnation=1)
    vm.wait_for_line("START ", number=3)
    cloud.wait_for_message("vm-ready", (2, 1))
    assert cloud.published() == [("vm-ready", (1, 1)), ("vm-ready", (1, 2)), ("vm-ready", (2, 1))]


def test_program_that_ignores_sigterm_is_killed_after_its_grace(cloud: Cloud, vm: Vm) -> None:
    vm.configure(grace_s=0.5)
    vm.program(IGNORES_SIGTERM)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START ")
    cloud.direct(attempt=1, incarnation=2)
    restarted = vm.wait_for_number("START ", number=2)
    took_s = restarted - vm.wait_for_number("TERM ")
    assert took_s > 0.4
    assert is_quick(took_s, 5.0)


def test_rank_without_a_mark_in_a_session_of_its_own_ends_with_its_launcher(
    cloud: Cloud, vm: Vm
) -> None:
    """torchrun starts its ranks in new sessions and waits 30 s for them; setproctitle overwrites
    their environment.
    """
    rank = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); print('RANK', os.getpid());"
        " time.sleep(600)"
    )
    vm.configure(grace_s=0.5)
    vm.program(f"""
        import signal, subprocess, sys
        signal.signal(15, signal.SIG_IGN)
        subprocess.run([sys.executable, "-u", "-c", {rank!r}], env={{}}, start_new_session=True)
        """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    pid = int(vm.wait_for_number("RANK "))
    cloud.direct(attempt=1, incarnation=2, action="hold")
    cloud.wait_for_message("vm-ready", (1, 2))
    assert not is_alive(pid)


def test_outdated_repeated_and_malformed_directives_change_nothing(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=2, incarnation=2)
    vm.boot()
    vm.wait_for_line("START ")
    cloud.wait_for_message("vm-ready", (2, 2))
    cloud.direct(attempt=2, incarnation=1)
    vm.wait_for_line("[trainmaster] Ignoring an outdated directive: run attempt 2, incarnation 1")
    cloud.direct(attempt=1, incarnation=7, action="stop")
    vm.wait_for_line("[trainmaster] Ignoring an outdated directive: stop attempt 1, incarnation 7")
    # A late delivery of the state before the round began.
    cloud.direct(attempt=2, incarnation=2, action="hold")
    vm.wait_for_line("[trainmaster] Ignoring an outdated directive: hold attempt 2, incarnation 2")
    cloud.set("instance/attributes/trainmaster-directive", "{}")
    vm.wait_for_line("[trainmaster] Ignoring a directive that cannot be read")
    cloud.direct(attempt=2, incarnation=2)
    cloud.direct(attempt=2, incarnation=3)
    vm.wait_for_line("START ", number=2)
    cloud.wait_for_message("vm-ready", (2, 3))
    assert cloud.published() == [("vm-ready", (2, 2)), ("vm-ready", (2, 3))]


def test_ended_incarnation_is_not_reported_and_not_started_again(cloud: Cloud, vm: Vm) -> None:
    vm.program(BLOCKS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("vm-ready", (1, 1))
    vm.wait_for_line("START ")
    cloud.direct(attempt=1, incarnation=1, action="stop")
    vm.wait_for_line("[trainmaster] Module stopped as directed, with signal 15.")
    cloud.direct(attempt=1, incarnation=1, action="run")
    vm.wait_for_line("[trainmaster] Ignoring an outdated directive: run attempt 1, incarnation 1.")
    cloud.direct(attempt=1, incarnation=2, action="hold")
    body = cloud.wait_for_message("vm-ready", (1, 2)).body
    assert "ended" not in body, "the directive ended the program"
    cloud.direct(attempt=1, incarnation=2, action="run")
    vm.wait_for_line("START ", number=2)
    assert len(vm.lines("START ")) == 2
    assert cloud.published() == [("vm-ready", (1, 1)), ("vm-ready", (1, 2))]


def test_stop_withdrawn_while_the_program_ends_reports_no_exit(cloud: Cloud, vm: Vm) -> None:
    vm.configure(grace_s=0.5)
    vm.program(IGNORES_SIGTERM)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START ")
    cloud.direct(attempt=1, incarnation=1, action="stop")
    vm.wait_for_line("TERM ")
    cloud.direct(attempt=1, incarnation=1, action="run")
    vm.wait_for_line("[trainmaster] Module stopped as directed, with signal 9.")
    cloud.wait_for_message("vm-ready")
    assert cloud.published() == [("vm-ready", (1, 1))]


def test_hold_ends_the_program_and_is_answered_at_once(cloud: Cloud, vm: Vm) -> None:
    vm.configure(grace_s=0.5)
    vm.boot()
    starts = 0
    for attempt, (program, limit_s) in enumerate(
        ((BLOCKS, 1.0), (SAVES, 1.5), (IGNORES_SIGTERM, 2.0)), start=1
    ):
        vm.program(program)
        cloud.direct(attempt=attempt, incarnation=1)
        took_s = []
        for incarnation in (2, 3, 4):
            starts += 1
            vm.wait_for_line("START ", number=starts)
            directed = cloud.direct(attempt=attempt, incarnation=incarnation, action="hold")
            took_s.append(cloud.wait_for_message("vm-ready", (attempt, incarnation)).at - directed)
            if incarnation < 4:
                cloud.direct(attempt=attempt, incarnation=incarnation)
        print(f"hold to vm-ready: {', '.join(f'{s * 1000:.0f} ms' for s in took_s)}")
        assert is_quick(min(took_s), limit_s), (
            "an idle machine needs a tenth of a second, and the grace"
        )


@pytest.mark.parametrize("is_reported", [True, False])
def test_vm_ready_under_hold_says_how_the_previous_program_ended(
    cloud: Cloud, vm: Vm, is_reported: bool
) -> None:
    vm.program("raise ValueError('bad batch')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("vm-ready", (1, 1))
    end: dict[str, object] = {}
    if is_reported:
        end = cloud.wait_for_message("replica-exit", (1, 1)).body
        cloud.direct(attempt=1, incarnation=2, action="hold")
    else:
        with cloud.publishing_fails():
            cloud.wait_for_refusal("replica-exit")
            cloud.direct(attempt=1, incarnation=2, action="hold")
            vm.wait_for_line("[trainmaster] Directive: hold attempt 1, incarnation 2.")
    ended = cloud.wait_for_message("vm-ready", (1, 2)).body["ended"]
    assert (ended["attempt"], ended["incarnation"], ended["cause"], ended["exit_status"]) == (
        1,
        1,
        "process",
        1,
    )
    assert (ended["error"]["type"], ended["error"]["message"]) == ("ValueError", "bad batch")
    if is_reported:
        assert ended == {name: end[name] for name in ended}
    vm.terminate()
    assert vm.wait() == 0
    vm.boot()
    again = cloud.wait_for_message("vm-ready", (1, 2), number=2)
    assert again.body["ended"] == ended, "the disk keeps it"
    assert not [
        subject
        for topic, subject in cloud.published()
        if topic == "replica-exit" and not is_reported
    ]


def test_setup_failure_under_hold_is_reported_as_an_exit(cloud: Cloud, vm: Vm) -> None:
    vm.configure(package_uris=["gs://bucket/no-such-package.tar.gz#1"])
    cloud.direct(attempt=1, incarnation=1, action="hold")
    vm.boot()
    body = cloud.wait_for_message("replica-exit", (1, 1)).body
    assert (body["cause"], body["error"]["type"]) == ("install", "DownloadError")
    assert ("vm-ready", (1, 1)) not in cloud.published()


def test_unaccepted_exit_is_dropped_for_a_newer_incarnation(cloud: Cloud, vm: Vm) -> None:
    vm.program(FAILS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    with cloud.publishing_fails():
        cloud.wait_for_refusal("vm-ready")
        vm.wait_for_line("[trainmaster] Module ended with exit status 1")
        vm.program(BLOCKS)
        cloud.direct(attempt=1, incarnation=2)
        vm.wait_for_line("START ", number=2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert cloud.published() == [("vm-ready", (1, 2))]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ((1, 1), None, True),
        ((1, 2), (1, 1), True),
        ((2, 1), (1, 9), True),
        ((1, 1), (1, 1), False),
        ((1, 9), (2, 1), False),
    ],
)
def test_later_incarnation_supersedes_an_earlier_one(
    new: tuple[int, int], old: tuple[int, int] | None, expected: bool
) -> None:
    assert supersedes(IncarnationKey(*new), IncarnationKey(*old) if old else None) is expected


def test_program_without_peers_is_asked_to_save_if_it_catches_the_signal(
    cloud: Cloud, vm: Vm
) -> None:
    vm.boot()
    for attempt, (program, cause) in enumerate(((SAVES, "saved"), (ENDS, "process")), start=1):
        vm.program(program)
        cloud.direct(attempt=attempt, incarnation=1)
        vm.wait_for_line("START", number=attempt)
        cloud.direct(
            attempt=attempt,
            incarnation=1,
            action="save",
            save_number=1,
            until=int(time.time()) + 600,
        )
        body = cloud.wait_for_message("replica-exit", (attempt, 1)).body
        assert (body["cause"], body["exit_status"]) == (cause, 0)
