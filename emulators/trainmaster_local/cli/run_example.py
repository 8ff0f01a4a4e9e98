"""`trainmaster local run`: run an example job on a stack of its own, and show live what happens.

    start the stack ──► upload package and job file with gsutil ──► monitor the job
      ──► summary ──► stop the stack

With `--faults`, a worker's program is killed and another worker's VM is preempted during the
training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import PermanentError
from trainmaster.ports import Fleet
from trainmaster_emulators.process.backends import BackendKind, choose_backend
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.realism.profile import GOOGLE_CLOUD
from trainmaster_emulators.services.fault_client import FaultClient
from trainmaster_local.cli.example_stack import RunningStack, example_stack
from trainmaster_local.cli.example_summary import Phases, print_summary
from trainmaster_local.cli.example_upload import EXAMPLES, upload, wait_for_job
from trainmaster_local.cli.job_monitor import JobMonitor, Report

VMS_GONE_MAX_S: Final = 60.0
"""Longest time, in seconds, that VMs may exist after the end of their job."""
POLL_S: Final = 0.2
"""Pause between two lists of these VMs, in seconds."""


@dataclass
class FaultPlan:
    """Kills the program of worker 0 after 3 epochs, and preempts the VM of worker 1 after 8."""

    monitor: JobMonitor
    faults: FaultClient
    report: Report
    notice_s: float | None = 2.0
    """Time from the preemption notice to the end of the VM. None: that of Google Cloud."""
    _steps: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    """Faults that were not injected yet: epochs of the primary that must be done, and the fault."""

    def __post_init__(self) -> None:
        self._steps = [(3, self._kill), (8, self._preempt)]

    def inject_due_faults(self, job: Job) -> None:
        """Inject the next fault if enough epochs are done."""
        if job.state is not JobState.RUNNING or not self._steps:
            return
        epochs, inject = self._steps[0]
        if self.monitor.epochs >= epochs:
            del self._steps[0]
            inject()

    @property
    def is_complete(self) -> bool:
        """Whether all faults were injected."""
        return not self._steps

    def _kill(self) -> None:
        self.report.line("FAULT", "sending SIGKILL to the program of worker 0", "bold magenta")
        self.faults.kill_program(vm_name(self.monitor.job_id, ReplicaId(TaskType.WORKER, 0)))

    def _preempt(self) -> None:
        self.report.line("FAULT", "preempting the VM of worker 1", "bold magenta")
        self.faults.preempt(
            vm_name(self.monitor.job_id, ReplicaId(TaskType.WORKER, 1)), notice_s=self.notice_s
        )


Realistic = Annotated[
    bool,
    typer.Option(
        "--realistic",
        help="Durations, API quotas and failures of Google Cloud, not those of a demo.",
    ),
]
TimeScale = Annotated[
    float,
    typer.Option(
        min=0.01, max=1, metavar="FACTOR", help="With --realistic: factor of all durations."
    ),
]


def run(
    example: Annotated[
        str, typer.Argument(metavar="EXAMPLE", help="Folder of examples/ with a job.yaml.")
    ] = "digits",
    faults: Annotated[
        bool, typer.Option("--faults", help="Kill a worker's program, and preempt a VM.")
    ] = False,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the stack's state and the model.")
    ] = Path(".state/run"),
    realistic: Realistic = False,
    time_scale: TimeScale = 1.0,
) -> None:
    """Run an example job on a stack of its own and show what happens. The exit status is 0 only if
    it SUCCEEDED.
    """
    if not EXAMPLES.is_dir():
        raise PermanentError(
            "the examples are in a checkout, not in the installed package: `make run` there"
            " runs one"
        )
    if not (EXAMPLES / example / "job.yaml").is_file():
        raise PermanentError(f"there is no example {example}: {EXAMPLES / example} has no job.yaml")
    report = Report()
    phases = Phases()
    backend = choose_backend()
    in_memory = backend.kind is BackendKind.MEMORY
    phases.begin("stack start")
    if in_memory:
        report.line(
            "stack",
            f"starting without emulators, in one process with in-memory adapters: {backend.reason}",
        )
    else:
        report.line("stack", f"starting on {backend.kind}: {backend.reason}")
    try:
        config = StackConfig(realistic=realistic, time_scale=time_scale)
        with example_stack(state_dir.absolute(), config, in_memory=in_memory) as running:
            report.line("stack", f"ready after {running.state.ready_after_s:.1f} s")
            succeeded = _run_job(example, running, report, phases, with_faults=faults)
    except KeyboardInterrupt:
        report.line("stack", "interrupted; stopping everything")
        raise
    raise typer.Exit(0 if succeeded else 1)


def _run_job(
    example: str, running: RunningStack, report: Report, phases: Phases, *, with_faults: bool
) -> bool:
    """Run the example, and return whether all went well.

    The job succeeded, all faults were injected, and all VMs are gone.
    """
    phases.begin("package and upload")
    bucket = running.state.config.bucket
    upload(example, running, report)
    job_id = wait_for_job(running.store, running.objects, f"gs://{bucket}/jobs/{example}.yaml")
    monitor = JobMonitor(running.store, running.fleet, job_id, report)
    plan = FaultPlan(monitor, FaultClient(running.state), report) if with_faults else None
    if plan and running.state.config.realistic:
        plan.notice_s = None
    job = follow(monitor, phases, plan)
    phases.begin("clean-up")
    config = running.state.config
    deletion_max_s = GOOGLE_CLOUD.scaled(config.time_scale).delete.high_s if config.realistic else 0
    vms_left = wait_until_no_vms(monitor, running.fleet, VMS_GONE_MAX_S + deletion_max_s)
    print_summary(job, running, report, phases, vms_left)
    if plan and not plan.is_complete:
        report.line("FAULT", "the job ended before every fault was injected", "bold red")
        return False
    return job.state is JobState.SUCCEEDED and not vms_left


def follow(monitor: JobMonitor, phases: Phases, plan: FaultPlan | None) -> Job:
    """Follow the job until it has ended, and inject the planned faults.

    Raises TemporaryError if the job cannot be read.
    """
    phases.begin("VMs and set-up")
    job = None
    for job in monitor.follow():
        if job.state is JobState.RUNNING and phases.current != "training":
            phases.begin("training")
        if plan:
            plan.inject_due_faults(job)
    if job is None:
        raise PermanentError(f"job {monitor.job_id} was never read")
    return job


def wait_until_no_vms(monitor: JobMonitor, fleet: Fleet, within_s: float) -> int:
    """Return the number of VMs that the job still has after at most `within_s`."""
    deadline = time.monotonic() + within_s
    vms = fleet.list_vms(monitor.job_id)
    while vms and time.monotonic() <= deadline:
        time.sleep(POLL_S)
        vms = fleet.list_vms(monitor.job_id)
    monitor.poll()
    return len(vms)
