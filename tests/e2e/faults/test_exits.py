"""Exits of real processes: each kind of exit has its consequence for the job, and every budget is
exact.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from tests.support.load import is_quick
from trainmaster.core.decisions import Reason
from trainmaster.core.events import ReplicaExited, VmReady
from trainmaster.core.ledger import LedgerEntry, fold
from trainmaster.core.model.job import State
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.process.state import StackError

HEAVY = pytest.mark.heavy(
    fact="each kind of exit of a real program is judged by its rule",
    quick="`unit/core/rules/test_replica_exit.py`, `sim`, `explorer`",
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

WORKER_0 = ReplicaId(TaskType.WORKER, 0)
RESTARTS_MAX = 5
"""Most restarts of a replica in one attempt."""
STARTS = 1 + RESTARTS_MAX
"""Most starts of a replica in one attempt."""
RERUNS_MAX = 3
ATTEMPTS = 1 + RERUNS_MAX


def submit_with_action(lab: Lab, action: str, trainmaster: object = None) -> str:
    args = ["--steps", str(MANY_STEPS), "--step-seconds", "0.05", "--do", f"worker-0:{action}@1"]
    return lab.scripted(workers=1, args=args, trainmaster=trainmaster)


def wait_for_failure(lab: Lab, job_id: str, within_s: float) -> State:
    """Wait until the job has failed and its VMs are gone.

    The ledger's fold must equal the stored state.
    """
    lab.until(lambda: lab.state(job_id).job.state.is_terminal, within_s)
    state = lab.state(job_id)
    assert state.job.state == "FAILED", lab.story(job_id)
    lab.until(lambda: not lab.fleet.list_vms(job_id), 30)
    assert fold(lab.store.ledger(job_id)) == state
    return state


def exits_of_worker(lab: Lab, job_id: str) -> list[LedgerEntry]:
    """Return the ledger entries of worker 0's exits."""
    ledger = lab.store.ledger(job_id)
    return [
        entry
        for entry in ledger
        if isinstance(entry.event, ReplicaExited) and entry.event.subject.replica_id == WORKER_0
    ]


def incarnations(lab: Lab, job_id: str) -> int:
    """Return how many incarnations of worker 0 have ended."""
    return len(exits_of_worker(lab, job_id))


@HEAVY
@pytest.mark.timeout(600)
def test_worker_killed_by_sigterm_every_time_uses_all_restarts_and_reruns(lab: Lab) -> None:
    job_id = submit_with_action(lab, "SIGTERM", trainmaster={"exitPolicy": {"pauses": False}})
    state = wait_for_failure(lab, job_id, 200)
    assert incarnations(lab, job_id) == ATTEMPTS * STARTS
    assert (state.job.attempt, state.job.budgets.reruns_used) == (ATTEMPTS, RERUNS_MAX)
    beginning = "The replica worker 0 exited with a non-zero status of 15(SIGTERM). \n"
    assert (state.job.error_message or "").startswith(beginning)
    exits = exits_of_worker(lab, job_id)
    assert [entry.before.restarts_used for entry in exits] == [*range(STARTS)] * ATTEMPTS
    vms = [
        entry.event.subject.vm.instance_id
        for entry in exits
        if isinstance(entry.event, ReplicaExited)
    ]
    vms_by_attempt = [set(vms[first : first + STARTS]) for first in range(0, len(vms), STARTS)]
    assert [len(used) for used in vms_by_attempt] == [1] * ATTEMPTS, "restarts use the same VM"
    assert len(set(vms)) == ATTEMPTS, "each rerun uses another VM"


@HEAVY
def test_second_identical_exception_fails_the_job_with_its_traceback(lab: Lab) -> None:
    job_id = submit_with_action(lab, "bug")
    state = wait_for_failure(lab, job_id, 60)
    first, second = exits_of_worker(lab, job_id)
    assert is_quick((second.at - first.at).total_seconds(), 15.0)
    message = state.job.error_message or ""
    assert message.startswith("The replica worker 0 exited with a non-zero status of 1. \n")
    assert "ValueError: images of shape (8, 8) expected" in message
    assert lab.decisions(job_id)[-1].decision.reason is Reason.SAME_FAILURE_AGAIN


@HEAVY
def test_second_segmentation_fault_at_the_same_line_fails_the_job(lab: Lab) -> None:
    job_id = submit_with_action(lab, "SIGSEGV", trainmaster={"independentReplicas": True})
    state = wait_for_failure(lab, job_id, 60)
    assert (incarnations(lab, job_id), state.job.attempt) == (2, 2)
    assert "11(SIGSEGV) in " in (state.job.error_message or "")
    assert lab.decisions(job_id)[-1].decision.reason is Reason.SAME_FAILURE_AGAIN


