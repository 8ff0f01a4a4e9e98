"""What this machine can run Google's emulators with: the Cloud SDK, a container engine, or nothing."""

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

from emulators.stack import container_service
from emulators.stack.state import EMULATORS_VARIABLE, StackError

FIRESTORE_JAR: Final = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
PUBSUB_JARS: Final = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
GCLOUD_S: Final = 30.0
ENGINE: Final = "unix:///var/run/docker.sock"
ENGINE_PORT: Final = 2375
ENGINE_S: Final = 2.0

# A quarter of the default start-up time: no second compiler tier, no parallel collector on two cores. [measured]
JVM_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Duser.language=en")


class BackendKind(StrEnum):
    CLOUD_SDK = "cloud-sdk"
    CONTAINERS = "containers"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Backend:
    """What the emulators run on, and in one line why."""

    kind: BackendKind
    reason: str
    java: str = ""
    firestore_jar: Path = Path()
    pubsub_jar: Path = Path()


def available_backends(desired: str | None = None) -> Backend:
    """What is desired (None: what the environment says), else the best that this machine can do; never downloads.

    Raises StackError for an unknown wish.
    """
    if desired is None:
        desired = os.environ.get(EMULATORS_VARIABLE, "")
    if desired not in ("", BackendKind.CLOUD_SDK, BackendKind.CONTAINERS):
        choice = f"{BackendKind.CLOUD_SDK} or {BackendKind.CONTAINERS}"
        raise StackError(f"{EMULATORS_VARIABLE} must be {choice}, not {desired}")
    if sys.platform != "linux":
        return Backend(BackendKind.MEMORY, f"the local stack needs Linux, this is {sys.platform}")
    found = "containers are asked for" if desired == BackendKind.CONTAINERS else _cloud_sdk()
    if isinstance(found, Backend):
        return found
    if desired == BackendKind.CLOUD_SDK:
        return Backend(BackendKind.MEMORY, f"{found}; nothing else is asked for")
    if _engine_answers():
        return Backend(BackendKind.CONTAINERS, f"{found}; a container engine answers")
    return Backend(BackendKind.MEMORY, f"{found}; no container engine answers")


def need_emulators(desired: str | None = None, *, in_memory: bool = False) -> Backend:
    """As `available_backends`, with the images that takes. Raises StackError where there is nothing to run the
    emulators with, unless the state and the messages are kept in memory."""
    if in_memory and sys.platform == "linux":
        return Backend(BackendKind.MEMORY, "as asked")
    backend = available_backends(desired)
    if backend.kind is BackendKind.MEMORY:
        raise StackError(
            f"no emulators: {backend.reason}. Needed: the Cloud SDK with its components cloud-firestore-emulator and "
            "pubsub-emulator, and Java; or a container engine"
        )
    if backend.kind is BackendKind.CONTAINERS:
        container_service.provide()
    return backend


def _cloud_sdk() -> Backend | str:
    """The backend, or what is missing for it."""
    java = _java()
    if java is None:
        return "no Java on PATH"
    root = _sdk_root()
    if root is None:
        return "no Cloud SDK on PATH"
    firestore = root / FIRESTORE_JAR
    pubsub = sorted(root.glob(PUBSUB_JARS))
    missing = [
        name
        for name, there in (("cloud-firestore-emulator", firestore.is_file()), ("pubsub-emulator", pubsub))
        if not there
    ]
    if missing:
        return f"the Cloud SDK has no component {' and no '.join(missing)}"
    return Backend(BackendKind.CLOUD_SDK, "the Cloud SDK has both emulators", java, firestore, pubsub[-1])


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


def _sdk_root() -> Path | None:
    """Cheapest first: `gcloud info` knows for certain but takes two seconds."""
    if given := os.environ.get("CLOUDSDK_ROOT_DIR"):
        return Path(given)
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return None
    beside = Path(gcloud).resolve().parent.parent
    if (beside / "platform").is_dir():
        return beside
    try:
        said = subprocess.run(
            [gcloud, "info", "--format=value(installation.sdk_root)"],
            capture_output=True,
            text=True,
            timeout=GCLOUD_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(said.stdout.strip()) if said.stdout.strip() else None


def _engine_answers() -> bool:
    """Whether somebody listens where testcontainers would look. Its client is not asked: that takes 0.2 s to import."""
    address = urlsplit(os.environ.get("DOCKER_HOST") or ENGINE)
    try:
        if address.scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(ENGINE_S)
                probe.connect(address.path)
        else:
            socket.create_connection((address.hostname or "", address.port or ENGINE_PORT), ENGINE_S).close()
    except OSError:
        return False
    return True
