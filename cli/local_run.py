"""`trainmaster local run`: a real distributed training job from an empty machine to a trained model, live.

    stack up ──► package and job file uploaded with gsutil ──► watched until it ends ──► summary ──► stack down

With `--faults` a worker's program is killed and another worker's VM is preempted while it trains.
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from cli.jobs import print_trials
from cli.watch import Report, Watch
from emulators.services.faults import Faults
from emulators.stack import client_configuration, stack
from emulators.stack.backends import BackendKind, available_backends
from emulators.stack.state import ROOT, StackConfig, StackState
from shared.core.model.job import Job, JobState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.reconcile.plan import vm_name
from shared.errors import PermanentError
from shared.ports import Fleet, Objects, Store
from shared.presentation.ml_units import usage

EXAMPLES: Final = ROOT / "examples"
JOB_APPEARS_S: Final = 30.0
VMS_GONE_S: Final = 60.0
METRICS_BYTES_MAX: Final = 1 << 20


@dataclass
class Phases:
    """How long each part took, in order; a part ends when the next begins."""

    marks: list[tuple[str, float]] = field(default_factory=list)

    def begin(self, name: str) -> None:
        self.marks.append((name, time.monotonic()))

    def lines(self) -> Iterator[str]:
        ends = [at for _, at in self.marks[1:]] + [time.monotonic()]
        for (name, begin), end in zip(self.marks, ends, strict=True):
            yield f"{name:<28} {end - begin:6.1f} s"


@dataclass
class FaultPlan:
    """Kill one worker's program after the third epoch; preempt another's VM some epochs later."""

    watch: Watch
    faults: Faults
    report: Report
    _steps: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._steps = [(3, self._kill), (8, self._preempt)]

    def act(self, job: Job) -> None:
        if job.state is JobState.RUNNING and self._steps and self.watch.epochs >= self._steps[0][0]:
            self._steps.pop(0)[1]()

    @property
    def is_over(self) -> bool:
        return not self._steps

    def _kill(self) -> None:
        self.report.line("FAULT", "SIGKILL to the program of worker 0", "bold magenta")
        self.faults.kill_program(vm_name(self.watch.job_id, ReplicaId(TaskType.WORKER, 0)))

    def _preempt(self) -> None:
        self.report.line("FAULT", "preemption of the VM of worker 1", "bold magenta")
        self.faults.preempt(vm_name(self.watch.job_id, ReplicaId(TaskType.WORKER, 1)), notice_s=2)


def run(
    example: Annotated[str, typer.Argument(help="A folder of examples/ with a job.yaml.")] = "digits",
    faults: Annotated[bool, typer.Option("--faults", help="Kill a worker and take another's VM away.")] = False,
    state_dir: Annotated[Path, typer.Option(help="Where the stack, and the model, are kept.")] = Path(".state/run"),
) -> None:
    """Run an example job on a stack of its own and show what happens. Exit status 0 only if it SUCCEEDED."""
    if not (EXAMPLES / example / "job.yaml").is_file():
        raise PermanentError(f"no example {example}: {EXAMPLES / example} has no job.yaml")
    report, phases = Report(), Phases()
    backend = available_backends()
    in_memory = backend.kind is BackendKind.MEMORY
    phases.begin("stack start")
    if in_memory:
        report.line("stack", f"starting without emulators ({backend.reason}): the adapters in memory, in one process")
    else:
        report.line("stack", f"starting on {backend.kind}: {backend.reason}")
    try:
        with (_in_memory if in_memory else _on_emulators)(state_dir.absolute()) as stack_up:
            report.line("stack", f"ready after {stack_up.state.ready_after_s:.1f} s")
            succeeded = _run_job(example, stack_up, report, phases, with_faults=faults)
    except KeyboardInterrupt:
        report.line("stack", "interrupted: everything is stopped")
        raise
    raise typer.Exit(0 if succeeded else 1)


@dataclass(frozen=True, slots=True)
class StackUp:
    """A stack that is ready, and its state, machines and objects."""

    state: StackState
    store: Store
    fleet: Fleet
    objects: Objects


@contextmanager
def _on_emulators(state_dir: Path) -> Iterator[StackUp]:
    with stack.running_stack(state_dir, StackConfig()) as ready:
        os.environ.update(client_configuration.environment(state_dir, ready))
        from shared.wiring.core_services import store
        from shared.wiring.fleet import machines
        from shared.wiring.objects import objects

        yield StackUp(ready, store(), machines().fleet, objects())


@contextmanager
def _in_memory(state_dir: Path) -> Iterator[StackUp]:
    from emulators.stack.in_process import ControlPlane

    control = ControlPlane()
    try:
        with stack.running_stack(state_dir, StackConfig(control_plane=control.address)) as ready:
            os.environ.update(client_configuration.environment(state_dir, ready))
            from shared.wiring.core_services import job_log
            from shared.wiring.fleet import machines
            from shared.wiring.objects import objects

            control.connect(objects(), machines(), job_log(), ready.endpoints.storage, ready.config.bucket)
            yield StackUp(ready, control.store, machines().fleet, objects())
    finally:
        control.close()


def _run_job(example: str, on: StackUp, report: Report, phases: Phases, *, with_faults: bool) -> bool:
    phases.begin("package and upload")
    bucket = on.state.config.bucket
    upload(example, on, report)
    job_id = wait_for_job(on.store, on.objects, f"gs://{bucket}/jobs/{example}.yaml")
    watch = Watch(on.store, on.fleet, job_id, report)
    plan = FaultPlan(watch, Faults(on.state), report) if with_faults else None
    job = follow(watch, phases, plan)
    phases.begin("clean-up")
    left = wait_for_no_vms(watch, on.fleet)
    summary(job, on, report, phases, left)
    if plan and not plan.is_over:
        report.line("FAULT", "the job ended before every fault was injected", "bold red")
        return False
    return job.state is JobState.SUCCEEDED and not left


def upload(example: str, on: StackUp, report: Report) -> None:
    """As a user would: the package first, then the job file, with the real gsutil where there is one."""
    job_file = EXAMPLES / example / "job.yaml"
    with tempfile.TemporaryDirectory() as scratch:
        for uri in yaml.safe_load(job_file.read_text(encoding="utf-8"))["trainingInput"].get("packageUris", ()):
            command = [sys.executable, str(EXAMPLES / "package.py"), example, scratch]
            built = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            _copy(Path(built), uri, on.objects, report)
        _copy(job_file, f"gs://{on.state.config.bucket}/jobs/{example}.yaml", on.objects, report)


def _copy(source: Path, uri: str, objects: Objects, report: Report) -> None:
    shown = os.path.relpath(source, ROOT) if source.is_relative_to(ROOT) else source.name
    if shutil.which("gsutil") is None:
        report.line("upload", f"{shown} -> {uri} (no gsutil here: with the client library)")
        objects.write(uri, source.read_bytes(), content_type="application/octet-stream")
        return
    report.line("$", f"gsutil cp {shown} {uri}", "bold")
    done = subprocess.run(["gsutil", "-q", "cp", str(source), uri], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermanentError(f"gsutil failed: {done.stderr.strip()}")


def wait_for_job(store: Store, objects: Objects, uri: str) -> str:
    """The id of the job that the uploaded file became; raises PermanentError with what was wrong with it."""
    deadline = time.monotonic() + JOB_APPEARS_S
    while time.monotonic() < deadline:
        for job in store.recent_jobs(5):
            if job.submission.partition("#")[0] == uri:
                return job.job_id
        if answer := objects.read(f"{uri}.error.json", max_bytes=METRICS_BYTES_MAX):
            raise PermanentError(f"the job file was refused: {answer.decode()}")
        time.sleep(0.1)
    raise PermanentError(f"no job came of {uri} within {JOB_APPEARS_S:.0f} s; the functions' logs are in the state dir")


def follow(watch: Watch, phases: Phases, plan: FaultPlan | None) -> Job:
    phases.begin("machines and set-up")
    job = None
    for job in watch.follow():
        if job.state is JobState.RUNNING and phases.marks[-1][0] != "training":
            phases.begin("training")
        if plan:
            plan.act(job)
    if job is None:
        raise PermanentError(f"{watch.job_id} was never seen")
    return job


def wait_for_no_vms(watch: Watch, fleet: Fleet) -> int:
    """How many VMs of the job are left after a while; 0 is what should be."""
    deadline = time.monotonic() + VMS_GONE_S
    while left := len(fleet.list_vms(watch.job_id)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    watch.tick()
    return left


def summary(job: Job, on: StackUp, report: Report, phases: Phases, left: int) -> None:
    console, metrics = report.console, _metrics(job, on.objects)
    console.print()
    console.print(f"[bold]{job.job_id}: {job.state}[/]" + (f" - {job.error_message}" if job.error_message else ""))
    if metrics:
        said = ", ".join(f"{name} {_short(value)}" for name, value in metrics.items())
        console.print(f"  metrics     {said}")
    if job.plan.program.job_dir:
        stored = Path(on.state.services["storage"].log).parents[1] / "storage"
        here = stored / job.plan.program.job_dir.removeprefix("gs://")
        console.print(f"  model       {job.plan.program.job_dir}  (files in {os.path.relpath(here)})")
    loaded = on.store.load_attempt(job.job_id)
    for each in loaded.state.replicas if loaded else ():
        counts = f"restarts {each.restarts_used}, replaced {each.replaced}, collateral {each.collateral}"
        console.print(f"  {each.replica_id.words:<11} incarnations {each.incarnation}, {counts}")
    if job.tuning is not None:
        print_trials(job.tuning)
    console.print(f"  attempts    {job.attempt}; VMs left: {left}")
    console.print(f"  used        {usage(job, datetime.now(UTC)).words}")
    for substitution in job.plan.substitutions:
        console.print(f"  substituted {substitution.field}: {substitution.asked} -> {substitution.given}")
    for line in phases.lines():
        console.print(f"  [dim]{line}[/]")
    console.print(f"  [dim]{'total':<28} {time.monotonic() - report.started:6.1f} s[/]")


def _metrics(job: Job, objects: Objects) -> dict[str, Any]:
    job_dir = job.plan.program.job_dir
    data = objects.read(f"{job_dir.rstrip('/')}/metrics.json", max_bytes=METRICS_BYTES_MAX) if job_dir else None
    found = json.loads(data) if data and job.state is JobState.SUCCEEDED else {}
    return found if isinstance(found, dict) else {}


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
