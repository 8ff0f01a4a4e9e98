"""Java with the classes of Google's emulators in archives, with which each starts with half of the
CPU time.

    python -m tests.support.java     write the archives and build/java/bin/java, which uses them

`make test` runs this once. tests/conftest.py makes the folder the Java of all tests. Java ignores
an archive that does not fit: of another Java, or another version of an emulator. Source: JEP 350,
dynamic archives of class data.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

from google.cloud.firestore import FieldFilter

from tests.conftest import JAVA_HOME
from tests.support.stack import reserved_ports
from trainmaster.gcp import clients
from trainmaster_emulators.process.backends import Backend, BackendKind, choose_backend
from trainmaster_emulators.process.loopback import responds
from trainmaster_emulators.process.service import Service
from trainmaster_emulators.services import firestore, pubsub

LAUNCHER: Final = """#!/bin/sh
case "$*" in *{main}*) archive=firestore ;; *) archive=pubsub ;; esac
exec {java} "-XX:SharedArchiveFile={folder}/$archive.jsa" -Xlog:cds=off -Xlog:cds+dynamic=off "$@"
"""


def main(folder: Path) -> None:
    """Write the archives, and a launcher that uses them in place of `java`, to this folder."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    backend = choose_backend()
    if backend.kind is not BackendKind.CLOUD_SDK:
        return
    write_archives(backend, folder)
    launcher = folder / "bin" / "java"
    launcher.write_text(
        LAUNCHER.format(main=firestore.MAIN_CLASS, java=backend.java, folder=folder)
    )
    launcher.chmod(0o755)


def write_archives(backend: Backend, folder: Path) -> None:
    """Run each emulator once.

    Java writes the archive of the classes that it has loaded when it ends.
    """
    with reserved_ports() as ports:
        services = (
            firestore.service(backend, ports.take_blocked_addresses(firestore.ADDRESSES)),
            pubsub.service(backend, ports.take_blocked_addresses(1)[0], folder),
        )
    for service, use in zip(services, (use_firestore, use_pubsub), strict=True):
        java, *options = service.argv
        command = [java, f"-XX:ArchiveClassesAtExit={folder / service.name}.jsa", *options]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while not responds(service.address, "/", timeout_s=10):
                assert process.poll() is None
                time.sleep(0.1)
            use(service)
            process.terminate()
            assert process.wait() == 128 + signal.SIGTERM, "the archive is not complete"


def use_firestore(service: Service) -> None:
    """Write and find a document, so that the classes for that are loaded."""
    os.environ["FIRESTORE_EMULATOR_HOST"] = service.address
    client = clients.firestore_client("archive")
    batch = client.batch()
    batch.set(client.document("jobs/one"), {"number": 1})
    batch.commit()
    found = client.collection("jobs").where(filter=FieldFilter("number", "==", 1)).stream()
    assert [document.id for document in found] == ["one"]
    client.close()


def use_pubsub(service: Service) -> None:
    client = pubsub.PubSub(service.address, "archive")
    discard_port = 9  # nothing listens there
    pubsub.create_topics_and_subscriptions(client, {"sweep": discard_port})
    client.publish(pubsub.DEAD_LETTER, b"{}", reason="none")
    assert client.pull(pubsub.DEAD_LETTER)


if __name__ == "__main__":
    main(JAVA_HOME)
