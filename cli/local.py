"""`trainmaster local …`: the whole system on this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cli.output import Format, print_json, print_table, say
from emulators.services.faults import Faults
from emulators.stack import client_configuration, processes, stack, state
from emulators.stack.state import StackConfig, StackError, StackStatus

app = typer.Typer(
    help="The whole system on this machine: real clients, functions and programs against Google's own emulators.",
    no_args_is_help=True,
)

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", help=f"Where the stack keeps everything. [${state.STATE_DIR_VARIABLE}, or .state/local]"
    ),
]
Vm = Annotated[str, typer.Argument(help="Name of the VM.", metavar="VM")]
Notice = Annotated[float | None, typer.Option("--notice", help="Seconds between the notice and the end.")]
DEFAULTS = StackConfig()


@app.command()
def up(
    state_dir: StateDir = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running and return once it is ready.")] = False,
    project: Annotated[str, typer.Option(help="Project id.")] = DEFAULTS.project,
    bucket: Annotated[str, typer.Option(help="Bucket that is created.")] = DEFAULTS.bucket,
    functions_dir: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Where the functions' files are.", show_default=False)
    ] = DEFAULTS.functions_dir,
    images_dir: Annotated[
        Path, typer.Option(help="Where the runtime images are.", show_default=False)
    ] = DEFAULTS.images_dir,
    sweep_every: Annotated[float, typer.Option(min=1, help="Seconds between sweeps.")] = DEFAULTS.sweep_every_s,
    compute: Annotated[bool, typer.Option(help="With machines (the Compute emulator).")] = True,
) -> None:
    """Start a stack. Without --detach it runs until Ctrl-C; nothing stays behind, however it ends."""
    config = StackConfig(
        project=project,
        bucket=bucket,
        functions_dir=functions_dir.absolute(),
        images_dir=images_dir.absolute(),
        sweep_every_s=sweep_every,
        compute=compute,
    )
    folder = state.find_dir(state_dir)
    signal.signal(signal.SIGTERM, _interrupt)
    started = stack.start(folder, config, detach=detach)
    ready = started.wait_ready()
    say(f"ready after {ready.ready_after_s:.1f} s: project {project}, gs://{bucket}, state in {folder}")
    say(f'in any shell: eval "$(trainmaster local env{_option(state_dir)})"')
    if detach:
        return
    try:
        started.wait_end()
    except KeyboardInterrupt:
        say("stopping")
    finally:
        started.stop()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM ends `up` as Ctrl-C does: in order."""
    raise KeyboardInterrupt


def _option(state_dir: Path | None) -> str:
    return f" --state-dir {state_dir}" if state_dir else ""


@app.command()
def env(state_dir: StateDir = None) -> None:
    """Print what makes the real clients in a shell speak to the stack: eval "$(trainmaster local env)"."""
    folder = state.find_dir(state_dir)
    say(client_configuration.exports(client_configuration.environment(folder, stack.find(folder))).rstrip("\n"))


@app.command()
def status(
    state_dir: StateDir = None,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> None:
    """Show what runs. Exit status 1 unless the stack is ready."""
    folder = state.find_dir(state_dir)
    page = state.read(folder)
    if page is None:
        raise StackError(f"there was never a stack in {folder}")
    up_now = state.is_up(folder)
    # A page that says "ready" over a dead supervisor was left by a stack that was killed.
    word = page.status.value if up_now or page.status not in {StackStatus.READY, StackStatus.STARTING} else "killed"
    living = {name: processes.is_alive(each.pid, each.started_at) for name, each in page.services.items()}
    if form is Format.JSON:
        services = {name: {**each.model_dump(), "alive": living[name]} for name, each in page.services.items()}
        print_json({**page.model_dump(mode="json"), "status": word, "services": services})
    else:
        say(f"{word}: project {page.config.project}, gs://{page.config.bucket}, {page.backend}, state in {folder}")
        if page.error:
            say(page.error)
        rows = [
            [
                name,
                "up" if living[name] else "down",
                str(each.pid),
                each.address,
                str(each.restarts),
                Path(each.log).name,
            ]
            for name, each in page.services.items()
        ]
        if rows:
            print_table(["part", "state", "pid", "address", "restarts", "log"], rows)
    if word != StackStatus.READY:
        raise typer.Exit(1)


@app.command()
def down(state_dir: StateDir = None) -> None:
    """Stop the stack, and whatever a killed one left. Nothing to stop is fine."""
    folder = state.find_dir(state_dir)
    say(f"stopped the stack in {folder}" if stack.down(folder) else f"no stack is up in {folder}")


def _faults(state_dir: Path | None) -> Faults:
    return Faults(stack.find(state.find_dir(state_dir)))


@app.command()
def preempt(vm: Vm, notice: Notice = None, state_dir: StateDir = None) -> None:
    """Take a VM away as Google does with Spot VMs."""
    _faults(state_dir).preempt(vm, notice)
    say(f"{vm}: preempted")


@app.command()
def maintenance(vm: Vm, notice: Notice = None, state_dir: StateDir = None) -> None:
    """Announce host maintenance: a VM that can be moved live goes on, any other ends."""
    _faults(state_dir).maintenance(vm, notice)
    say(f"{vm}: under maintenance")


@app.command()
def crash(vm: Vm, state_dir: StateDir = None) -> None:
    """Lose a VM to a host error: at once, without notice."""
    _faults(state_dir).crash(vm)
    say(f"{vm}: crashed")


@app.command()
def stockout(
    zones: Annotated[list[str], typer.Argument(help="Zones.", metavar="ZONE…")], state_dir: StateDir = None
) -> None:
    """Let these zones, and only these, be out of machines."""
    print_json(_faults(state_dir).change(stockout_zones=zones))


@app.command()
def quota(
    regions: Annotated[list[str], typer.Argument(help="Regions.", metavar="REGION…")], state_dir: StateDir = None
) -> None:
    """Let the project's quota in these regions, and only these, be used up."""
    print_json(_faults(state_dir).change(quota_regions=regions))


@app.command()
def slow(
    seconds: Annotated[float, typer.Argument(min=0, help="Added to each step.")], state_dir: StateDir = None
) -> None:
    """Let machines take that much longer."""
    print_json(_faults(state_dir).change(slow_s=seconds))


@app.command("clear-faults")
def clear_faults(state_dir: StateDir = None) -> None:
    """End all faults that last: stockout, quota, slow."""
    _faults(state_dir).clear()
    say("no faults")
