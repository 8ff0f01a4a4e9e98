"""Rows of failures: what continues and ends them, and the words that users see.

`held(n)` is a job of three members whose round n awaits the verdict on the round before;
`judge_held` is this verdict, on the given ends (`tests.support.held_rounds`).

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support import alone
from tests.support.held_rounds import held, judge_held
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_plan,
    a_replica,
    a_state,
    at,
    exited,
    lost,
)
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import Event, ExitCause, ProgramError, ReplicaExited
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.exit_policy import ExitPolicy, Preset
from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.plan import Restarts
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.rules.failure_row import current_row, failing_words, following_words
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.stall_texts import STILL

UNAVAILABLE: Final = ProgramError(
    "google.api_core.exceptions.ServiceUnavailable",
    "503 try again in 7 s",
    "google/api.py:9 in call",
    "train.py:18 in <module>",
)
"""An error that never proves a bug, so that only the row shows that it repeats."""
WORDS: Final = "google.api_core.exceptions.ServiceUnavailable: 503 try again in 7 s (train.py:18)"
STEP: Final = "train.py:41 in step"
LOSS: Final = "train.py:44 in loss"


def one_vm(**changes: object) -> State:
    """Return a job of one VM, whose program is judged alone."""
    plan = a_plan(workers=0, **changes)
    return a_state(a_replica(CHIEF), job=alone.a_job(plan=plan))


def the_replica(state: State) -> Replica:
    (replica,) = state.replicas
    return replica


def failed(state: State, *, seconds: float = 100, ran_s: float = 5, **more: object) -> State:
    """Return the state after the program of the job's only VM failed once more."""
    replica = the_replica(state)
    changes: dict[str, object] = {"error": UNAVAILABLE, **more}
    event = exited(
        CHIEF,
        1,
        incarnation=replica.incarnation,
        attempt=state.job.attempt,
        ran_s=ran_s,
        seconds=seconds,
        **changes,  # type: ignore[arg-type]
    )
    event = replace(event, subject=replace(event.subject, vm_generation=replica.vm_generation))
    return after(state, event, seconds)


def after(state: State, event: Event, seconds: float) -> State:
    decision = judge(state, event, at(seconds))
    following = apply(state, evolve(state, decision, at(seconds)))
    running = tuple(
        replace(replica, state=ReplicaState.RUNNING, ready_at=at(seconds), instance_id="1001")
        for replica in following.replicas
    )
    return replace(following, replicas=running)


def row_of(state: State, seconds: float = 200) -> FailureRow | None:
    return current_row(state.job, state.replicas, at(seconds))


def test_first_failure_is_no_row_that_users_see() -> None:
    state = failed(one_vm())
    assert the_replica(state).failing is not None
    assert row_of(state) is None


def test_second_failure_is_shown_with_its_words_and_what_follows() -> None:
    state = failed(failed(one_vm(), seconds=100), seconds=160)
    row = row_of(state)
    assert row is not None
    assert failing_words(row) == f"failing: 2 in a row, last {WORDS}"
    assert following_words(state.job, row) == (
        "Restart 2 of 5 after a pause of 1 s. The job is FAILED after at most 22 more failures, at"
        " about 03:41 at this pace."
    )


@pytest.mark.parametrize("pauses", [True, False])
def test_end_at_this_pace_counts_the_pauses_that_follow(pauses: bool) -> None:
    """Each incarnation fails 5 s after the pause that its decision ordered."""
    policy = ExitPolicy(pauses=pauses)
    state = one_vm(restarts=Restarts(exit_policy=policy))
    seconds = 100.0
    state = failed(state, seconds=seconds)
    told = set()
    for failures in range(1, 24):
        seconds += policy.restart_pause_s(failures) + 5
        if failures > 1:
            row = row_of(state, seconds)
            assert row is not None
            told.add(following_words(state.job, row).partition(", at about ")[2])
        state = failed(state, seconds=seconds)
    assert state.job.state is JobState.FAILED
    assert told == {f"{at(seconds):%H:%M} at this pace."}


def test_number_of_failures_that_are_left_is_exact() -> None:
    """With `failures_left` more failures the job is FAILED, and not with one less."""
    state = failed(failed(one_vm()))
    row = row_of(state)
    assert row is not None
    assert row.failures_left is not None
    for left in range(row.failures_left, 0, -1):
        current = row_of(state)
        assert current is not None
        assert (current.failures_left, state.job.state) == (left, JobState.RUNNING)
        state = failed(state)
    assert state.job.state is JobState.FAILED
    assert row_of(state) is None


def test_row_survives_reruns() -> None:
    state = one_vm()
    for _ in range(8):
        state = failed(state)
    row = row_of(state)
    assert row is not None
    assert (state.job.attempt, row.failures) == (2, 8)


