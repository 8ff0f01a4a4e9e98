"""A shell on an emulated VM: a process with the VM's environment, mounts, directory and user.

It ends with the VM, as a connection to a real one does.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from trainmaster.cli.local_distribution import running_stack
from trainmaster.cli.ssh.target import Target
from trainmaster.errors import PermanentError

CONNECTION_LOST: Final = 255
"""Exit status of ssh if the connection ends."""
SIGNALLED: Final = 128
"""Added to the number of the signal that ended a program, as in the exit status of a shell."""
KILL_AFTER_S: Final = 2.0
"""Seconds that a program has to end after its VM, before it is killed."""
_POLL_MS: Final = 500
"""Milliseconds until the watcher of a VM sees that the program has ended."""


def run(target: Target, command: str) -> int:
    """Run a line of shell, or an interactive shell for an empty one, and return its exit status.

    Standard input, output and the terminal are those of this process. Raises PermanentError if the
    VM does not run.
    """
    pid = running_stack().init_process(target.vm, target.host)
    try:
        vm = os.pidfd_open(pid)
        environment = _environment(pid)
        folder = str(Path(f"/proc/{pid}/cwd").readlink())
        owner = Path(f"/proc/{pid}").stat()
    except OSError:
        raise PermanentError(f"{target.vm} has just ended") from None
    try:
        words = ["bash", "-c", command] if command else ["bash"]
        enter = _enter_command(pid, folder, owner.st_uid, owner.st_gid)
        return _run_until_vm_ends([*enter, *words], environment, folder, vm)
    finally:
        os.close(vm)


def _environment(pid: int) -> dict[str, str]:
    """Return the environment of the VM, with this terminal's type."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    for name in ("TERM", "COLORTERM"):
        if name in os.environ:
            variables[name] = os.environ[name]
    return variables


def _enter_command(pid: int, folder: str, uid: int, gid: int) -> list[str]:
    """Return the command prefix that enters the VM's mount namespace as the VM's user.

    It is empty if namespace and user are those of this process.
    """
    has_other_user = uid != os.geteuid()
    if not has_other_user and not _has_own_namespace(pid, "mnt"):
        return []
    user = [f"--setuid={uid}", f"--setgid={gid}"] if has_other_user else []
    if _has_own_namespace(pid, "user"):  # a VM of a user who is not root
        user = ["--user", "--preserve-credentials"]
    program = shutil.which("nsenter")
    if program is None:
        raise PermanentError(
            "nsenter, which enters the file system of the VM, is not installed: install util-linux"
        )
    # nsenter opens its own --wd outside of the VM's root.
    return [program, f"--target={pid}", "--mount", *user, "--", "env", f"--chdir={folder}"]


def _has_own_namespace(pid: int, kind: str) -> bool:
    """Return whether a process has another namespace of this kind than this process."""
    own = Path(f"/proc/{pid}/ns/{kind}").readlink()
    return own != Path(f"/proc/self/ns/{kind}").readlink()


def _run_until_vm_ends(
    words: Sequence[str], environment: Mapping[str, str], folder: str, vm: int
) -> int:
    """Run a program in the foreground, which ends with the VM, and return its exit status.

    `vm`: file descriptor of the VM's process (pidfd_open).
    """
    program = subprocess.Popen(words, env=environment, cwd=folder)
    is_lost = threading.Event()
    watcher = threading.Thread(target=_end_with_vm, args=(program, vm, is_lost), daemon=True)
    watcher.start()
    while True:
        # The terminal sends Ctrl-C to the program, too, which decides what it means.
        with suppress(KeyboardInterrupt):
            status = program.wait()
            break
    if is_lost.is_set():
        return CONNECTION_LOST
    return SIGNALLED - status if status < 0 else status


def _end_with_vm(program: subprocess.Popen[bytes], vm: int, is_lost: threading.Event) -> None:
    """End the program when the VM ends, and then set `is_lost`.

    `vm`: file descriptor of the VM's process (pidfd_open).
    """
    ended = select.poll()
    ended.register(vm, select.POLLIN)
    while program.poll() is None:
        if not ended.poll(_POLL_MS):
            continue
        is_lost.set()
        program.terminate()
        try:
            program.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            program.kill()
        return
