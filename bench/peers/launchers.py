"""torchrun, and launchers made from it, as systems that the benchmark compares (`System`).

A job of two nodes with one process each is two launchers on this machine, which meet at one port,
the rendezvous. To lose a machine is to kill a launcher, and to offer another one is to start it
again.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import ClassVar, Final

from bench.peers.run import NotMeasured, Run, family, kill
from bench.peers.system import ENVIRONMENTS, PROGRAMS, System, free_port, wait_for_port
from trainmaster_emulators.checkout import ROOT

OWN_STORE: Final = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""The ranks meet at a store of their own.

By default they meet at that of the launchers, which still has the addresses of ended ranks. Then
recoveries took 40 s, or did not happen within two minutes.
"""


class Torchrun(System):
    """torchrun of PyTorch. `started` has one launcher for each node; the first one decides."""

    name: ClassVar = "torchrun"
    package: ClassVar = "torch"
    options: ClassVar[tuple[str, ...]] = ()
    """Options of the launcher besides those of torchrun."""

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

    def start_collective(self, run: Run) -> None:
        self.start(run)

    def _node(self, run: Run, *, is_host: bool = False) -> subprocess.Popen[bytes]:
        """Start one node, by the command that torchrun's page gives for all nodes.

        On machines of their own, they find out by their addresses who holds the rendezvous.
        """
        environment = {"NODE_RANK": "0" if is_host else "1"}
        if run.has_collective:
            environment |= OWN_STORE
        return self.spawn(
            *self.launcher,
            f"--nnodes={':'.join(map(str, [*run.fewest, run.ranks]))}",  # MIN:MAX, or the number
            "--nproc-per-node=1",
            "--max-restarts=100",
            *self.rendezvous(is_host=is_host),
            *self.options,
            PROGRAMS / ("ddp.py" if run.has_collective else self.program),
            run.file,
            *run.fewest,
            env=environment,
        )

    def rendezvous(self, *, is_host: bool) -> tuple[str, ...]:
        """Return the options with which the launchers meet; `is_host`: this one listens."""
        endpoint = f"--rdzv-endpoint=127.0.0.1:{self.port}"
        host = f"--rdzv-conf=is_host={int(is_host)}"
        return ("--rdzv-id=bench", "--rdzv-backend=c10d", endpoint, host)

    def lose_machine(self, run: Run) -> None:
        # Not the one that holds the rendezvous: its loss ends the job.
        kill(self.started[-1].pid)

    def offer_machine(self, run: Run) -> None:
        self.started[-1] = self._node(run)

    def announce(self, run: Run) -> None:
        node = next(
            node
            for node in self.started
            if run.processes[1] in [process.pid for process in family(node.pid)]
        )
        node.send_signal(signal.SIGTERM)

    def controller(self) -> list[int]:
        return [self.started[0].pid]


class FtLauncher(Torchrun):
    """NVIDIA's Resiliency Extension."""

    name: ClassVar = "ft_launcher"
    package: ClassVar = "nvidia-resiliency-ext"
    program: ClassVar = "ft.py"
    hang = Torchrun.start  # its options limit each step anyway
    options: ClassVar = ("--ft-initial-rank-heartbeat-timeout=60", "--ft-rank-heartbeat-timeout=60")

    @property
    def bin(self) -> Path:
        return ENVIRONMENTS / "ftlauncher" / "bin"

    @property
    def launcher(self) -> list[object]:
        return [self.bin / "ft_launcher"]


class DLRover(Torchrun):
    """DLRover's launcher, with its master as a process of its own, as on a cluster."""

    name: ClassVar = "DLRover"
    package: ClassVar = "dlrover"

    @property
    def bin(self) -> Path:
        return ENVIRONMENTS / "dlrover" / "bin"

    @property
    def launcher(self) -> list[object]:
        return [self.bin / "dlrover-run"]

    def start(self, run: Run) -> None:
        self.port = free_port()
        self.environment["DLROVER_MASTER_ADDR"] = f"127.0.0.1:{self.port}"
        options = (
            f"--port={self.port}",
            f"--node_num={run.ranks}",
            "--job_name=bench",
            "--platform=local",
        )
        self.master = self.spawn(self.bin / "python", "-m", "dlrover.python.master.main", *options)
        self.started = [self.master]
        wait_for_port(self.port, self.master)
        self.started += [self._node(run, is_host=rank == 0) for rank in range(run.ranks)]

    def rendezvous(self, *, is_host: bool) -> tuple[str, ...]:
        return ()  # by the master

    def hang(self, run: Run) -> None:
        raise NotMeasured("only its master on Kubernetes looks for hangs")

    def controller(self) -> list[int]:
        return [self.master.pid]
