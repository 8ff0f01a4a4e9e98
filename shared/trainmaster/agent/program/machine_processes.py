"""Everything that runs on a VM because of its startup script, whatever its parents, its session and
its environment say. `previous_tenure.py` ends it when another job takes over the VM.

    Compute Engine   the control group of the startup script's service, and what cron and at run
    local stack      the descendants of the VM's first process, which is a subreaper

The agent, and what it descends from, are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainmaster.agent.program.process_table import PARENT, descendants, is_running, read_stats
from trainmaster.agent.workspace import EMULATED_VM

CGROUPS = Path("/sys/fs/cgroup")
SCHEDULERS = {"cron.service": "cron", "atd.service": "atd"}
"""Services that start programs for others, and the command of the service itself."""


def machine_processes(environ: Mapping[str, str]) -> list[int]:
    """Return the running processes; empty if this system cannot tell."""
    stats = read_stats()
    agent = os.getpid()
    ancestors = [agent]
    while ancestors[-1] in stats and int(stats[ancestors[-1]][PARENT]) > 1:
        ancestors.append(int(stats[ancestors[-1]][PARENT]))
    if environ.get(EMULATED_VM):
        mark = f"{EMULATED_VM}={environ[EMULATED_VM]}".encode()
        first = [pid for pid in ancestors if has_variable(pid, mark)]
        found = descendants({first[-1]}, stats) if first else []
    else:
        found = [*service_processes(), *scheduled_processes()]
    own = set(ancestors)
    return [pid for pid in found if pid not in own and is_running(pid)]


def has_variable(pid: int, variable: bytes) -> bool:
    """Return whether a process has a variable, `NAME=value`, in its environment."""
    try:
        return variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def service_processes(
    cgroup: Path = Path("/proc/self/cgroup"), cgroups: Path = CGROUPS
) -> list[int]:
    """Return the processes of the control group of this systemd service, and of those below it.

    Any other control group may have processes that are not the startup script's: none is returned.
    """
    try:
        lines = cgroup.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "name=systemd") or not path.endswith(".service"):
            continue
        found += _processes_in(cgroups / ("systemd" if controllers else "") / path.lstrip("/"))
    return list(dict.fromkeys(found))


def scheduled_processes(proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> list[int]:
    """Return the processes that cron and at have started, without these services themselves."""
    found = []
    for hierarchy in (cgroups, cgroups / "systemd"):
        for service, command in SCHEDULERS.items():
            for pid in _processes_in(hierarchy / "system.slice" / service):
                try:
                    name = (proc / str(pid) / "comm").read_bytes()  # cut, perhaps within a letter
                except OSError:
                    continue  # it has ended
                if name.strip() != command.encode():
                    found.append(pid)
    return list(dict.fromkeys(found))


def unit_processes(units: Iterable[str], cgroups: Path = CGROUPS) -> list[int]:
    """Return the processes of these units of systemd, in whatever slices they are."""
    names = set(units)
    if not names:
        return []
    systemd = cgroups / "systemd"  # of cgroup v1, which has other hierarchies beside it
    hierarchy = systemd if systemd.is_dir() else cgroups
    groups = [group for group in hierarchy.glob("**/*/") if group.name in names]
    return list(dict.fromkeys(pid for group in groups for pid in _processes_in(group)))


def _processes_in(group: Path) -> list[int]:
    """Return the processes of a control group, and of those below it."""
    found: list[int] = []
    for file in group.glob("**/cgroup.procs"):
        try:
            found += map(int, file.read_text(encoding="ascii").split())
        except (OSError, ValueError):  # the group has just been removed
            continue
    return found
