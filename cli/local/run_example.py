"""`trainmaster local run`: run an example job on a stack of its own, and show live what happens.

    start the stack ──► upload package and job file with gsutil ──► monitor the job ──► summary ──► stop the stack

With `--faults`, a worker's program is killed and another worker's VM is preempted during the training.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from cli.jobs import print_trials
from cli.local.example_stack import RunningStack, stack_in_memory, stack_on_emulators
from cli.local.job_monitor import JobMonitor, Report
from cli.output import literal_text
from emulators.realism.profile import GOOGLE_CLOUD
from emulators.services.fault_client import FaultClient
from emulators.stack.backends import BackendKind, choose_backend
from emulators.stack.state import ROOT, StackConfig
from shared.core.model.job import Job, JobState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm_names import vm_name
from shared.errors import PermanentError
from shared.ports import Fleet, Objects, Store
from shared.presentation.ml_units import usage

EXAMPLES: Final = ROOT / "examples"
ALGORITHM_PREFIX: Final = "algorithm_"
"""Examples of built-in algorithms have data instead of a package."""
DATA_PYTHON: Final = ROOT / ".images" / "scikit-learn" / "bin" / "python"
JOB_STORED_MAX_S: Final = 30.0
VMS_GONE_MAX_S: Final = 60.0
FILE_BYTES_MAX: Final = 1 << 20


@dataclass
class Phases:
    """Measures how long the phases of the run take. A phase ends when the next one begins."""

    starts: list[tuple[str, float]] = field(default_factory=list)

    def begin(self, name: str) -> None:
        self.starts.append((name, time.monotonic()))

    @property
    def current(self) -> str:
        return self.starts[-1][0]

    def lines(self) -> Iterator[str]:
        """Yield name and duration of each phase."""
        ends = [at for _, at in self.starts[1:]] + [time.monotonic()]
        for (name, start), end in zip(self.starts, ends, strict=True):
            yield f"{name:<28} {end - start:6.1f} s"


@dataclass
class FaultPlan:
    """Kills the program of worker 0 after 3 epochs, and preempts the VM of worker 1 after 8."""

    monitor: JobMonitor
    faults: FaultClient
    report: Report
    notice_s: float | None = 2.0
    """Time from the preemption notice to the end of the VM. None: that of Google Cloud."""
    _steps: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._steps = [(3, self._kill), (8, self._preempt)]

    def inject_due_faults(self, job: Job) -> None:
        """Inject the next fault if enough epochs are done."""
        if job.state is JobState.RUNNING and self._steps and self.monitor.epochs >= self._steps[0][0]:
            self._steps.pop(0)[1]()

    @property
    def is_complete(self) -> bool:
        """Whether all faults were injected."""
        return not self._steps

    def _kill(self) -> None:
        self.report.line("FAULT", "sending SIGKILL to the program of worker 0", "bold magenta")
        self.faults.kill_program(vm_name(self.monitor.job_id, ReplicaId(TaskType.WORKER, 0)))

    def _preempt(self) -> None:
        self.report.line("FAULT", "preempting the VM of worker 1", "bold magenta")
        self.faults.preempt(vm_name(self.monitor.job_id, ReplicaId(TaskType.WORKER, 1)), notice_s=self.notice_s)


Realistic = Annotated[
    bool, typer.Option("--realistic", help="Durations, API quotas and failures of Google Cloud, not those of a demo.")
]
TimeScale = Annotated[float, typer.Option(min=0.01, max=1, help="With --realistic: factor of all durations.")]


def run(
    example: Annotated[str, typer.Argument(help="Folder of examples/ with a job.yaml.")] = "digits",
    faults: Annotated[bool, typer.Option("--faults", help="Kill a worker's program, and preempt a VM.")] = False,
    state_dir: Annotated[Path, typer.Option(help="Folder for the stack's state and the model.")] = Path(".state/run"),
    realistic: Realistic = False,
    time_scale: TimeScale = 1.0,
) -> None:
    """Run an example job on a stack of its own and show what happens. The exit status is 0 only if it SUCCEEDED."""
    if not (EXAMPLES / example / "job.yaml").is_file():
        raise PermanentError(f"there is no example {example}: {EXAMPLES / example} has no job.yaml")
    report, phases = Report(), Phases()
    backend = choose_backend()
    in_memory = backend.kind is BackendKind.MEMORY
    phases.begin("stack start")
    if in_memory:
        report.line("stack", f"starting without emulators, in one process with in-memory adapters: {backend.reason}")
    else:
        report.line("stack", f"starting on {backend.kind}: {backend.reason}")
    try:
        config = StackConfig(realistic=realistic, time_scale=time_scale)
        with (stack_in_memory if in_memory else stack_on_emulators)(state_dir.absolute(), config) as running:
            report.line("stack", f"ready after {running.state.ready_after_s:.1f} s")
            succeeded = _run_job(example, running, report, phases, with_faults=faults)
    except KeyboardInterrupt:
        report.line("stack", "interrupted; stopping everything")
        raise
    raise typer.Exit(0 if succeeded else 1)


def _run_job(example: str, running: RunningStack, report: Report, phases: Phases, *, with_faults: bool) -> bool:
    """Run the example and return whether it succeeded, all faults were injected, and all VMs are gone."""
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


def upload(example: str, running: RunningStack, report: Report) -> None:
    """Upload the package or the data, then the job file, with the real gsutil if it is installed."""
    job_file = EXAMPLES / example / "job.yaml"
    with tempfile.TemporaryDirectory() as scratch:
        for uri in yaml.safe_load(job_file.read_text(encoding="utf-8"))["trainingInput"].get("packageUris", ()):
            command = [sys.executable, str(EXAMPLES / "package.py"), example, scratch]
            archive = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            _copy(Path(archive), uri, running.objects, report)
        if example.startswith(ALGORITHM_PREFIX):
            _upload_data(example, Path(scratch), running, report)
        _copy(job_file, f"gs://{running.state.config.bucket}/jobs/{example}.yaml", running.objects, report)


def _upload_data(example: str, scratch: Path, running: RunningStack, report: Report) -> None:
    """Write the data of an algorithm with the Python that has scikit-learn, and upload the files."""
    command = [str(DATA_PYTHON), str(EXAMPLES / "algorithm_data.py"), example, str(scratch)]
    if not DATA_PYTHON.exists():
        raise PermanentError(f"{DATA_PYTHON} is missing; `make images` builds it")
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        uri = f"gs://{running.state.config.bucket}/{Path(line).relative_to(scratch).as_posix()}"
        _copy(Path(line), uri, running.objects, report)


def _copy(source: Path, uri: str, objects: Objects, report: Report) -> None:
    name = os.path.relpath(source, ROOT) if source.is_relative_to(ROOT) else source.name
    if shutil.which("gsutil") is None:
        report.line("upload", f"{name} -> {uri} (with the client library: gsutil is not installed)")
        objects.write(uri, source.read_bytes(), content_type="application/octet-stream")
        return
    report.line("$", f"gsutil cp {name} {uri}", "bold")
    result = subprocess.run(["gsutil", "-q", "cp", str(source), uri], capture_output=True, text=True, check=False)
    if result.returncode:
        raise PermanentError(f"gsutil failed: {result.stderr.strip()}")


def wait_for_job(store: Store, objects: Objects, uri: str) -> str:
    """Return the id of the job that the uploaded file became. Raises PermanentError if it was refused."""
    deadline = time.monotonic() + JOB_STORED_MAX_S
    while time.monotonic() < deadline:
        for job in store.recent_jobs(5):
            if job.submission.partition("#")[0] == uri:
                return job.job_id
        if error := objects.read(f"{uri}.error.json", max_bytes=FILE_BYTES_MAX):
            raise PermanentError(f"the job file was refused: {error.decode()}")
        time.sleep(0.1)
    raise PermanentError(
        f"{uri} did not become a job within {JOB_STORED_MAX_S:.0f} s. See the functions' logs in the state folder"
    )


def follow(monitor: JobMonitor, phases: Phases, plan: FaultPlan | None) -> Job:
    """Follow the job until it has ended, and inject the planned faults."""
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
    while vms_left := len(fleet.list_vms(monitor.job_id)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    monitor.poll()
    return vms_left


def print_summary(job: Job, running: RunningStack, report: Report, phases: Phases, vms_left: int) -> None:
    console, metrics = report.console, _read_metrics(job, running.objects)
    console.print()
    console.print(f"[bold]{job.job_id}: {job.state}[/]")
    if job.error_message:
        console.print(literal_text(f"  error       {job.error_message}"))
    if metrics:
        values = ", ".join(f"{name} {_format_value(value)}" for name, value in metrics.items())
        console.print(literal_text(f"  metrics     {values}"))
    if job.plan.program.job_dir:
        storage = Path(running.state.services["storage"].log).parents[1] / "storage"
        folder = storage / job.plan.program.job_dir.removeprefix("gs://")
        console.print(literal_text(f"  model       {job.plan.program.job_dir}  (files in {os.path.relpath(folder)})"))
    loaded = running.store.load_attempt(job.job_id)
    for replica in loaded.state.replicas if loaded else ():
        counts = f"restarts {replica.restarts_used}, replaced {replica.replaced}, collateral {replica.collateral}"
        console.print(f"  {replica.replica_id.words:<11} incarnations {replica.incarnation}, {counts}")
    if job.tuning is not None:
        print_trials(job.tuning)
    console.print(f"  attempts    {job.attempt}; VMs left: {vms_left}")
    console.print(f"  used        {usage(job, datetime.now(UTC)).words}")
    for substitution in job.plan.substitutions:
        words = f"{substitution.field}: {substitution.requested} -> {substitution.replacement}"
        console.print(literal_text(f"  substituted {words}"))
    for line in phases.lines():
        console.print(f"  [dim]{line}[/]")
    console.print(f"  [dim]{'total':<28} {time.monotonic() - report.started:6.1f} s[/]")


def _read_metrics(job: Job, objects: Objects) -> dict[str, Any]:
    """Return the metrics that the program wrote to its job directory; empty if there are none."""
    job_dir = job.plan.program.job_dir
    data = objects.read(f"{job_dir.rstrip('/')}/metrics.json", max_bytes=FILE_BYTES_MAX) if job_dir else None
    metrics = json.loads(data) if data and job.state is JobState.SUCCEEDED else {}
    return metrics if isinstance(metrics, dict) else {}


def _format_value(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
