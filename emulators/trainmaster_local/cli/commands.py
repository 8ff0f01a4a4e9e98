"""`trainmaster local …`: start and stop the whole system on this machine, and inject faults.

A sweep is the check of all jobs that Cloud Scheduler requests every minute in production.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer

from trainmaster.cli.console import serve_stack
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, print_json, print_table, say
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm_names import vm_name
from trainmaster.jobspec.catalog.regions import REGION_ZONES
from trainmaster_emulators.machines.gcsfuse.server import find_obstacle
from trainmaster_emulators.process import processes, stack_config, state, state_dirs
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackError, StackState, StackStatus
from trainmaster_emulators.services.fault_client import FaultClient
from trainmaster_emulators.stack import client_configuration, stack
from trainmaster_emulators.stack.runtime_images import STAMP
from trainmaster_local.cli.images import images
from trainmaster_local.cli.run_example import Realistic, TimeScale, run

app = typer.Typer(
    help=(
        "Run the whole system on this machine: the real functions and programs, on Google's"
        " emulators."
    ),
    no_args_is_help=True,
    add_completion=False,
)

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help=(
            "Folder for the stack's state."
            f" [default: ${state_dirs.STATE_DIR_VARIABLE} or .state/local]"
        ),
    ),
]
JobOrVm = Annotated[str, typer.Argument(help="Job id, or the name of a VM.", metavar="JOB|VM")]
Replica = Annotated[
    str | None, typer.Argument(help="Replica of the job, such as worker-0.", metavar="[REPLICA]")
]
Notice = Annotated[
    float | None,
    typer.Option(
        "--notice", metavar="SECONDS", help="Seconds between the notice and the end of the VM."
    ),
]
Zones = Annotated[list[str], typer.Argument(help="Zones.", metavar="ZONE…")]
DEFAULTS = StackConfig()
_ZONES: Final = tuple(zone for zones in REGION_ZONES.values() for zone in zones)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{1,61}[a-z0-9]")
"""Source: Cloud Storage's rules for bucket names."""

app.command("run")(run)
app.command("images")(images)


@app.command()
def up(
    state_dir: StateDir = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it is ready, and leave it running.")
    ] = False,
    project: Annotated[str, typer.Option(metavar="PROJECT", help="Project id.")] = DEFAULTS.project,
    bucket: Annotated[
        str, typer.Option(metavar="BUCKET", help="Bucket to create.")
    ] = DEFAULTS.bucket,
    functions_dir: Annotated[
        Path,
        typer.Option(
            exists=True,
            file_okay=False,
            metavar="DIR",
            help="Folder of the functions' sources.",
            show_default=False,
        ),
    ] = DEFAULTS.functions_dir,
    images_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the runtime images.", show_default=False)
    ] = DEFAULTS.images_dir,
    sweep_every: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Seconds between sweeps.")
    ] = DEFAULTS.sweep_every_s,
    compute: Annotated[bool, typer.Option(help="Emulate VMs (Compute Engine).")] = True,
    public_bucket: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Create a bucket with a copy of a folder, in place of a public bucket that programs"
                " read, such as "
                "cloud-samples-data. May be repeated."
            ),
            metavar="NAME=DIR",
        ),
    ] = None,
    realistic: Realistic = False,
    time_scale: TimeScale = 1.0,
    console: Annotated[
        bool, typer.Option(help="Serve the console, and print its address, which works once.")
    ] = True,
) -> None:
    """Start a stack. Without --detach it runs until Ctrl-C and stops everything when it ends."""
    config = StackConfig(
        project=project,
        bucket=bucket,
        functions_dir=functions_dir.absolute(),
        settings=stack_config.settings_of_shell(project),
        images_dir=images_dir.absolute(),
        sweep_every_s=sweep_every,
        compute=compute,
        public_buckets=read_public_buckets(public_bucket or [], {bucket, DEFAULTS.stage_bucket}),
        realistic=realistic,
        time_scale=time_scale,
    )
    folder = state_dirs.resolve_state_dir(state_dir)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends it as Ctrl-C does
    started = stack.start(folder, config, detach=detach)
    ready = started.wait_ready()
    state_dirs.remember_state_dir(folder)
    say(
        f"ready after {ready.ready_after_s:.1f} s: project {project}, gs://{bucket}, state in"
        f" {folder}"
    )
    if not ready.config.gcs:
        say(f"Jobs cannot use /gcs: {find_obstacle()}. Those that need it are rejected.")
    if compute and not any(config.images_dir.glob(f"*/{STAMP}")):
        say(
            "Each VM downloads its packages, because no runtime image is built: trainmaster local"
            " images"
        )
    option = f" --state-dir {state_dir}" if state_dir else ""
    say(f'To use it from a shell: eval "$(trainmaster local env{option})"')
    if detach:
        say("To see its jobs in a browser: trainmaster console")
        return
    try:
        if console:
            say(
                "Its jobs in a browser:"
                f" {serve_stack(client_configuration.environment(folder, stack.find(folder)))}"
            )
        started.wait_end()
    except KeyboardInterrupt:
        say("stopping")
    finally:
        started.stop()


