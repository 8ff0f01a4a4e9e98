"""Google's Firestore emulator as a service of the stack. It keeps all data in memory."""

from __future__ import annotations

from typing import Final

from emulators.stack import container_service
from emulators.stack.backends import JVM_OPTIONS, Backend, BackendKind
from emulators.stack.processes import LOOPBACK
from emulators.stack.service import Service

NAME: Final = "firestore"
MAIN_CLASS: Final = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"


def service(backend: Backend, port: int) -> Service:
    if backend.kind is BackendKind.CONTAINERS:
        start = ["gcloud", "beta", "emulators", NAME, "start", f"--host-port={LOOPBACK}:{port}", "--quiet"]
        return Service(NAME, container_service.command(container_service.GOOGLE, start), port=port)
    start = [backend.java, *JVM_OPTIONS, "-cp", str(backend.firestore_jar), MAIN_CLASS]
    return Service(NAME, [*start, f"--host={LOOPBACK}", f"--port={port}"], port=port)
