"""Google's Firestore emulator as a service of the stack. It keeps all data in memory.

Besides the port for clients, it opens one for web applications and one for a user interface. By
default, they are ports that every web page can call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainmaster_emulators.process import container_service
from trainmaster_emulators.process.backends import FIRESTORE_JAR, JVM_OPTIONS, Backend, BackendKind
from trainmaster_emulators.process.processes import split_address
from trainmaster_emulators.process.service import Service

NAME: Final = "firestore"
MAIN_CLASS: Final = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
ADDRESSES: Final = 3
"""Number of addresses it listens on."""
START_IN_CONTAINER: Final = (
    'exec java -cp "$(gcloud info --format="value(installation.sdk_root)")/$0" "$@"'
)


def service(backend: Backend, addresses: Sequence[str]) -> Service:
    """Return the service. `addresses`: of the same host, the first one for clients."""
    host, port = split_address(addresses[0])
    web_port, interface_port = (split_address(address)[1] for address in addresses[1:])
    options = [
        f"--host={host}",
        f"--port={port}",
        f"--webchannel_port={web_port}",
        f"--websocket_port={interface_port}",
    ]
    if backend.kind is BackendKind.CONTAINERS:
        # gcloud's own command has no options for the other ports.
        start = ["sh", "-c", START_IN_CONTAINER, FIRESTORE_JAR, MAIN_CLASS, *options]
        return Service(
            NAME, container_service.command(container_service.GOOGLE, start), address=addresses[0]
        )
    start = [backend.java, *JVM_OPTIONS, "-cp", str(backend.firestore_jar), MAIN_CLASS]
    return Service(NAME, [*start, *options], address=addresses[0])