@HEAVY
def test_missing_python_module_fails_the_job_and_is_named(lab: Lab) -> None:
    job_id = submit_with_action(lab, "import")
    state = wait_for_failure(lab, job_id, 30)
    assert incarnations(lab, job_id) == 1
    assert "No module named 'no_such_module'" in (state.job.error_message or "")


@HEAVY
def test_package_that_was_deleted_after_submission_fails_the_job_and_is_named(lab: Lab) -> None:
    missing = f"gs://{lab.bucket}/packages/nowhere-1.0.tar.gz#1"
    job_id = lab.scripted(workers=1, packageUris=[missing])
    state = wait_for_failure(lab, job_id, 60)
    assert "could not install its packages" in (state.job.error_message or "")
    assert "nowhere-1.0.tar.gz" in (state.job.error_message or "")


@HEAVY
def test_exit_policy_takes_precedence_over_the_rules(lab: Lab) -> None:
    spec = {"fail": ["3"], "restart": ["2"]}
    job_id = submit_with_action(lab, "exit=3", trainmaster={"exitPolicy": spec})
    wait_for_failure(lab, job_id, 30)
    assert incarnations(lab, job_id) == 1
    assert lab.decisions(job_id)[-1].decision.reason is Reason.EXIT_POLICY


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """Return a control group with little memory. Only root can create one."""
    root = Path("/sys/fs/cgroup")
    version_1 = root / "memory"
    group = (version_1 if version_1.is_dir() else root) / f"trainmaster-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.limit_in_bytes" if version_1.is_dir() else "memory.max"
        (group / limit).write_text(str(200 << 20))
    except OSError as error:
        pytest.skip(f"cannot create a control group: {error}")
    yield group
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (group / "cgroup.procs").read_text():
        time.sleep(0.2)
    group.rmdir()


@pytest.mark.heavy(
    fact="out of memory fails a job with its reason",
    quick="`integration/agent/test_output.py`, `unit/core/rules/test_replica_exit.py`",
)
def test_out_of_memory_fails_the_job_at_once_with_its_reason(lab: Lab, small_memory: Path) -> None:
    args = ["--steps", str(MANY_STEPS), "--step-seconds", "0.05", "--do", "worker-0:eat@60"]
    job_id = lab.scripted(workers=1, args=args)
    lab.wait(job_id, "RUNNING")
    home = f"/vms/{lab.vm(job_id, WORKER_0).instance_id}/"
    for process in psutil.process_iter(["environ"]):
        if home in (process.info["environ"] or {}).get("HOME", ""):
            (small_memory / "cgroup.procs").write_text(str(process.pid))
    state = wait_for_failure(lab, job_id, 60)
    assert incarnations(lab, job_id) == 1
    assert (state.job.error_message or "").startswith(
        "The replica worker 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL)."
    )


def kill_program(lab: Lab, vm: str) -> bool:
    """Return False if the program does not run yet: a replica reports that it is ready just before
    its start.
    """
    try:
        lab.faults.kill_program(vm)
    except StackError:
        return False
    return True


# Needs an idle machine; tests/integration/agent/test_directives.py covers the agent's part.
@HEAVY
def test_killed_program_restarts_within_two_seconds(lab: Lab) -> None:
    """The time is measured five times, from the exit event to the next incarnation's vm-ready
    event.
    """
    job_id = lab.scripted(workers=1, steps=MANY_STEPS, step_s=0.05)
    lab.wait(job_id, "RUNNING")
    for incarnation in range(2, 7):
        lab.until(lambda: kill_program(lab, vm_name(job_id, WORKER_0)), 20)
        lab.until(
            lambda incarnation=incarnation: lab.store.entry(  # type: ignore[misc]
                job_id, f"1-worker-0-{incarnation}-vm-1-ready"
            ),
            20,
        )
    entries = {entry.key: entry for entry in lab.store.ledger(job_id)}
    took_s = []
    for incarnation in range(1, 6):
        exit_event, ready = (
            entries[f"1-worker-0-{incarnation}-vm-1-exit"].event,
            entries[f"1-worker-0-{incarnation + 1}-vm-1-ready"].event,
        )
        assert isinstance(exit_event, ReplicaExited)
        assert isinstance(ready, VmReady)
        took_s.append((ready.at - exit_event.at).total_seconds())
    assert is_quick(min(took_s), 2.0), took_s
    print("exit to the next incarnation, seconds:", json.dumps(took_s))
    lab.cancel(job_id)
