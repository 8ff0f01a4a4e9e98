"""Ray Train and Ray Tune, on a cluster of two nodes of one CPU each."""

from __future__ import annotations

import shutil
import subprocess
from typing import ClassVar, Final

from bench.peers.run import NotMeasured, Run, family, kill, until
from bench.peers.system import PROGRAMS, STARTS_S, System, free_port

AGENTS: Final = ("dashboard-agent-grpc", "dashboard-agent-listen", "runtime-env-agent", "metrics-export")
QUIET: Final = {
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "PYTHONPATH": str(PROGRAMS),
    "RAY_TRAIN_V2_ENABLED": "1",
}


class Ray(System):
    name: ClassVar = "Ray"
    package: ClassVar = "ray"
    program: ClassVar = "ray_train.py"

    def up(self) -> None:
        self.environment |= QUIET
        for name in ("no_proxy", "NO_PROXY"):
            self.environment[name] = "*"
        self.port = free_port()
        head = self._ray("--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.temporary}")
        self.services = [head]
        self._wait_for_nodes(1)
        self.services.append(self._node())
        self._wait_for_nodes(2)

    def _wait_for_nodes(self, count: int) -> None:
        log = self.folder / "log"
        until(lambda: log.read_text().count("Ray runtime started") >= count, "start of a node", STARTS_S)

    @property
    def temporary(self) -> str:
        """A short path: the names of Ray's sockets have at most 107 bytes."""
        return f"/tmp/peers-ray-{self.port}"  # noqa: S108

    def _ray(self, *options: str) -> subprocess.Popen[bytes]:
        # With ports that it need not wait for: it waits for 30 seconds at most, too short for a busy machine.
        agents = [f"--{agent}-port={free_port()}" for agent in AGENTS]
        quiet = ("--disable-usage-stats", "--block")
        return self.spawn(self.bin / "ray", "start", *options, "--num-cpus=1", *agents, *quiet)

    def _node(self) -> subprocess.Popen[bytes]:
        return self._ray(f"--address=127.0.0.1:{self.port}")

    def start(self, run: Run) -> None:
        self.started = [self.spawn(self.bin / "python", PROGRAMS / self.program, run.file, f"127.0.0.1:{self.port}")]

    def tune(self, run: Run) -> None:
        self.started = [self.spawn(self.bin / "python", PROGRAMS / "ray_tune.py", run.file, f"127.0.0.1:{self.port}")]

    def lose_machine(self, run: Run) -> None:
        # The node that is not the head: the loss of the head ends the cluster.
        kill(self.services[1].pid)
        self.services[1] = self._node()

    def announce(self, run: Run) -> None:
        raise NotMeasured("the function runs in a thread, which gets no signal")

    def down(self) -> None:
        super().down()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def controller(self) -> list[int]:
        return [process.pid for process in family(self.services[0].pid) if "gcs_server" in process.name()]
