"""Systems that train with one process here, or not at all.

dstack and SkyPilot are servers: their jobs need a cloud, or machines by SSH, so only the server
itself is measured. Metaflow and DBOS are libraries that run one process. `System` describes the
methods.
"""

from __future__ import annotations

import secrets
from typing import ClassVar

from bench.peers.run import Run
from bench.peers.system import PROGRAMS, System, free_port, wait_for_port
from trainmaster_emulators.process.loopback import call


class Dstack(System):
    name: ClassVar = "dstack"
    package: ClassVar = "dstack"
    program: ClassVar = ""

    def up(self) -> None:
        self.port = free_port()
        self.environment |= {
            "HOME": str(self.folder),
            "DSTACK_SERVER_DIR": str(self.folder / "server"),
        }
        self.environment["DSTACK_SERVER_ADMIN_TOKEN"] = secrets.token_hex()
        self.services = [
            self.spawn(
                self.bin / "dstack", "server", "--host=127.0.0.1", f"--port={self.port}", "--yes"
            )
        ]
        wait_for_port(self.port, self.services[0])

    def keep(self, count: int) -> None:
        # They wait for capacity, because the server has no cloud.
        retry = {"on_events": ["no-capacity"], "duration": "1d"}
        spec = {"configuration": {"type": "task", "commands": ["true"], "retry": retry}}
        token = f"Bearer {self.environment['DSTACK_SERVER_ADMIN_TOKEN']}"
        for _ in range(count):
            body = {"plan": {"run_spec": spec}, "force": True}
            call(
                f"127.0.0.1:{self.port}",
                "POST",
                "/api/project/main/runs/apply",
                body,
                Authorization=token,
            )


class SkyPilot(System):
    name: ClassVar = "SkyPilot"
    package: ClassVar = "skypilot"
    program: ClassVar = ""

    def up(self) -> None:
        port = free_port()
        self.environment |= {"HOME": str(self.folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
        server = ("-m", "sky.server.server", "--host=127.0.0.1", f"--port={port}")
        self.services = [self.spawn(self.bin / "python", *server)]
        wait_for_port(port, self.services[0])


class Metaflow(System):
    name: ClassVar = "Metaflow"
    package: ClassVar = "metaflow"
    program: ClassVar = "metaflow_flow.py"
    ranks: ClassVar = 1

    def start(self, run: Run) -> None:
        self.environment |= {"HOME": str(self.folder), "USER": "bench"}
        self.started = [
            self.spawn(self.bin / "python", PROGRAMS / self.program, "run", "--file", run.file)
        ]

    def controller(self) -> list[int]:
        return [self.started[0].pid]


class Dbos(System):
    name: ClassVar = "DBOS"
    package: ClassVar = "dbos"
    program: ClassVar = "dbos_workflow.py"
    ranks: ClassVar = 1

    def start(self, run: Run) -> None:
        # The shell stands for the service manager that starts the user's process again: no part of
        # DBOS does.
        again = ("sh", "-c", 'until "$@"; do :; done', "sh")
        self.started = [self.spawn(*again, self.bin / "python", PROGRAMS / self.program, run.file)]
