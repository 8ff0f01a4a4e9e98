"""The first process of an emulated VM: runs the startup script and is the ancestor of all processes
of the VM.

`machines.powered_vm` runs this file without site packages, because there is one process for each
VM:

    emulator ──stdin (held open)──► vm_init ──► bash startup-script ──► agent ──► training program
    (own session)

- It is a child subreaper: a process that loses its parent becomes its child, even in another
  session.
- End of file on stdin means power-off: it kills all processes at once. The emulator holds the other
  end of the pipe, so VMs end with the emulator, even if that is killed.
- SIGTERM means shutdown. It forwards the signal as systemd does on Google's images: first to the
  startup script's process group and, when that has ended, to all other processes. It exits when
  none is left. Source: guest-configs' google-startup-scripts.service (KillMode=process) and
  systemd-shutdown(8).
- At the same time it stops the VM's containers, as docker.service does when it is stopped.
- The VM keeps running after the startup script has ended, as a real one does.
- Each VM has its own /tmp and /dev/shm, and a /gcs to mount gcsfuse at, in a mount namespace. If
  this process may not create one, the VM only has its own TMPDIR. Folders of /tmp that the
  environment names, such as those of the stack and of the interpreter, stay visible.
- At the end it runs a clean-up program if a marker file exists: the VM has containers, which are
  not its descendants. With the argument `stop`, that program stops them.

Usage: vm_init.py SCRIPT TMP MARKER CLEANUP ARG… Linux only, because of subreapers and /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import select
import signal
import struct
import sys
import time
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36  # Source: linux/prctl.h
STDIN: Final = 0
"""The pipe that the emulator holds open."""
READ_BYTES: Final = 4096
"""Bytes that are read of a pipe at a time; the content does not matter."""
TICK_S: Final = 0.05
"""Time between two looks at the startup script's processes during a shutdown."""
KILL_PAUSE_S: Final = 0.005
"""Time between two rounds of killing."""

# Source of these flags: linux/sched.h and linux/mount.h.
CLONE_NEWNS: Final = 0x20000
CLONE_NEWUSER: Final = 0x10000000
MS_RDONLY: Final = 1
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_UNBINDABLE: Final = 0x20000
MS_PRIVATE: Final = 0x40000
MNT_DETACH: Final = 2

PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
"""Number of the system call: the C library has no function for it. Source: asm/unistd.h."""

# Source of these numbers: linux/capability.h and linux/prctl.h.
CAPABILITY_VERSION_3: Final = 0x20080522
CAPABILITY_DATA_BYTES: Final = 24
"""Twice the three words of `__user_cap_data_struct`."""
CAP_SYS_ADMIN: Final = 21
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2

LIBC: Final = ctypes.CDLL(None, use_errno=True)
OWN_ROOT: Final = "TRAINMASTER_EMULATED_ROOT"
"""Variable that lets the agent clean /tmp and /dev/shm for the VM's next job."""
GCS: Final = Path("/gcs")
SHARED_MEMORY: Final = Path("dev", "shm")
"""Below the root."""
SHARED_TMP: Final = Path("/tmp")  # noqa: S108 - the folder that is replaced
TMPDIR_CHARS_MAX: Final = 60
"""Longest TMPDIR: sockets are created below it, and their paths have at most 107 characters."""


def use_own_root(own_tmp: Path) -> None:
    """Give this process and its descendants a root of their own, or only a TMPDIR if that is not
    permitted.
    """
    try:
        enter_namespaces()
        build_root(own_tmp)
        os.environ[OWN_ROOT] = "own"
    except OSError:
        if len(str(own_tmp)) <= TMPDIR_CHARS_MAX:
            os.environ["TMPDIR"] = str(own_tmp)
        with contextlib.suppress(OSError):  # then root can write nothing below it either
            GCS.touch(0o444)


def enter_namespaces() -> None:
    """Enter a mount namespace, and a user namespace if this process is not root. Raises OSError.

    Programs keep their user. They get the right to mount, as those of a VM have it, by an ambient
    capability.
    """
    uid = os.geteuid()
    gid = os.getegid()
    is_root = uid == 0
    if not is_root:
        # Not for root: this import takes a fifth of the time of this program's start.
        from shutil import which

        if which("podman") and not which("docker"):
            raise OSError(errno.EPERM, "rootless podman does not work in a user namespace")
    check(LIBC.unshare(CLONE_NEWNS if is_root else CLONE_NEWNS | CLONE_NEWUSER))
    # Without this, the mounts would also appear in the machine's namespace. The recursive deletion
    # of the VM's disk would then delete the machine's files.
    mount("none", Path("/"), MS_REC | MS_PRIVATE)
    if not is_root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        _let_programs_mount()


def _let_programs_mount() -> None:
    """Add the right to mount to the ambient capabilities, which programs keep over exec."""
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(CAPABILITY_DATA_BYTES)
    check(LIBC.capget(header, data))
    effective, permitted, inheritable = struct.unpack_from("=3I", data)
    struct.pack_into("=3I", data, 0, effective, permitted, inheritable | 1 << CAP_SYS_ADMIN)
    check(LIBC.capset(header, data))
    check(LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0))