@pytest.mark.parametrize(
    ("ran_s", "error", "failures"),
    [
        (5, replace(UNAVAILABLE, message="another one"), 2),
        (3000, replace(UNAVAILABLE, message="503 try again in 9 s"), 2),
        (3000, replace(UNAVAILABLE, message="another one"), 1),
        (3000, replace(UNAVAILABLE, own_frame="train.py:99 in main"), 1),
    ],
    ids=["quick", "long and the same", "long and another error", "long and at another line"],
)
def test_failure_continues_the_row_if_it_is_quick_or_the_same(
    ran_s: float, error: ProgramError, failures: int
) -> None:
    state = failed(failed(one_vm()), ran_s=ran_s, error=error)
    row = the_replica(state).failing
    assert row is not None
    assert row.failures == failures


def test_loss_of_the_vm_and_a_reboot_end_the_row() -> None:
    state = failed(failed(one_vm()))
    incarnation = the_replica(state).incarnation
    preempted = after(state, lost(CHIEF, incarnation=incarnation), 110)
    assert the_replica(preempted).failing is None
    reboot = exited(CHIEF, cause=ExitCause.VM_RESTARTED, incarnation=incarnation)
    assert the_replica(after(state, reboot, 110)).failing is None


def test_row_is_over_when_the_program_runs_for_longer_than_before_any_failure() -> None:
    quick = failed(failed(one_vm()), seconds=100)
    assert row_of(quick, 100 + 600) is not None
    assert row_of(quick, 100 + 601) is None
    slow = failed(failed(one_vm(), ran_s=3000), seconds=100, ran_s=2000)
    assert row_of(slow, 100 + 3000) is not None
    assert row_of(slow, 100 + 3001) is None


def test_row_is_shown_while_the_program_does_not_run() -> None:
    state = failed(failed(one_vm()), seconds=100)
    down = replace(the_replica(state), state=ReplicaState.RESTARTING)
    assert row_of(replace(state, replicas=(down,)), 10_000) is not None


def test_longest_row_of_several_replicas_is_shown() -> None:
    row = FailureRow(2, "first", "a", at(0), at(50))
    longer = replace(row, failures=4, last="second")
    workers = (a_replica(WORKER_0, failing=row), a_replica(WORKER_1, failing=longer))
    state = alone.a_state(*workers)
    assert row_of(state) == longer
    completed = replace(workers[1], state=ReplicaState.COMPLETED)
    assert row_of(alone.a_state(workers[0], completed)) == row


def test_round_has_the_row_of_a_gang_over_all_its_members() -> None:
    state = held()
    for number, member in ((2, WORKER_0), (3, WORKER_1)):
        end = exited(member, 1, error=UNAVAILABLE, ran_s=5, incarnation=number - 1)
        decision = judge_held(state, end)
        begun = apply(state, evolve(state, decision, at(100)))
        row = begun.job.round.failing
        assert row is not None
        assert row.failures == number - 1
        state = held(round_number=number + 1, failing=row, quick_failures=row.failures)
    shown = row_of(state)
    assert shown is not None
    assert shown.failures_left is None, "each member has a budget of its own"
    assert following_words(state.job, shown) == (
        "Restart 1 of 5 of worker 1 after a pause of 1 s. The job's maxRunningTime ends it at"
        " 2026-11-21 04:00."
    )


def hung_at(frame: str, own_frame: str, printed: str = "") -> ReplicaExited:
    error = ProgramError("Silent", f"printed nothing for 60 s{printed}", frame, own_frame)
    return exited(CHIEF, signal=6, cause=ExitCause.STALLED, error=error)


CRASH = """loading a kernel
Fatal Python error: Segmentation fault

Current thread 0x00007fb7969bab80 (most recent call first):
  File "/usr/lib/python3.12/ctypes/__init__.py", line 519 in string_at
  File "/home/trainmaster/run/train.py", line 4 in <module>

Extension modules: numpy (total: 1)
"""


