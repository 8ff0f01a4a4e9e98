"""Ray Train and Ray Tune, on a cluster of two nodes of one CPU each."""

from __future__ import annotations

import shutil
import subprocess
from typing import ClassVar, Final

from bench.peers.run import NotMeasured, Run, family, kill, until
from bench.peers.system import ENVIRONMENTS, PROGRAMS, STARTS_S, System, free_port, wait_for_port
from trainmaster_emulators.process.loopback import call

# For a busy machine: the default is 30 seconds.
VARIABLES: Final = {
    "RAY_raylet_start_wait_time_s": "300",
    "PYTHONPATH": str(PROGRAMS),
    "no_proxy": "*",
}


class Ray(System):
    name: ClassVar = "Ray"
    package: ClassVar = "ray"
    program: ClassVar = "ray_train.py"

    def up(self) -> None:
        self.environment |= VARIABLES
        self.port = free_port()
        head = self._ray(
            "--head",
            f"--port={self.port}",
            "--include-dashboard=false",
            f"--temp-dir={self.temporary}",
        )
        self.services = [head]
        self._wait_for_nodes(1)
        self.services.append(self._node())
        self._wait_for_nodes(2)

    def _wait_for_nodes(self, count: int) -> None:
        def are_up() -> bool:
            if self.services[-1].poll() is not None:
                raise NotMeasured("its node does not start")
            return (self.folder / "log").read_text().count("Ray runtime started") >= count

        until(are_up, "start of a node", STARTS_S)

    @property
    def temporary(self) -> str:
        """A short path: the names of Ray's sockets have at most 107 bytes."""
        return f"/tmp/peers-ray-{self.port}"  # noqa: S108

    def _ray(self, *options: str, environment: str = "ray") -> subprocess.Popen[bytes]:
        program = ENVIRONMENTS / environment / "bin" / "ray"
        return self.spawn(
            program, "start", *options, "--num-cpus=1", "--disable-usage-stats", "--block"
        )

    def _node(self) -> subprocess.Popen[bytes]:
        return self._ray(f"--address=127.0.0.1:{self.port}")

    def start(self, run: Run) -> None:
        arguments = (run.file, f"127.0.0.1:{self.port}", *run.fewest)
        self.started = [self.spawn(self.bin / "python", PROGRAMS / self.program, *arguments)]

    def tune(self, run: Run) -> None:
        self.started = [
            self.spawn(
                self.bin / "python", PROGRAMS / "ray_tune.py", run.file, f"127.0.0.1:{self.port}"
            )
        ]

    def lose_machine(self, run: Run) -> None:
        # The node that is not the head: the loss of the head ends the cluster.
        kill(self.services[1].pid)

    def offer_machine(self, run: Run) -> None:
        self.services[1] = self._node()

    def announce(self, run: Run) -> None:
        raise NotMeasured("the function runs in a thread, which gets no signal")

    def down(self) -> None:
        super().down()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def keep(self, count: int) -> None:
        # To a job server, in place of the cluster of the other rows. They wait for more CPUs than
        # it has.
        if len(self.services) > 1:
            self.down()
            head = (
                "--head",
                "--port=0",
                f"--dashboard-port={self.port}",
                f"--temp-dir={self.temporary}",
            )
            self.services = [self._ray(*head, environment="rayserver")]
            wait_for_port(self.port, self.services[0])
        for _ in range(count):
            call(
                f"127.0.0.1:{self.port}",
                "POST",
                "/api/jobs/",
                {"entrypoint": "true", "entrypoint_num_cpus": 64},
            )

    def controller(self) -> list[int]:
        return [
            process.pid
            for process in family(self.services[0].pid)
            if "gcs_server" in process.name()
        ]
