"""The disk of a VM, and its processes while it is powered on.

Disk        DIR/vms/ID/{home,work,tmp,bin,python,startup-script}, deleted with the VM
            DIR/serial/NAME-ID.log, kept
PoweredVm   one power-on: `vm_init` and all its descendants

`vm_init` is the first process of a VM, and runs its startup script. SIGTERM lets it shut the VM
down; the end of its standard input lets it kill all processes of the VM at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

import psutil

from trainmaster_emulators.machines import gcsfuse, vm_init
from trainmaster_emulators.machines.operations import timestamp
from trainmaster_emulators.process import processes, vm_container_engine

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARKER: Final = "TRAINMASTER_EMULATED_VM"
"""Variable of every process of a VM. It identifies the processes that are left if `vm_init` itself
is killed.
"""
SERIAL_BYTES_MAX: Final = 1 << 20
"""Source: getSerialPortOutput returns at most the last 1 MB of a port's output."""
# An argument by which the agent's command line is recognized
_AGENT: Final = re.compile(r"(^|/)agent\.pyz?$")


@dataclass(frozen=True, slots=True)
class Disk:
    """The VM's files.

    `root` is deleted with the instance. The serial log stays, for diagnosis of a failed VM.
    """

    root: Path
    serial_log: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def python(self) -> Path:
        return self.root / "python"

    def empty_tmp(self) -> None:
        """Remove what an earlier boot left in /tmp, as Google's images do at each boot."""
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir()
        self.tmp.chmod(0o1777)

    def create(self) -> None:
        for directory in (self.home, self.work, self.serial_log.parent):
            directory.mkdir(parents=True, exist_ok=True)
        self.serial_log.touch()

    def break_gpu(self) -> None:
        """Let the VM's kernel log say that a GPU has fallen off the bus."""
        program = self.root / "bin" / "dmesg"
        program.parent.mkdir(parents=True)
        program.write_text(
            "#!/bin/sh\necho 'NVRM: Xid (PCI:0000:00:04): 79, GPU has fallen off the bus.'\n"
        )
        program.chmod(0o755)

    def write_script(self, script: str) -> Path:
        path = self.root / "startup-script"
        path.write_text(script)
        return path

    def log(self, line: str) -> None:
        with self.serial_log.open("a") as file:
            file.write(f"{timestamp()} {line}\n")

    def serial_output(self, start: int) -> tuple[int, str, int]:
        """Return the output from byte `start`, or from the oldest available byte: (its start, the
        text, its end).
        """
        if not self.serial_log.exists():  # no output yet
            return 0, "", 0
        with self.serial_log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = min(max(start, size - SERIAL_BYTES_MAX, 0), size)
            file.seek(start)
            data = file.read(size - start)
        return start, data.decode(errors="replace"), size

    def destroy(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class PoweredVm:
    """The processes of one power-on.

    `on_unexpected_end` is called on another thread when the VM ends without `shutdown` or
    `power_off`.
    """

    def __init__(
        self,
        disk: Disk,
        script: str,
        environment: Mapping[str, str],
        on_unexpected_end: Callable[[PoweredVm], None],
    ) -> None:
        self._marker = str(disk.root)
        self._ending = False
        self._on_unexpected_end = on_unexpected_end
        self._container_marker = vm_container_engine.container_marker(disk.root)
        path = disk.write_script(script)
        disk.empty_tmp()
        python = [sys.executable, "-I", "-S"]  # without site packages: one process for each VM
        remove_containers = [*python, vm_container_engine.__file__, self._label]
        arguments = [str(path), str(disk.tmp), str(self._container_marker), *remove_containers]
        with disk.serial_log.open("ab") as serial:
            self._init = subprocess.Popen(
                [*python, vm_init.__file__, *arguments],
                stdin=subprocess.PIPE,
                stdout=serial,
                stderr=subprocess.STDOUT,
                cwd=disk.work,
                env=self._environment(disk, environment),
                start_new_session=True,
            )
        threading.Thread(target=self._watch, name=f"vm-{disk.root.name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id of `vm_init`, which has the VM's environment and mounts, and ends when the VM
        is powered off.
        """
        return self._init.pid

    @property
    def _label(self) -> str:
        return f"{MARKER}={self._marker}"

    def _environment(self, disk: Disk, base: Mapping[str, str]) -> dict[str, str]:
        labels = [self._label]
        if processes.STACK_ID in base:
            labels.append(f"{processes.STACK_ID}={base[processes.STACK_ID]}")
        programs = vm_container_engine.install_clients(disk.root, base, *labels)
        return {
            **base,
            "HOME": str(disk.home),
            "PATH": f"{programs}{os.pathsep}{base['PATH']}",
            MARKER: self._marker,
        }

    def _watch(self) -> None:
        was_killed = self._init.wait() != 0
        if was_killed:
            self._kill_strays()
        if not self._ending:
            self._on_unexpected_end(self)

    def shutdown(self, grace_s: float) -> None:
        """Ask the VM to shut down, and power it off after `grace_s` or when all its processes have
        ended. Blocks.
        """
        self._ending = True
        self._init.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._init.wait(grace_s)
        self.power_off()

    def power_off(self) -> None:
        """Kill every process of the VM and wait until none is left.

        Several threads may call it, repeatedly.
        """
        self._ending = True
        with contextlib.suppress(OSError):  # closed by another thread
            cast(IO[bytes], self._init.stdin).close()  # `vm_init` kills all processes
        self._init.wait()

    def _kill_strays(self) -> None:
        for process in processes.with_variable(MARKER, self._marker):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._container_marker.exists():
            vm_container_engine.remove_containers(self._label)

    def signal_program(self, signum: int) -> int | None:
        """Signal the training program, in a container or not.

        Return its process id, None if none is running.
        """
        has_containers = self._container_marker.exists()
        if has_containers:
            pid = vm_container_engine.signal_container(self._label, signum)
            if pid is not None:
                return pid
        pid = self.find_program()
        if pid is not None:
            os.kill(pid, signum)
        return pid

    def find_program(self) -> int | None:
        """Return the process id of the training program: the agent's child that leads a process
        group.

        pip and gcsfuse lead groups of their own, too.
        """
        try:
            family = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return None
        agents = {process.pid for process in family if any(map(_AGENT.search, _arguments(process)))}
        for process in family:
            arguments = _arguments(process)
            if not arguments or _is_helper(arguments):
                continue
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                leads_group = os.getpgid(process.pid) == process.pid
                if leads_group and process.ppid() in agents:
                    return process.pid
        return None


def _is_helper(arguments: list[str]) -> bool:
    """Return whether it is the command line of pip or gcsfuse, which the agent starts, too."""
    if "-m" in arguments[:-1] and arguments[arguments.index("-m") + 1] == "pip":
        return True
    return any(f"from {gcsfuse.__name__}." in word for word in arguments)


def _arguments(process: psutil.Process) -> list[str]:
    """Return the command line; nothing if the process has ended."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []
