"""The examples run from their job files to a model, with real frameworks in real processes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from tests.e2e.conftest import Lab
from trainmaster.core.decisions import Reason, Rule
from trainmaster.core.model.job import State
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.presentation.job_view import job_view
from trainmaster_local.cli.job_monitor import JobMonitor, Report
from trainmaster_local.cli.run_example import FaultPlan

HEAVY = pytest.mark.heavy(
    fact="frameworks train on VMs",
    quick=(
        "`e2e/jobs/test_local_run.py` with scikit-learn, `integration/agent/test_program.py`,"
        " `unit/agent/program/test_conventions.py`"
    ),
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

CHIEF, WORKER_0, WORKER_1 = (
    ReplicaId(TaskType.CHIEF, 0),
    ReplicaId(TaskType.WORKER, 0),
    ReplicaId(TaskType.WORKER, 1),
)


@dataclass
class RecordedLines(Report):
    """A report that keeps the printed lines."""

    console: Console = field(default_factory=lambda: Console(quiet=True))
    lines: list[tuple[str, str]] = field(default_factory=list)

    def line(self, source: str, text: str, style: str = "") -> None:
        self.lines.append((source, text))


def metrics(lab: Lab, state: State) -> dict[str, object]:
    data = lab.objects.read(f"{state.job.plan.program.job_dir}/metrics.json", max_bytes=1 << 20)
    assert data is not None
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


def accuracy(lab: Lab, state: State) -> float:
    return float(str(metrics(lab, state)["accuracy"]))


def check_resumed(lab: Lab, state: State) -> None:
    """Check that a later incarnation of the chief continued from a checkpoint.

    Its VM, and its console, may be gone.
    """
    assert "resuming from epoch" in lab.stack.run("trainmaster", "logs", state.job.job_id).stdout


@HEAVY
def test_digits_example_trains_a_model_on_its_chief(lab: Lab) -> None:
    state = lab.wait_for_success(
        lab.example("digits", workerType=None, workerCount=None, args=["--epochs", "4"]), 180
    )
    assert accuracy(lab, state) >= 0.8
    assert metrics(lab, state)["epochs"] == 4


@HEAVY
def test_digits_example_survives_a_lost_vm(lab: Lab) -> None:
    job_id = lab.example("digits", workerCount="1", args=["--epochs", "8", "--epoch-seconds", "1"])
    lab.wait(job_id, "RUNNING", 90)
    lab.until(lambda: "epoch 2/" in lab.console(job_id, CHIEF), 90)
    lab.faults.preempt(vm_name(job_id, WORKER_0), notice_s=2)
    state = lab.wait_for_success(job_id, 180)
    assert accuracy(lab, state) >= 0.9
    assert metrics(lab, state)["epochs"] == 8
    check_resumed(lab, state)
    assert [replica.replaced for replica in state.replicas] == [0, 1]
    assert state.job.attempt == 1
    assert {Rule.VM_LOST, Rule.PRIMARY_DONE} <= {
        entry.decision.rule for entry in lab.decisions(job_id)
    }


@HEAVY
def test_digits_example_survives_a_killed_worker_and_a_lost_vm(lab: Lab) -> None:
    job_id = lab.example("digits")
    report = RecordedLines()
    monitor = JobMonitor(lab.store, lab.fleet, job_id, report)
    plan = FaultPlan(monitor, lab.faults, report)
    for job in monitor.follow():
        plan.inject_due_faults(job)
    state = lab.wait_for_success(job_id)
    assert plan.is_complete, "both faults were injected during the training"
    assert accuracy(lab, state) >= 0.95
    by_replica_id = {replica.replica_id: replica for replica in state.replicas}
    assert by_replica_id[WORKER_1].replaced == 1
    assert state.job.attempt == 1
    epochs = [
        int(match.group(1))
        for source, text in report.lines
        if source == "chief 0" and (match := re.match(r"epoch (\d+)/", text))
    ]
    desired = int(state.job.plan.program.args[state.job.plan.program.args.index("--epochs") + 1])
    assert metrics(lab, state)["epochs"] == desired
    assert len(set(epochs)) >= desired - 3, "progress was printed during the training"
    check_resumed(lab, state)
    rules = {entry.decision.rule for entry in lab.decisions(job_id)}
    assert {Rule.RESTART, Rule.VM_LOST, Rule.ROUND, Rule.PRIMARY_DONE} <= rules
    decisions = [text for source, text in report.lines if source == "decision"]
    assert any("SIGKILL" in text and "in the same VM" in text for text in decisions)
    assert any("waits for another VM of worker 1" in text for text in decisions)
    assert any(entry.decision.reason is Reason.PREEMPTION for entry in lab.decisions(job_id))


@HEAVY
def test_legacy_job_file_runs_and_lists_its_substitutions(lab: Lab) -> None:
    """The scripted trainer replaces the example's own, which the next test runs."""
    arguments = ["--steps", "2", "--together"]
    state = lab.wait_for_success(lab.example("legacy", args=arguments, packageUris=[lab.wheel()]))
    view = job_view(state.job, state.replicas)
    assert view["trainingInput"]["runtimeVersion"] == "2.11", "shown as submitted"
    substitutions = view["trainmaster"]["substitutions"]
    assert {
        (change["field"].removeprefix("trainingInput."), change["requested"])
        for change in substitutions
    } >= {
        ("masterType", "standard"),
        ("runtimeVersion", "2.11"),
        ("runtimeVersion", "Keras of 2.11"),
        ("pythonVersion", "3.7"),
    }


@HEAVY
def test_legacy_example_trains_an_accurate_model(lab: Lab) -> None:
    state = lab.wait_for_success(lab.example("legacy", args=["--epochs", "2"]), 180)
    assert metrics(lab, state)["epochs"] == 2


@HEAVY
def test_pytorch_example_trains_on_two_vms(lab: Lab) -> None:
    state = lab.wait_for_success(lab.example("pytorch_ddp", args=["--epochs", "5"]), 180)
    assert accuracy(lab, state) >= 0.85


@HEAVY
def test_pytorch_ranks_of_two_vms_find_each_other(lab: Lab) -> None:
    """The program fails unless each rank counts both."""
    spec = lab.scripted_spec(
        workers=1, pythonModule="trainer.ranks", args=[], runtimeVersion="pytorch-2.13"
    )
    lab.wait_for_success(lab.upload(spec, "ranks"), 120)
