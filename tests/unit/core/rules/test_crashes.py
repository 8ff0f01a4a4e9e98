"""Crashes: the place that faulthandler prints, and whether the same place again proves a bug.

`held(n)` is a job of three members whose round n awaits the verdict on the round before;
`judge_held` is this verdict, on the given ends (`tests.support.held_rounds`).

Decisions are written as the number of the rule, the action and the reason:
`8 fail_job same_failure_again`.

An attempt is one execution of the whole job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support import alone
from tests.support.decisions import summarize
from tests.support.held_rounds import held, judge_held
from tests.support.jobs import CHIEF, WORKER_0, a_plan, a_replica, a_state, at, exited
from trainmaster.core.actions import RerunJob
from trainmaster.core.events import ExitCause, ProgramError, ReplicaExited
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.task_group import Accelerator
from trainmaster.core.rules.crash import crash_place, crash_signal
from trainmaster.core.rules.judge import judge

OTHER_THREAD: Final = """Thread 0x00007fb7961ff6c0 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait
  File "/home/trainmaster/run/loader.py", line 9 in fetch

"""
CURRENT: Final = """Current thread 0x00007fb7969bab80 (most recent call first):
  File "/usr/lib/python3.12/ctypes/__init__.py", line 519 in string_at
  File "/home/trainmaster/run/train.py", line 4 in <module>

"""
STACKS: Final = f"loading\nFatal Python error: Segmentation fault\n\n{OTHER_THREAD}{CURRENT}"
PLACE: Final = " in string_at (run/train.py:4)"
ELSEWHERE: Final = STACKS.replace("line 4", "line 5")
LAUNCHED: Final = ProgramError(
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
    "Signal 11 (SIGSEGV) received by PID 4711",
    "",
)
REPEATED: Final = "8 fail_job same_failure_again"
RERUN: Final = "9 rerun_job crash_signal"
CRASHED: Final = exited(CHIEF, signal=11, tail=STACKS, ran_s=5)
ABORTED: Final = replace(CRASHED, signal=6)
ONE_VM: Final = a_state(a_replica(CHIEF), job=alone.a_job(plan=a_plan(workers=0)))


def with_plan(**changes: object) -> State:
    plan = replace(a_plan(workers=0), **changes)  # type: ignore[arg-type]
    return a_state(a_replica(CHIEF), job=alone.a_job(plan=plan))


def with_policy(policy: ExitPolicy) -> State:
    return a_state(a_replica(CHIEF), job=alone.a_job(plan=a_plan(workers=0, exit_policy=policy)))


ON_GPUS: Final = with_plan(
    groups=tuple(
        replace(group, accelerator=Accelerator("nvidia-l4", 1))
        for group in a_plan(workers=0).groups
    )
)


@pytest.mark.parametrize(
    ("tail", "place"),
    [
        pytest.param(STACKS, PLACE, id="the thread that crashed, not the first one"),
        pytest.param(
            STACKS.replace("bab80 (", "bab80 [python] ("),
            PLACE,
            id="with its name, as Python 3.14 prints it",
        ),
        pytest.param(
            f"{CURRENT}Fatal Python error: Aborted\n\n{CURRENT.replace('line 4', 'line 7')}",
            PLACE.replace("4", "7"),
            id="stacks that the program printed before",
        ),
        pytest.param(
            f"Fatal Python error: Segmentation fault\n\n{OTHER_THREAD}",
            "",
            id="a thread without Python crashed",
        ),
        pytest.param(
            STACKS.replace(CURRENT, CURRENT.partition("  File")[0] + "  <no Python frame>\n\n"),
            "",
            id="it has no frame",
        ),
        pytest.param(CURRENT, "", id="stacks without a crash"),
        pytest.param("", "", id="no output"),
    ],
)
def test_place_is_that_of_the_thread_that_crashed(tail: str, place: str) -> None:
    assert crash_place(replace(CRASHED, tail=tail)) == place


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (CRASHED, "SIGSEGV"),
        (exited(CHIEF, 134), "SIGABRT"),
        (exited(CHIEF, 1, error=LAUNCHED), "SIGSEGV"),
        (exited(CHIEF, signal=9), None),
        (exited(CHIEF, 1), None),
        (exited(CHIEF, signal=6, cause=ExitCause.STALLED), None),
        (exited(CHIEF, 1, error=replace(LAUNCHED, message="Signal 9 (SIGKILL)")), None),
    ],
)
def test_signal_of_a_crash_is_that_of_the_program_or_of_what_it_launched(
    event: ReplicaExited, name: str | None
) -> None:
    ended_by = crash_signal(event)
    assert (ended_by.name if ended_by else None) == name


def after_crash(state: State, event: ReplicaExited) -> State:
    """Return the state after the crash of a job's only VM, when its program runs again."""
    following = apply(state, evolve(state, judge(state, event, at(100)), at(100)))
    replicas = tuple(
        replace(replica, state=ReplicaState.RUNNING, ready_at=at(101), instance_id="1001")
        for replica in following.replicas
        if replica.attempt == following.job.attempt
    )
    return a_state(*replicas, job=following.job)


