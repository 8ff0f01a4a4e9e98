"""Cleaning of a VM that another job has taken over: what its last job has left.

`main.py` calls `remember_first_files` for the first job of a VM that several jobs may use, one
after the other, and `clean` when the agent of a later job starts there. *New* is what the VM did
not have before its first job:

    processes      all that the startup script has ever started, what cron and at run, new units of
                   systemd, and the units of users that only now run without a login (lingering)
    containers     new ones, and what else is new in their engines (`previous_containers`)
    mounts         new ones are unmounted, and not emptied: their files are on other machines
    System V IPC   new shared memory, queues and semaphores. Those of POSIX are files below /dev
    files          the agent's folders; what has appeared in the folders for temporary files, and
                   in those of cron and at, since the VM's first job. Schedules and Python packages
                   of the machine that have changed cannot be restored: a fault of the machine
    GPU memory     is free once no process runs; a GPU that keeps it is a fault of the machine
    /gcs           is unmounted before each start (`gcs_mount`)
    packages       are in layers (`package_layers`)

The home directory, caches and container images stay on purpose, and so do the settings of the
system: accounts, /etc, packages of apt, sysctl, packet filters. A program is root and could hide
what it leaves, so this protects against accidents only: all jobs that use a VM have the same owner.
Cleaning may be repeated. What is left after it is a fault of the machine, and the VM is replaced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from trainmaster.agent.program.devices import has_gpu, tool_output
from trainmaster.agent.program.machine_processes import machine_processes, unit_processes
from trainmaster.agent.program.process_table import kill_all
from trainmaster.agent.setup import machine_state
from trainmaster.agent.setup.first_record import is_list_of_names, read_record, write_record
from trainmaster.agent.setup.previous_containers import FIRST_OBJECTS
from trainmaster.agent.workspace import EMULATED_VM, Workspace

FIRST_FILES = "first-files.json"
"""File with what the VM had before its first job: the names in each shared folder, by the folder;
and other things, such as mounts, by the keys below (`UNITS` to `PYTHON`).
"""
KEPT = frozenset(("agent.pyz", "startup", "state", "layers", FIRST_FILES, FIRST_OBJECTS))
"""Entries of the agent's folder that are not of one job."""
TEMPORARY = (  # cleaned here, and not used
    "/tmp",  # noqa: S108
    "/var/tmp",  # noqa: S108
    "/dev/shm",  # noqa: S108
    "/dev/mqueue",
)
OWN_ROOT = "TRAINMASTER_EMULATED_ROOT"
"""Variable of a local VM whose /tmp and /dev/shm are its own."""
SCHEDULES = (
    "/etc/cron.d",
    "/etc/cron.hourly",
    "/etc/cron.daily",
    "/etc/cron.weekly",
    "/etc/cron.monthly",
    "/var/spool/cron",
    "/var/spool/cron/crontabs",
    "/var/spool/cron/atjobs",
)
"""Folders of cron and at, whose new files start programs again."""
CRONTAB = "/etc/crontab"
UNITS, IPC, MOUNTED, LINGERING = "units", "ipc", "mounts", "lingering"
"""Keys of `FIRST_FILES` for things that are removed if they are new."""
SCHEDULED, PYTHON = "scheduled", "python"
"""Keys of `FIRST_FILES` for files that must not have changed, because they cannot be restored."""
CHANGES_MAX = 3
"""Changed files that a finding names."""
UNKNOWN = "it is not known what the VM had before its first job"
GPU_QUERY = ("nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits")
GPU_SHARE_MAX = 0.05
"""Share of a GPU's memory that an idle driver may use."""
GPU_FREE_S = 10.0
"""How long the driver may take to free the memory of processes that have ended."""


def temporary_folders(environ: Mapping[str, str]) -> Sequence[Path]:
    """Return the folders for temporary files that are this VM's own."""
    if not environ.get(EMULATED_VM):
        return [Path(folder) for folder in TEMPORARY]
    if environ.get(OWN_ROOT):
        return [Path("/tmp"), Path("/dev/shm")]  # noqa: S108 - as above
    own = Path(environ.get("TMPDIR", ""))
    disk = Path(environ["HOME"]).parent
    return [own] if disk in own.parents else []


def _shared_folders(environ: Mapping[str, str]) -> Sequence[Path]:
    """Return the folders in which a job's files lie beside those of the machine."""
    schedules = () if environ.get(EMULATED_VM) else SCHEDULES
    return [*temporary_folders(environ), *map(Path, schedules)]


def remember_first_files(workspace: Workspace) -> None:
    """Record what the VM has before its first program."""
    file = workspace.work / FIRST_FILES
    if not file.exists():
        names = {
            str(folder): sorted(entry.name for entry in folder.iterdir())
            for folder in _shared_folders(workspace.environ)
            if folder.is_dir()
        }
        write_record(file, {**names, **_state(workspace.environ)})


