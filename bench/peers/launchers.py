"""torchrun, and launchers made from it: two of them on one machine stand for two nodes of one process each."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from bench.peers.run import Run, family, kill
from bench.peers.system import ENVIRONMENTS, PROGRAMS, System, free_port, wait_for_port
from trainmaster_emulators.process.state import ROOT


class Torchrun(System):
    name: ClassVar = "torchrun"
    package: ClassVar = "torch"
    options: ClassVar[tuple[str, ...]] = ()

    @property
    def bin(self) -> Path:
        return ROOT / ".images" / "pytorch" / "bin"

    @property
    def launcher(self) -> list[object]:
        return [self.bin / "python", "-m", "torch.distributed.run"]

    def start(self, run: Run) -> None:
        self.port = free_port()
        self.started = [self._node(run, is_host=True)]
        wait_for_port(self.port, self.started[0])  # it holds the rendezvous
        self.started += [self._node(run) for _ in range(1, run.ranks)]

    def _node(self, run: Run, *, is_host: bool = False) -> subprocess.Popen[bytes]:
        """Start one node, by the command that torchrun's page gives for all nodes.

        On machines of their own, they find out by their addresses who holds the rendezvous.
        """
        return self.spawn(
            *self.launcher,
            f"--nnodes={run.ranks}",
            "--nproc-per-node=1",
            "--rdzv-id=bench",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self.port}",
            f"--rdzv-conf=is_host={int(is_host)}",
            "--max-restarts=100",
            *self.options,
            PROGRAMS / self.program,
            run.file,
        )

    def lose_machine(self, run: Run) -> None:
        # Not the one that holds the rendezvous: its loss ends the job.
        kill(self.started[-1].pid)
        self.started[-1] = self._node(run)

    def announce(self, run: Run) -> None:
        node = next(node for node in self.started if run.processes[1] in [one.pid for one in family(node.pid)])
        node.send_signal(signal.SIGTERM)

    def controller(self) -> list[int]:
        return [self.started[0].pid]


class FtLauncher(Torchrun):
    """NVIDIA's Resiliency Extension."""

    name: ClassVar = "ft_launcher"
    package: ClassVar = "nvidia-resiliency-ext"
    program: ClassVar = "ft.py"
    hang = Torchrun.start
    options: ClassVar = ("--ft-initial-rank-heartbeat-timeout=60", "--ft-rank-heartbeat-timeout=60")

    @property
    def bin(self) -> Path:
        return ENVIRONMENTS / "ftlauncher" / "bin"

    @property
    def launcher(self) -> list[object]:
        return [self.bin / "ft_launcher"]