@pytest.mark.parametrize(
    ("event", "text"),
    [
        pytest.param(
            exited(CHIEF, 1, error=UNAVAILABLE),
            f"chief 0 exited with status 1: {WORDS}: it restarts",
            id="traceback",
        ),
        pytest.param(
            replace(exited(CHIEF, 1), stderr_line="train.py: error: no --epochs"),
            'chief 0 exited with status 1; stderr ends with "train.py: error: no --epochs": it',
            id="last line",
        ),
        pytest.param(
            exited(CHIEF, 3, tail="loading\nFATAL: no license\n"),
            'chief 0 exited with status 3; its output ends with "FATAL: no license": it restarts',
            id="last line of stdout",
        ),
        pytest.param(exited(CHIEF, 1), "chief 0 exited with status 1: it restarts", id="no output"),
        pytest.param(
            exited(CHIEF, 247),
            "chief 0 exited with status 247, as sys.exit(-9) does for a child process that SIGKILL"
            " ended: it restarts",
            id="status of a child's signal",
        ),
        pytest.param(exited(CHIEF, 255), "chief 0 exited with status 255: it restarts", id="-1"),
        pytest.param(
            replace(exited(CHIEF, signal=9), stderr_line="epoch 3"),
            "chief 0 was ended by signal 9(SIGKILL): it restarts",
            id="signal: the last line is no cause",
        ),
        pytest.param(
            exited(CHIEF, signal=11, tail=CRASH),
            "chief 0 was ended by signal 11(SIGSEGV) in string_at (run/train.py:4): the whole job",
            id="crash",
        ),
        pytest.param(
            hung_at("socket.py:9 in recv", "run/train.py:4 in load"),
            "chief 0 was ended because it printed nothing for 60 s, in recv (run/train.py:4): it",
            id="hang",
        ),
        pytest.param(
            hung_at("queue.py:9 in get", "train.py:8 in fit", "\nValueError: bad row"),
            (
                "chief 0 was ended because it printed nothing for 60 s, in get (train.py:8), after"
                " the error ValueError: bad row: it restarts"
            ),
            id="hang after an error",
        ),
        pytest.param(
            hung_at("python3.12/threading.py:1590 in _shutdown", "run/train.py:5 in serve"),
            (
                "chief 0 was ended because it printed nothing for 60 s; the main program had ended,"
                " and a thread kept its process (run/train.py:5): it restarts"
            ),
            id="thread that remains",
        ),
    ],
)
def test_decision_says_what_the_program_printed(event: ReplicaExited, text: str) -> None:
    assert judge(one_vm(), event, at(100)).text.startswith(text)


def test_words_of_an_error_are_cut_before_its_line() -> None:
    error = replace(UNAVAILABLE, type="ValueError", message="x" * 5000 + "\nsecond line")
    text = judge(one_vm(), exited(CHIEF, 1, error=error), at(100)).text
    assert "xxx... (train.py:18): it restarts" in text
    assert len(text) < 400
    assert "second" not in text


def a_hang(member_places: dict[str, str], incarnation: int = 1) -> list[ReplicaExited]:
    names = {str(member): member for member in (CHIEF, WORKER_0, WORKER_1)}
    return [
        exited(
            names[name],
            signal=6,
            cause=ExitCause.STALLED,
            error=ProgramError(STILL, "still for 10 minutes", "torch/x.py:1 in call", place),
            incarnation=incarnation,
            ran_s=900,
        )
        for name, place in member_places.items()
    ]


def second_hang(
    first: dict[str, str], second: dict[str, str], policy: ExitPolicy | None = None
) -> Decision:
    """Return the verdict on the second of two hangs in a row."""
    job = alone.a_job(plan=a_plan(exit_policy=policy or ExitPolicy()))
    state = held(job=job)
    begun = apply(state, evolve(state, judge_held(state, *a_hang(first)), at(100)))
    again = held(round_number=3, job=job, bug=begun.job.round.bug)
    return judge_held(again, *a_hang(second, incarnation=2))


MIXED: Final = {str(CHIEF): STEP, str(WORKER_0): LOSS, str(WORKER_1): LOSS}


def test_same_hang_at_the_same_lines_twice_ends_the_job() -> None:
    decision = second_hang(MIXED, MIXED)
    assert (decision.rule, decision.reason) == (Rule.PERMANENT, Reason.SAME_FAILURE_AGAIN)
    assert decision.text.endswith("It hung at the same lines twice in a row, so it is not retried.")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (MIXED, {**MIXED, str(CHIEF): LOSS}),
        ({**MIXED, str(CHIEF): ""}, {**MIXED, str(CHIEF): ""}),
        (dict.fromkeys(MIXED, LOSS), dict.fromkeys(MIXED, LOSS)),
    ],
    ids=["another line", "a line is not known", "all wait for each other"],
)
def test_hang_that_proves_no_bug_is_restarted(
    first: dict[str, str], second: dict[str, str]
) -> None:
    assert second_hang(first, second).reason is Reason.STALLED


def test_policy_that_retries_everything_restarts_the_same_hang() -> None:
    assert second_hang(MIXED, MIXED, ExitPolicy(Preset.RESTART)).reason is Reason.STALLED


def test_hang_of_one_vm_at_the_same_line_twice_ends_the_job() -> None:
    state = one_vm()
    (hang,) = a_hang({str(CHIEF): STEP})
    state = after(state, hang, 1000)
    (again,) = a_hang({str(CHIEF): STEP}, incarnation=2)
    decision = judge(state, again, at(2000))
    assert (decision.rule, decision.reason) == (Rule.PERMANENT, Reason.SAME_FAILURE_AGAIN)
