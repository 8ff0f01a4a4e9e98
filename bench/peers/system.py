"""The interface of the systems that the benchmark compares.

A method raises NotMeasured if its system cannot do that: the reason is a cell of the table.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

import psutil

from bench.peers.run import NotMeasured, Run, families, is_alive, kill
from trainmaster_emulators.checkout import ROOT

PROGRAMS: Final = Path(__file__).parent / "programs"
ENVIRONMENTS: Final = ROOT / "build" / "peers"
STARTS_S: Final = 300.0
"""Longest time for a start, on a busy machine."""
END_MAX_S: Final = 20.0
"""Time in which a program may end by itself before it is killed."""
POLL_S: Final = 0.1
"""Pause between two looks at a process or a port."""


class System:
    """One system.

    `up` comes first and `down` last; in between it runs one program after another.
    """

    name: ClassVar[str]
    """Its column in the table."""
    package: ClassVar[str]
    """Its package on PyPI, whose version the table has."""
    program: ClassVar[str] = "steps.py"
    """The program that it runs, a file in `programs/`."""
    ranks: ClassVar = 2
    """Processes that train together."""
    port = 0
    """Port at which its processes meet; 0: not assigned yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Folder of this run: programs write their moments here, systems their logs."""
        folder.mkdir(parents=True)
        self.environment = dict(os.environ)
        self.services: list[subprocess.Popen[bytes]] = []
        self.started: list[subprocess.Popen[bytes]] = []
        """Processes of the current program."""

    @property
    def bin(self) -> Path:
        return ENVIRONMENTS / type(self).__name__.lower() / "bin"

    def version(self) -> str:
        """Return the version of its package. Raises NotMeasured if it is not installed."""
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        try:
            return subprocess.check_output([self.bin / "python", "-c", code], text=True).strip()
        except (OSError, subprocess.CalledProcessError):
            raise NotMeasured("is not installed") from None

    def up(self) -> None:
        """Start what must run before a program can."""

    def start(self, run: Run) -> None:
        """Start the program."""
        raise NotMeasured("needs a cloud, or machines by SSH")

    def start_collective(self, run: Run) -> None:
        """Start `ddp.py` (`run.has_collective` is set)."""
        raise NotMeasured("has no PyTorch here")

    def hang(self, run: Run) -> None:
        """Start the program, with a time limit of a minute for a step that does not come."""
        raise NotMeasured("has no such limit")

    def lose_machine(self, run: Run) -> None:
        """End the machine of rank 1 without notice. There is no other one until `offer_machine`."""
        raise NotMeasured("has no machines")

    def offer_machine(self, run: Run) -> None:
        """Let the system take another machine, or provide one if it does not."""

    def announce(self, run: Run) -> None:
        """Announce the end of the machine of rank 1."""
        raise NotMeasured("has no notice")

    def tune(self, run: Run) -> None:
        """Start eight trials, two at a time."""
        raise NotMeasured("does not tune")

    def keep(self, count: int) -> None:
        """Take `count` more jobs, which wait."""
        raise NotMeasured("has no server that keeps jobs without a cloud")

    def controller(self) -> list[int]:
        """Return the processes that decide."""
        raise NotMeasured("has no controller")

    @property
    def has_failed(self) -> bool:
        """Whether a process that was started for the program has ended with an error."""
        return any(process.poll() for process in self.started)

    def end(self, run: Run) -> None:
        """End the program and what was started for it."""
        run.finish()
        deadline = time.monotonic() + END_MAX_S
        while (
            any(process.poll() is None for process in self.started) and time.monotonic() < deadline
        ):
            time.sleep(POLL_S)
        kill(*filter(is_alive, run.processes.values()))
        _stop(self.started)

    def down(self) -> None:
        _stop([*self.started, *self.services])

    def idle(self) -> list[psutil.Process]:
        """Return the processes that run while no job does."""
        return families(service.pid for service in self.services)

    def spawn(
        self, *command: object, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process. Its output is appended to the log of the system."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(word) for word in command],
                cwd=self.folder,
                env=self.environment | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def call(self, *command: object) -> None:
        """Run a command to its end. Raises NotMeasured if it fails."""
        status = self.spawn(*command).wait(STARTS_S)
        if status != 0:
            raise NotMeasured(
                f"`{' '.join(str(word) for word in command[:3])}` ended with status {status}"
            )

    @classmethod
    def lines(cls) -> Sequence[str]:
        """Return the lines that the program needs for this system, beside `steps.py`, which knows
        no system.
        """
        if cls.program == System.program:
            return []
        text = (PROGRAMS / cls.program).read_text(encoding="utf-8")
        return [line for line in text.splitlines() if line.strip() and not line.startswith('"""')]


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    kill(*(process.pid for process in processes))
    while processes:
        with suppress(ProcessLookupError):  # what an ended launcher has left
            os.killpg(processes[-1].pid, signal.SIGKILL)
        processes.pop().wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server accepts connections.

    Raises NotMeasured if it ends, or takes minutes.
    """
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(POLL_S)
    raise NotMeasured("its service does not start here")