def read_public_buckets(options: Sequence[str], own_buckets: Collection[str]) -> dict[str, Path]:
    """Return bucket name → folder.

    Raises BadParameter. `own_buckets`: names of the stack's own buckets.
    """
    buckets: dict[str, Path] = {}
    for option in options:
        name, _, folder = option.partition("=")
        hint = f"--public-bucket {option!r}"
        if not _BUCKET.fullmatch(name) or not folder:
            raise typer.BadParameter(
                f"{hint}: must be NAME=DIR, such as cloud-samples-data=samples"
            )
        if name in own_buckets or name in buckets:
            raise typer.BadParameter(
                f"{hint}: the stack already has a bucket {name}; choose another name"
            )
        if not Path(folder).is_dir():
            raise typer.BadParameter(f"{hint}: {folder} is not a folder")
        buckets[name] = Path(folder).absolute()
    return buckets


@app.command()
def env(state_dir: StateDir = None) -> None:
    """Print the variables that connect clients in a shell to the stack: eval "$(trainmaster local
    env)".
    """
    folder = state_dirs.find_state_dir(state_dir)
    say(
        client_configuration.export_lines(
            client_configuration.environment(folder, stack.find(folder))
        ).rstrip("\n")
    )


@app.command()
def status(state_dir: StateDir = None, form: OutputFormat = Format.TABLE) -> None:
    """Show the stack's services. Exit status 1 unless the stack is ready."""
    folder = state_dirs.find_state_dir(state_dir)
    stored = state.read(folder)
    if stored is None:
        raise StackError(f"there is no stack in {folder}. `trainmaster local up` starts one")
    # A stored status "ready" without a running supervisor was left by a stack that was killed.
    should_be_up = stored.status in {StackStatus.READY, StackStatus.STARTING}
    was_killed = should_be_up and not state.is_up(folder)
    word = "killed" if was_killed else stored.status.value
    alive = {
        name: processes.is_alive(service.pid, service.started_at)
        for name, service in stored.services.items()
    }
    if form is Format.JSON:
        services = {
            name: {**service.model_dump(), "alive": alive[name]}
            for name, service in stored.services.items()
        }
        print_json({**stored.model_dump(mode="json"), "status": word, "services": services})
    else:
        _print_status(stored, word, alive, folder)
    if word != StackStatus.READY:
        raise typer.Exit(1)


def _print_status(stored: StackState, word: str, alive: dict[str, bool], folder: Path) -> None:
    say(
        f"{word}: project {stored.config.project}, gs://{stored.config.bucket}, {stored.backend},"
        f" state in {folder}"
    )
    if stored.error:
        say(stored.error)
    rows = [
        [
            name,
            "up" if alive[name] else "down",
            str(service.pid),
            service.address,
            str(service.restarts),
            Path(service.log).name,
        ]
        for name, service in stored.services.items()
    ]
    if rows:
        print_table(["service", "state", "pid", "address", "restarts", "log"], rows)


