"""Choose what runs Google's emulators on this machine: the Cloud SDK, a container engine, or
nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from trainmaster_emulators.process import container_service
from trainmaster_emulators.process.stack_config import EMULATORS_VARIABLE
from trainmaster_emulators.process.state import StackError

# Below the folder of the Cloud SDK
FIRESTORE_JAR: Final = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
PUBSUB_JARS: Final = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
GCLOUD_S: Final = 30.0
"""Longest time of `gcloud info`."""
# Where a container engine listens, unless DOCKER_HOST is set
ENGINE: Final = "unix:///var/run/docker.sock"
ENGINE_PORT: Final = 2375
ENGINE_S: Final = 2.0
"""Longest time until it accepts a connection."""

# Without the second compiler tier and the parallel garbage collector, an emulator starts in a
# quarter of the default time. Measured on two cores.
JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Duser.language=en",
)


class BackendKind(StrEnum):
    """Programs that can run the emulators of Firestore and Pub/Sub."""

    CLOUD_SDK = "cloud-sdk"
    CONTAINERS = "containers"
    MEMORY = "memory"
    """Neither can; a command that can do without keeps state and messages in its own process."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Programs that run Google's emulators."""

    kind: BackendKind
    reason: str
    """One line for the user: why this kind was chosen."""
    java: str = ""
    """Path of the `java` program; this and the two jars are set for the Cloud SDK only."""
    firestore_jar: Path = Path()
    pubsub_jar: Path = Path()


def choose_backend(desired: str | None = None) -> Backend:
    """Return the requested backend, or the best one that this machine has. Nothing is downloaded.

    `desired` None: read the request from the environment variable. Raises StackError for an unknown
    backend.
    """
    if desired is None:
        desired = os.environ.get(EMULATORS_VARIABLE, "")
    if desired not in ("", BackendKind.CLOUD_SDK, BackendKind.CONTAINERS):
        choice = f"{BackendKind.CLOUD_SDK} or {BackendKind.CONTAINERS}"
        raise StackError(f"{EMULATORS_VARIABLE}: must be {choice}, not {desired}")
    if sys.platform != "linux":
        return Backend(BackendKind.MEMORY, f"the local stack needs Linux, this is {sys.platform}")
    why_no_sdk = f"{EMULATORS_VARIABLE} requests containers"
    if desired != BackendKind.CONTAINERS:
        found = _find_cloud_sdk()
        if isinstance(found, Backend):
            return found
        why_no_sdk = found
    if desired == BackendKind.CLOUD_SDK:
        reason = f"{why_no_sdk}; {EMULATORS_VARIABLE} allows nothing else"
        return Backend(BackendKind.MEMORY, reason)
    if _engine_responds():
        return Backend(BackendKind.CONTAINERS, f"{why_no_sdk}; a container engine responds")
    return Backend(BackendKind.MEMORY, f"{why_no_sdk}; no container engine responds")


def require_backend(desired: str | None = None, *, in_memory: bool = False) -> Backend:
    """Choose a backend and fetch the container images it needs.

    `in_memory`: the caller keeps state and messages in memory, so nothing is needed. Otherwise
    raises StackError where this machine cannot run the emulators.
    """
    if in_memory and sys.platform == "linux":
        return Backend(BackendKind.MEMORY, "the control plane runs in memory")
    backend = choose_backend(desired)
    if backend.kind is BackendKind.MEMORY:
        raise StackError(
            f"cannot run Google's emulators: {backend.reason}. Install the Cloud SDK with its"
            " components cloud-firestore-emulator and pubsub-emulator, and Java; or a container"
            " engine"
        )
    if backend.kind is BackendKind.CONTAINERS:
        container_service.fetch_images()
    return backend


def _find_cloud_sdk() -> Backend | str:
    """Return the Cloud SDK's backend, or a sentence about what is missing for it."""
    java = _find_java()
    if java is None:
        return "no Java on PATH"
    root = _find_sdk_root()
    if root is None:
        return "no Cloud SDK on PATH"
    firestore = root / FIRESTORE_JAR
    pubsub = sorted(root.glob(PUBSUB_JARS))
    missing = []
    if not firestore.is_file():
        missing.append("cloud-firestore-emulator")
    if not pubsub:
        missing.append("pubsub-emulator")
    if missing:
        return f"the Cloud SDK has no component {' and no '.join(missing)}"
    return Backend(
        BackendKind.CLOUD_SDK, "the Cloud SDK has both emulators", java, firestore, pubsub[-1]
    )


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


def _find_sdk_root() -> Path | None:
    """Return the folder of the Cloud SDK. Try `gcloud info` last: it is certain but takes two
    seconds.
    """
    configured = os.environ.get("CLOUDSDK_ROOT_DIR")
    if configured:
        return Path(configured)
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return None
    installation = Path(gcloud).resolve().parent.parent
    if (installation / "platform").is_dir():
        return installation
    try:
        info = subprocess.run(
            [gcloud, "info", "--format=value(installation.sdk_root)"],
            capture_output=True,
            text=True,
            timeout=GCLOUD_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    root = info.stdout.strip()
    return Path(root) if root else None


def _engine_responds() -> bool:
    """Return whether a container engine listens where testcontainers would look.

    A bare connection is enough; importing the engine's client takes 0.2 s.
    """
    address = urlsplit(os.environ.get("DOCKER_HOST") or ENGINE)
    try:
        if address.scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(ENGINE_S)
                probe.connect(address.path)
        else:
            host_and_port = (address.hostname or "", address.port or ENGINE_PORT)
            socket.create_connection(host_and_port, ENGINE_S).close()
    except OSError:
        return False
    return True
