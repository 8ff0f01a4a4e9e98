"""Systems that are a server: what they use while no job runs. Their jobs need a cloud, or machines reached by SSH."""

from __future__ import annotations

from typing import ClassVar

from bench.peers.system import System, free_port, wait_for_port


class Dstack(System):
    name: ClassVar = "dstack"
    package: ClassVar = "dstack"
    program: ClassVar = ""

    def up(self) -> None:
        port = free_port()
        self.environment |= {"HOME": str(self.folder), "DSTACK_SERVER_DIR": str(self.folder / "server")}
        self.services = [self.spawn(self.bin / "dstack", "server", "--host=127.0.0.1", f"--port={port}", "--yes")]
        wait_for_port(port, self.services[0])


class SkyPilot(System):
    name: ClassVar = "SkyPilot"
    package: ClassVar = "skypilot"
    program: ClassVar = ""

    def up(self) -> None:
        port = free_port()
        self.environment |= {"HOME": str(self.folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
        server = (self.bin / "python", "-m", "sky.server.server", "--host=127.0.0.1", f"--port={port}")
        self.services = [self.spawn(*server)]
        wait_for_port(port, self.services[0])
