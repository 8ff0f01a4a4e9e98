"""What a program leaves outside of its files: units of systemd, System V IPC and mounts, changed
schedules and Python packages of the machine.

`previous_tenure` records them before the first program of a VM, and removes what is new when
another job has taken the VM. It does so on Compute Engine's VMs only: a local VM shares them with
the machine. All files and folders that a program may have mounted buckets below are removed by
`remove`, which leaves the contents of mounts alone.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import site
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

UNIT_FOLDERS = ("/run/systemd/transient", "/run/systemd/system", "/etc/systemd/system")
"""Folders of units that systemd-run makes, and that a program installs."""
UNIT_TYPES = frozenset((".service", ".timer", ".path", ".socket", ".scope"))
LOGINS = "session-"
"""How the names of the scopes of logins begin. They are not of a program."""
LINGERING = Path("/var/lib/systemd/linger")
"""Folder with a file for each user whose units run without a login. Source: loginctl(1)."""
SYSV_IPC = Path("/proc/sysvipc")
IPC_OPTIONS = {"shm": "-m", "msg": "-q", "sem": "-s"}
"""File below `SYSV_IPC` → option of ipcrm for what it lists: shared memory, queues, semaphores."""
MOUNTS = Path("/proc/self/mountinfo")
MOUNT_POINT = 4
"""Index of the mount point in a line of `MOUNTS`. Source: proc(5)."""
_OCTAL = re.compile(rb"\\([0-7]{3})")
"""How `MOUNTS` has spaces, tabs, ends of lines and backslashes; all other bytes are as they are."""
SYSTEM_MOUNTS = ("/proc", "/sys", "/dev", "/run", "/snap", "/var/lib/docker", "/var/lib/containerd")
"""Folders below which the system and the container engine mount and unmount by themselves."""
_VERSION = "\0"
"""Separates the path and the version in a mark."""
CALL_S = 60.0
"""How long a command for cleaning may take."""


def call(*command: str) -> None:
    """Run the command. The caller looks whether it had an effect."""
    try:
        subprocess.run(command, capture_output=True, timeout=CALL_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return


def unit_files() -> list[str]:
    """Return the paths of the units that programs may have made."""
    return [
        str(file)
        for folder in map(Path, UNIT_FOLDERS)
        if folder.is_dir()
        for file in folder.iterdir()
        if file.suffix in UNIT_TYPES and not file.name.startswith(LOGINS)
    ]


def stop_units(files: Collection[str]) -> None:
    """Stop these units, and remove what would start them again."""
    if not files:
        return
    names = sorted({Path(file).name for file in files})
    call("systemctl", "stop", *names)
    for file in files:
        remove(Path(file))
    call("systemctl", "daemon-reload")
    call("systemctl", "reset-failed", *names)


def lingering_users() -> list[str]:
    """Return the users whose units run without a login."""
    return sorted(entry.name for entry in LINGERING.iterdir()) if LINGERING.is_dir() else []


def user_managers(users: Iterable[str]) -> list[str]:
    """Return the services in which the units of these users run."""
    managers = []
    for user in users:
        try:
            managers.append(f"user@{pwd.getpwnam(user).pw_uid}.service")
        except (KeyError, ValueError):
            continue  # there is no such user, and so nothing runs
    return managers


def stop_lingering(users: Iterable[str], managers: Collection[str]) -> None:
    """Stop the units of these users, and remove what would start them again."""
    for user in users:
        remove(LINGERING / user)
    if managers:
        call("systemctl", "stop", *managers)


def python_folders() -> list[str]:
    """Return the folders of this machine's Python that have modules for all programs."""
    return [str(Path(os.__file__).parent), *site.getsitepackages()]


def marks(folders: Iterable[str]) -> list[str]:
    """Return what is in these folders, with a mark of each file's version.

    Folders below them are named only, so that this takes milliseconds. Hidden files are left out:
    at counts its jobs in one.
    """
    return [
        found
        for folder in map(Path, folders)
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if path.name != "__pycache__" and not path.name.startswith(".")
        for found in mark(str(path))
    ]


def mark(path: str) -> list[str]:
    """Return the path and, of a file, its size and the time of its last change; nothing if it does
    not exist.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return []
    is_folder = stat.S_ISDIR(status.st_mode)
    version = "" if is_folder else f"{status.st_size} {status.st_mtime_ns}"
    return [f"{path}{_VERSION}{version}"]


def file_of(mark: str) -> str:
    """Return the path of a mark."""
    return mark.rpartition(_VERSION)[0]


def ipc_objects(folder: Path = SYSV_IPC) -> list[str]:
    """Return the System V IPC objects as options of ipcrm, such as `-m 5`."""
    found = []
    for name, option in IPC_OPTIONS.items():
        try:
            _, *lines = (folder / name).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue  # the kernel has none
        found += [f"{option} {line.split()[1]}" for line in lines]
    return found


def remove_ipc(objects: Collection[str]) -> None:
    """Remove System V IPC objects, as `ipc_objects` returns them. The caller looks whether that had
    an effect.
    """
    for ipc_object in objects:
        call("ipcrm", *ipc_object.split())


def all_mount_points(mounts: Path = MOUNTS) -> Iterator[str]:
    """Yield what is mounted where, in the order of the mounts."""
    for line in filter(None, mounts.read_bytes().split(b"\n")):
        name = line.split(b" ")[MOUNT_POINT]
        yield os.fsdecode(_OCTAL.sub(lambda code: bytes([int(code[1], base=8)]), name))


def mount_points(path: Path | str, mounts: Path = MOUNTS) -> list[str]:
    """Return what is mounted at the path and below it, the innermost first."""
    last = Path(path)
    resolved = last.parent.resolve() / last.name  # `MOUNTS` names no links
    points = [point for point in all_mount_points(mounts) if is_below(point, str(resolved))]
    return points[::-1]


def is_below(point: str, path: str) -> bool:
    """Whether a path is the other one, or below it."""
    return point == path or point.startswith(f"{path}/")


def program_mounts(mounts: Path = MOUNTS) -> list[str]:
    """Return where programs may have mounted something, the innermost first."""
    return [
        point
        for point in reversed([*all_mount_points(mounts)])
        if not any(is_below(point, folder) for folder in SYSTEM_MOUNTS)
    ]


def unmount_all(path: Path | str) -> None:
    """Detach what is mounted at the path and below it."""
    for point in mount_points(path):
        call("umount", "--lazy", point)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all below it.

    Mounts below it are detached first, so that no file of a bucket or of another machine is
    removed. If one cannot be detached, nothing is removed. The caller looks whether it had an
    effect.
    """
    unmount_all(path)
    if mount_points(path):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink()
    except OSError:
        return