@app.command()
def down(state_dir: StateDir = None) -> None:
    """Stop the stack, and what a killed stack left running. Succeeds if nothing is running."""
    folder = state_dirs.find_state_dir(state_dir)
    say(f"stopped the stack in {folder}" if stack.stop(folder) else f"no stack is up in {folder}")


def _fault_client(state_dir: Path | None) -> FaultClient:
    return FaultClient(stack.find(state_dirs.find_state_dir(state_dir)))


def _vm_name(job_or_vm: str, replica: str | None) -> str:
    """Return the name of the VM: that of the job's replica, or the given one."""
    if replica is None:
        return job_or_vm
    try:
        return vm_name(job_or_vm, ReplicaId.parse(replica.replace(" ", "-")))
    except ValueError:
        raise StackError(
            f"there is no replica {replica}: give a task type and a number, such as worker-0"
        ) from None


@app.command()
def preempt(
    job: JobOrVm, replica: Replica = None, notice: Notice = None, state_dir: StateDir = None
) -> None:
    """Preempt a replica's VM, as Google preempts Spot VMs: also one that is being created."""
    vm = _vm_name(job, replica)
    _fault_client(state_dir).preempt(vm, notice)
    say(f"{vm}: preempted")


@app.command()
def maintenance(
    job: JobOrVm, replica: Replica = None, notice: Notice = None, state_dir: StateDir = None
) -> None:
    """Announce host maintenance. A VM that can migrate live continues; any other ends."""
    vm = _vm_name(job, replica)
    _fault_client(state_dir).maintenance(vm, notice)
    say(f"{vm}: under maintenance")


@app.command()
def crash(job: JobOrVm, replica: Replica = None, state_dir: StateDir = None) -> None:
    """End a VM by a host error, at once and without notice."""
    vm = _vm_name(job, replica)
    _fault_client(state_dir).crash(vm)
    say(f"{vm}: crashed")


@app.command()
def kill(
    job: JobOrVm,
    replica: Replica = None,
    signal_name: Annotated[
        str, typer.Option("--signal", metavar="SIGNAL", help="KILL, TERM, STOP, …")
    ] = "KILL",
    state_dir: StateDir = None,
) -> None:
    """Signal the training program of a replica. Its VM runs on."""
    vm = _vm_name(job, replica)
    _fault_client(state_dir).kill_program(vm, signal_name.upper().removeprefix("SIG"))
    say(f"{vm}: {signal_name} sent to its program")


def _check_names(names: Sequence[str], known: Sequence[str], kind: str) -> None:
    """Raise BadParameter for a name that is not known: such a fault would harm no job."""
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, n=1) or known[:1]
            raise typer.BadParameter(f"{name!r} is not a {kind}, such as {nearest[0]}")


@app.command()
def unreachable(zones: Zones, state_dir: StateDir = None) -> None:
    """Let exactly these zones not answer: lists say so, and calls fail. VMs run on."""
    _check_names(zones, _ZONES, "zone")
    print_json(_fault_client(state_dir).change(unreachable_zones=zones))


@app.command()
def stockout(zones: Zones, state_dir: StateDir = None) -> None:
    """Let exactly these zones have no capacity."""
    _check_names(zones, _ZONES, "zone")
    print_json(_fault_client(state_dir).change(stockout_zones=zones))


@app.command()
def quota(
    regions: Annotated[list[str], typer.Argument(help="Regions.", metavar="REGION…")],
    state_dir: StateDir = None,
) -> None:
    """Let the quota be used up in exactly these regions."""
    _check_names(regions, tuple(REGION_ZONES), "region")
    print_json(_fault_client(state_dir).change(quota_regions=regions))


@app.command()
def slow(
    seconds: Annotated[
        float, typer.Argument(min=0, metavar="SECONDS", help="Seconds added to each step.")
    ],
    state_dir: StateDir = None,
) -> None:
    """Delay each step of a VM's start and end."""
    print_json(_fault_client(state_dir).change(slow_s=seconds))


@app.command("clear-faults")
def clear_faults(state_dir: StateDir = None) -> None:
    """End the lasting faults: stockout, quota, slow, unreachable."""
    _fault_client(state_dir).clear()
    say("no faults")
