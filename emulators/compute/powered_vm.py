"""A VM's disk and its processes while it is powered on. States and times are `lifecycle`'s; this is the hardware.

Disk        DIR/vms/ID/{home,work,bin,startup-script}, incarnations as long as the instance;  DIR/serial/NAME-ID.log, longer
PoweredVm   one power-on: `vm_init` and everything below it
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from emulators.compute import vm_container_engine, vm_init
from emulators.compute.operations import timestamp
from emulators.stack import processes

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARKER: Final = "TRAINMASTER_EMULATED_VM"
"""In the environment of every process of a VM: how strays are found should `vm_init` itself be killed."""
SERIAL_KEPT_BYTES: Final = 1 << 20
"""Source: getSerialPortOutput returns at most the last 1 MB of a port's output."""
_AGENT: Final = re.compile(r"(^|/)agent\.pyz?$")


@dataclass(frozen=True, slots=True)
class Disk:
    """`root` is removed with the instance; the serial log stays, so that a failed VM can still be read."""

    root: Path
    serial_log: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def create(self) -> None:
        for directory in (self.home, self.work, self.serial_log.parent):
            directory.mkdir(parents=True, exist_ok=True)
        self.serial_log.touch()

    def write_script(self, script: str) -> Path:
        path = self.root / "startup-script"
        path.write_text(script)
        return path

    def log(self, line: str) -> None:
        with self.serial_log.open("a") as file:
            file.write(f"{timestamp()} {line}\n")

    def serial_output(self, start: int) -> tuple[int, str, int]:
        """Output from byte `start` on, or from the oldest byte kept: where it begins, the text, where to go on."""
        if not self.serial_log.exists():  # nothing was said yet
            return 0, "", 0
        with self.serial_log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = min(max(start, size - SERIAL_KEPT_BYTES, 0), size)
            file.seek(start)
            data = file.read(size - start)
        return start, data.decode(errors="replace"), size

    def destroy(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class PoweredVm:
    """`on_unexpected_end` is called, from a thread of its own, when the VM ends without having been told to."""

    def __init__(
        self, disk: Disk, script: str, environment: Mapping[str, str], on_unexpected_end: Callable[[PoweredVm], None]
    ) -> None:
        self._marker = str(disk.root)
        self._ending = False
        self._on_unexpected_end = on_unexpected_end
        self._has_containers = vm_container_engine.trace(disk.root)
        path = disk.write_script(script)
        python = [sys.executable, "-I", "-S"]
        unplug = [*python, vm_container_engine.__file__, self._label]
        with disk.serial_log.open("ab") as serial:
            self._init = subprocess.Popen(
                [*python, vm_init.__file__, str(path), str(self._has_containers), *unplug],
                stdin=subprocess.PIPE,
                stdout=serial,
                stderr=subprocess.STDOUT,
                cwd=disk.work,
                env=self._environment(disk, environment),
                start_new_session=True,
            )
        threading.Thread(target=self._watch, name=f"vm-{disk.root.name}", daemon=True).start()

    @property
    def _label(self) -> str:
        return f"{MARKER}={self._marker}"

    def _environment(self, disk: Disk, given: Mapping[str, str]) -> dict[str, str]:
        environment = {**given, "HOME": str(disk.home)}
        stack = [f"{processes.STACK_ID}={given[processes.STACK_ID]}"] if processes.STACK_ID in given else []
        own_programs = vm_container_engine.install(disk.root, given, self._label, *stack)
        environment["PATH"] = f"{own_programs}{os.pathsep}{environment['PATH']}"
        return {**environment, MARKER: self._marker}

    def _watch(self) -> None:
        if self._init.wait() != 0:
            self._kill_strays()
        if not self._ending:
            self._on_unexpected_end(self)

    def shutdown(self, grace_s: float) -> None:
        """The ACPI power button, then, after `grace_s` or when everything has ended, the power cable. Blocks."""
        self._ending = True
        self._init.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._init.wait(grace_s)
        self.power_off()

    def power_off(self) -> None:
        """Kills every process of the VM; returns when none is left. May be called by several threads, and again."""
        self._ending = True
        with contextlib.suppress(OSError):  # closed by another thread
            cast(IO[bytes], self._init.stdin).close()
        self._init.wait()

    def _kill_strays(self) -> None:
        desired = self._label.encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if desired in environ.read_bytes().split(b"\0"):
                    os.kill(int(environ.parent.name), signal.SIGKILL)
        if self._has_containers.exists():
            vm_container_engine.remove(self._label)

    def processes(self) -> list[int]:
        return vm_init.descendants(self._init.pid)

    def signal_program(self, signum: int) -> int | None:
        """Its process id, be it the VM's own or a container's; None where no program runs."""
        pid = vm_container_engine.signal_running(self._label, signum) if self._has_containers.exists() else None
        if pid is None and (pid := self.program()) is not None:
            os.kill(pid, signum)
        return pid

    def program(self) -> int | None:
        """The training program: the agent's child that leads a session or process group of its own, pip apart."""
        pids = self.processes()
        agents = {pid for pid in pids if any(_AGENT.search(part) for part in _arguments(pid))}
        for pid in pids:
            with contextlib.suppress(OSError):
                arguments = _arguments(pid)
                module = arguments[arguments.index("-m") + 1] if "-m" in arguments[:-1] else None
                if _parent(pid) in agents and os.getpgid(pid) == pid and arguments and module != "pip":
                    return pid
        return None


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