def _state(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what the VM has besides the names in shared folders, by key of `FIRST_FILES`."""
    if environ.get(EMULATED_VM):
        return {}  # a local VM shares these things with the user's machine
    return {
        UNITS: machine_state.unit_files(),
        IPC: machine_state.ipc_objects(),
        MOUNTED: machine_state.program_mounts(),
        LINGERING: machine_state.lingering_users(),
        SCHEDULED: [*machine_state.marks(SCHEDULES), *machine_state.mark(CRONTAB)],
        PYTHON: machine_state.marks(machine_state.python_folders()),
    }


def clean(
    workspace: Workspace,
    remove_containers: Callable[[], int],
    pause: Callable[[float], object] = time.sleep,
) -> str:
    """Remove what the last job has left; return in words what is still left, empty: nothing.

    `remove_containers` returns how many containers it has removed.
    """

    stored = _read_first_files(workspace)
    first = stored or {}
    new_units = _new(UNITS, first, workspace.environ)
    new_users = _new(LINGERING, first, workspace.environ)
    managers = machine_state.user_managers(new_users)

    def find_processes() -> list[int]:
        names = [*(Path(unit).name for unit in new_units), *managers]
        return [*machine_processes(workspace.environ), *unit_processes(names)]

    machine_state.stop_lingering(new_users, managers)
    machine_state.stop_units(new_units)
    killed = kill_all(find_processes)
    removed = remove_containers()
    workspace.log(
        "Another job has taken this VM. Ended"
        f" {killed} processes and {removed} containers that the last job has left."
    )
    findings: list[str] = [] if stored is not None else [UNKNOWN]
    survivors = find_processes()
    if survivors:
        findings.append(f"{len(survivors)} processes of the last job cannot be ended")
    for path in _left_files(workspace, first):
        machine_state.remove(path)
        if os.path.lexists(path):
            findings.append(f"{path} of the last job cannot be removed")
    for point in _new(MOUNTED, first, workspace.environ):
        machine_state.unmount_all(point)
    machine_state.remove_ipc(_new(IPC, first, workspace.environ))
    findings += [
        f"{what} {name} of the last job cannot be removed"
        for key, what in (
            (UNITS, "the unit"),
            (MOUNTED, "the mount"),
            (IPC, "the IPC object"),
            (LINGERING, "the running user"),
        )
        for name in _new(key, first, workspace.environ)
    ]
    for key in (SCHEDULED, PYTHON):
        findings += _describe_changes(_changed(key, first, workspace.environ))
    findings += _busy_gpus(workspace.environ, pause)
    # Names of files may have bytes that are no text.
    return "; ".join(findings).encode(errors="backslashreplace").decode()


def _read_first_files(workspace: Workspace) -> dict[str, list[str]] | None:
    """Return what `remember_first_files` has stored; None: it is not known."""
    stored = read_record(workspace.work / FIRST_FILES)
    if stored is None or not all(map(is_list_of_names, stored.values())):
        return None
    return stored


def _new(key: str, first: Mapping[str, list[str]], environ: Mapping[str, str]) -> list[str]:
    """Return what the VM has now and did not have before its first job; nothing if it is not known
    what it had.
    """
    if key not in first:
        return []
    return [name for name in _state(environ).get(key, ()) if name not in first[key]]


def _changed(key: str, first: Mapping[str, list[str]], environ: Mapping[str, str]) -> list[str]:
    """Return the files that are new, gone or different since the VM's first job; none if it is not
    known what it had.
    """
    if key not in first:
        return []
    different = set(first[key]).symmetric_difference(_state(environ).get(key, ()))
    return sorted({machine_state.file_of(mark) for mark in different})


def _describe_changes(files: Sequence[str]) -> list[str]:
    """Return the finding about these files, or none."""
    if not files:
        return []
    others = len(files) - CHANGES_MAX
    more = f" and {others} others" if others > 0 else ""
    return [f"the last job has changed {', '.join(files[:CHANGES_MAX])}{more}"]


def _left_files(workspace: Workspace, stored: Mapping[str, list[str]]) -> Iterable[Path]:
    """Yield the files and folders of the last job, in the agent's folder and in those with files of
    the machine.
    """
    for path in workspace.work.iterdir():
        if path.name not in KEPT:
            yield path
    for folder in _shared_folders(workspace.environ):
        first = stored.get(str(folder))
        if first is None or not folder.is_dir():
            continue  # the names that it had before the first job are not known
        for entry in folder.iterdir():
            if entry.name not in first:
                yield entry


def _busy_gpus(environ: Mapping[str, str], pause: Callable[[float], object]) -> list[str]:
    """Return which GPUs have memory in use although no program runs."""
    program = shutil.which(GPU_QUERY[0], path=environ.get("PATH"))
    if program is None or not has_gpu():
        return []
    busy: list[str] = []
    for second in range(int(GPU_FREE_S)):
        try:
            busy = describe_memory(tool_output([program, *GPU_QUERY[1:]]))
        except (OSError, subprocess.SubprocessError):
            return []  # the preflight judges the driver
        if not busy:
            return []
        if second < GPU_FREE_S - 1:
            pause(1.0)
    return busy


def describe_memory(output: str) -> list[str]:
    """Return the GPUs with memory in use, from lines such as ``15000, 16160``."""
    busy = []
    for index, line in enumerate(output.splitlines()):
        used, _, total = line.partition(",")
        try:
            share = float(used) / float(total)
        except (ValueError, ZeroDivisionError):
            continue  # the GPU does not report it, as with MIG
        if share > GPU_SHARE_MAX:
            busy.append(f"GPU {index} has {used.strip()} MiB in use after the last job")
    return busy