def again(state: State, event: ReplicaExited) -> ReplicaExited:
    """Return the same exit of the program that runs now."""
    (replica,) = state.replicas
    subject = replace(
        event.subject,
        attempt=replica.attempt,
        incarnation=replica.incarnation,
        vm_generation=replica.vm_generation,
    )
    return replace(event, subject=subject)


@pytest.mark.parametrize(
    ("first", "second", "state", "what"),
    [
        pytest.param(CRASHED, CRASHED, ONE_VM, REPEATED, id="the same place"),
        pytest.param(ABORTED, ABORTED, ONE_VM, REPEATED, id="an abort at the same place"),
        pytest.param(
            CRASHED, CRASHED, with_policy(ExitPolicy(Preset.SERVICE)), REPEATED, id="preset service"
        ),
        pytest.param(CRASHED, replace(CRASHED, tail=ELSEWHERE), ONE_VM, RERUN, id="another line"),
        pytest.param(CRASHED, ABORTED, ONE_VM, RERUN, id="another signal"),
        pytest.param(
            replace(CRASHED, tail=""), replace(CRASHED, tail=""), ONE_VM, RERUN, id="no place"
        ),
        pytest.param(CRASHED, replace(CRASHED, ran_s=600), ONE_VM, RERUN, id="after a long time"),
        pytest.param(
            replace(CRASHED, ran_s=600),
            CRASHED,
            ONE_VM,
            RERUN,
            id="the first one after a long time",
        ),
        pytest.param(CRASHED, CRASHED, ON_GPUS, RERUN, id="on GPUs"),
        pytest.param(
            CRASHED,
            CRASHED,
            with_policy(ExitPolicy(rules=(ExitRule(139, 139, ExitAction.RERUN),))),
            "9 rerun_job exit_policy",
            id="the job's policy",
        ),
        pytest.param(
            replace(CRASHED, signal=4),
            replace(CRASHED, signal=4),
            ONE_VM,
            "10 restart_replica non_zero_exit",
            id="an illegal instruction",
        ),
        pytest.param(
            replace(ABORTED, error=ProgramError("Aborted", "UNAVAILABLE: connection reset", "")),
            replace(ABORTED, error=ProgramError("Aborted", "UNAVAILABLE: connection reset", "")),
            ONE_VM,
            RERUN,
            id="an abort whose words may pass",
        ),
    ],
)
def test_second_crash_at_the_same_place_ends_the_job(
    first: ReplicaExited, second: ReplicaExited, state: State, what: str
) -> None:
    crashed = after_crash(state, first)
    assert summarize(judge(crashed, again(crashed, second), at(200))) == what


def test_third_crash_after_one_elsewhere_is_no_repetition_of_the_first() -> None:
    state = after_crash(ONE_VM, CRASHED)
    state = after_crash(state, again(state, replace(CRASHED, tail=ELSEWHERE)))
    decision = judge(state, again(state, CRASHED), at(300))
    assert summarize(decision) == RERUN


@pytest.mark.parametrize(
    ("event", "what"),
    [
        pytest.param(exited(WORKER_0, signal=11, tail=STACKS, ran_s=5), REPEATED, id="a member"),
        pytest.param(
            exited(WORKER_0, 1, error=LAUNCHED, tail=STACKS, ran_s=5),
            REPEATED,
            id="a rank of a launcher",
        ),
        pytest.param(
            exited(WORKER_0, signal=6, tail=STACKS, ran_s=5),
            "10 begin_round non_zero_exit",
            id="an abort, with which a runtime gives up on peers",
        ),
    ],
)
def test_second_crash_of_a_gang_at_the_same_place_ends_the_job(
    event: ReplicaExited, what: str
) -> None:
    state = held()
    begun = apply(state, evolve(state, judge_held(state, event), at(100)))
    subject = replace(event.subject, incarnation=2)
    decision = judge_held(
        held(round_number=3, bug=begun.job.round.bug), replace(event, subject=subject)
    )
    assert summarize(decision) == what


def test_decision_says_where_a_launched_process_crashed() -> None:
    event = exited(CHIEF, 1, error=LAUNCHED, tail=STACKS, ran_s=5)
    words = f"Signal 11 (SIGSEGV) received by PID 4711{PLACE}: it restarts"
    assert words in judge(ONE_VM, event, at(100)).text


def test_rerun_of_whole_jobs_keeps_the_signature() -> None:
    bug = ProgramError("ValueError", "bad shape", "train.py:4 in main", "train.py:4 in main")
    plan = a_plan(workers=0, restart_job_on_worker_restart=True)
    state = a_state(a_replica(CHIEF), job=alone.a_job(plan=plan))
    failure = exited(CHIEF, 1, error=bug, ran_s=5)
    rerun = judge(state, failure, at(100)).action
    assert isinstance(rerun, RerunJob)
    assert rerun.bug is not None
    following = after_crash(state, failure)
    assert summarize(judge(following, again(following, failure), at(200))) == REPEATED