def build_root(own_tmp: Path) -> None:
    """Change the root to one that has the machine's folders, `own_tmp` as /tmp, and an empty
    read-only /gcs.

    Raises OSError, before anything has changed, if it is not permitted.
    """
    for name in names_in_tmp():
        bind(SHARED_TMP / name, own_tmp / name)
    root = own_tmp.parent / "root"
    root.mkdir(exist_ok=True)
    mount("tmpfs", root, 0, "mode=755")
    mount("none", root, MS_UNBINDABLE)  # so that it does not contain itself
    for entry in Path("/").iterdir():
        if entry.is_symlink():
            (root / entry.name).symlink_to(entry.readlink())
        elif entry != GCS:
            bind(own_tmp if entry == SHARED_TMP else entry, root / entry.name)
    if (root / SHARED_MEMORY).is_dir():
        mount("tmpfs", root / SHARED_MEMORY, 0, "mode=1777")
    (root / GCS.name).mkdir()
    mount("tmpfs", root / GCS.name, MS_RDONLY, "mode=755,size=4k")
    folder = Path.cwd()
    os.chdir(root)
    # Source of the arguments: pivot_root(2), Notes
    check(LIBC.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."))
    check(LIBC.umount2(b".", MNT_DETACH))
    os.chdir(folder)  # the same folder, reached through the new mounts


def bind(source: Path, target: Path) -> None:
    """Make `source` visible at `target`, which is created."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    check(LIBC.mount(bytes(source), bytes(target), None, MS_BIND | MS_REC, None))


def mount(kind: str, target: Path, flags: int, options: str = "") -> None:
    check(LIBC.mount(kind.encode(), bytes(target), kind.encode(), flags, options.encode()))


def check(status: int) -> None:
    """Raise OSError if a call of the C library failed."""
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def names_in_tmp() -> set[str]:
    """Return the entries of /tmp that this process's environment and command line refer to."""
    texts = [*os.environ.values(), *sys.argv, sys.executable, sys.base_prefix, str(Path.cwd())]
    names: set[str] = set()
    for text in texts:
        names.update(re.findall(rf"{SHARED_TMP}/([^/:;,\s\"']+)", text))
    return {name for name in names if (SHARED_TMP / name).exists()}


def descendants(root: int) -> list[int]:
    """Return every process below `root`, parents first, including zombies."""
    children: dict[int, list[int]] = defaultdict(list)
    # os.listdir and open are several times as fast as pathlib's methods.
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # pid (comm) state ppid …; comm may contain spaces and parentheses
                _, _, after_comm = file.read().rpartition(b")")
            parent = int(after_comm.split()[1])
            children[parent].append(int(name))
    pids: list[int] = []
    generation = [root]
    while generation:
        generation = list(chain.from_iterable(children[parent] for parent in generation))
        pids.extend(generation)
    return pids


def send_signal(pids: list[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def reap() -> tuple[dict[int, int], bool]:
    """Reap the children that have ended.

    Return their wait statuses by pid, and whether any child is left.
    """
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def kill_everything() -> None:
    """Kill repeatedly: a process killed during a fork leaves a child, which the next
    round kills.
    """
    while True:
        send_signal(descendants(os.getpid()), signal.SIGKILL)
        _, alive = reap()
        if not alive:
            return
        time.sleep(KILL_PAUSE_S)


def is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Init:
    """The main loop, and the progress of a shutdown."""

    def __init__(self, script: str, marker: Path, cleanup: list[str]) -> None:
        self._marker = marker
        self._cleanup = cleanup
        if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        self._shutting_down = False
        self._signalled_group = False
        self._signalled_others = False
        self._awake = self._listen()
        self._bash = self._spawn(["bash", script])

    @staticmethod
    def _spawn(command: list[str]) -> int:
        """Start a program in its own session; return its process id."""
        no_input = (os.POSIX_SPAWN_OPEN, STDIN, "/dev/null", os.O_RDONLY, 0)
        return os.posix_spawnp(
            command[0], command, os.environ, file_actions=[no_input], setsid=True
        )

    def _listen(self) -> int:
        """Return a pipe that becomes readable at each signal.

        Signals have handlers instead of SIG_IGN, because started programs would inherit an ignored
        signal.
        """
        awake, wake = os.pipe()
        for end in (awake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: None)
        return awake

    def _on_sigterm(self, *_: object) -> None:
        self._shutting_down = True

    def run(self) -> None:
        """Run until the VM is powered off, or has shut down."""
        while True:
            ready, _, _ = select.select(
                [STDIN, self._awake], [], [], TICK_S if self._signalled_group else None
            )
            if self._awake in ready:
                os.read(self._awake, READ_BYTES)
            is_powered_off = STDIN in ready and not os.read(STDIN, READ_BYTES)  # end of file
            if is_powered_off:
                kill_everything()
                return
            ended, alive = reap()
            if self._bash in ended:
                print(
                    f"startup-script exit status {os.waitstatus_to_exitcode(ended[self._bash])}",
                    flush=True,
                )
            if self._shutting_down:
                if not alive:
                    return
                self._forward_sigterm()

    def _forward_sigterm(self) -> None:
        """Signal the startup script's group once and, after its end, all other processes once."""
        if not self._signalled_group:
            self._signalled_group = True
            if self._marker.exists():
                self._spawn([*self._cleanup, "stop"])
            if is_group_alive(self._bash):
                os.killpg(self._bash, signal.SIGTERM)
        elif not self._signalled_others and not is_group_alive(self._bash):
            self._signalled_others = True
            send_signal(descendants(os.getpid()), signal.SIGTERM)


if __name__ == "__main__":
    script, tmp, marker, *cleanup = sys.argv[1:]
    use_own_root(Path(tmp))
    Init(script, Path(marker), cleanup).run()
    if Path(marker).exists():
        os.execv(cleanup[0], cleanup)  # noqa: S606 - the emulator's own command line, no shell
