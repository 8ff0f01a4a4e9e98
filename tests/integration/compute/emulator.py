"""The Compute emulator as a process, and the real clients for it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from tests.support.stack import eventually
from trainmaster_emulators.machines.powered_vm import MARKER

PROJECT = "compute-tests"
ZONE = "us-central1-a"
OTHER_ZONE = "us-central1-b"
IMAGE = "projects/images/global/images/family/python"


@dataclass
class Emulator:
    """A running emulator. Methods without a `zone` argument use ZONE."""

    process: subprocess.Popen[bytes]
    endpoint: str
    state_dir: Path

    def __post_init__(self) -> None:
        options: dict[str, Any] = {
            "credentials": AnonymousCredentials(),
            "client_options": ClientOptions(api_endpoint=self.endpoint),
        }
        self.instances = compute_v1.InstancesClient(**options)
        self.operations = compute_v1.ZoneOperationsClient(**options)

    def call(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """Send and receive JSON. Raises urllib's HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoint + path, data, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def fault(self, name: str, verb: str, **body: object) -> Any:
        """Inject a fault into one VM."""
        return self.call(f"/emulator/v1/vms/{name}:{verb}", body)

    def faults(self, **faults: object) -> None:
        """Set the faults of the whole project; without arguments, none."""
        self.call("/emulator/v1/faults", faults)

    def done(self, operation: Any, zone: str = ZONE) -> compute_v1.Operation:
        """Wait for an operation."""
        finished = self.operations.wait(
            project=PROJECT, zone=zone, operation=operation.name, timeout=60
        )
        assert finished.status == compute_v1.Operation.Status.DONE
        return finished

    def run(self, name: str, script: str = "sleep 600", **changes: Any) -> compute_v1.Instance:
        """Create a VM and return it when it is RUNNING."""
        resource = an_instance(name, script, **changes)
        operation = self.instances.insert_unary(
            project=PROJECT, zone=ZONE, instance_resource=resource
        )
        assert not self.done(operation).error.errors
        return self.get(name)

    def get(self, name: str, zone: str = ZONE) -> compute_v1.Instance:
        return self.instances.get(project=PROJECT, zone=zone, instance=name)

    def names(self) -> set[str]:
        return {instance["name"] for instance in self.all_instances()}

    def all_instances(self) -> list[dict[str, Any]]:
        """Return the first page of all instances as JSON, which the client library reads in ten
        times as long.
        """
        scopes = self.call(f"/compute/v1/projects/{PROJECT}/aggregated/instances")["items"].values()
        return [instance for scope in scopes for instance in scope.get("instances", ())]

    def status(self, name: str) -> str:
        try:
            return str(self.get(name).status)
        except exceptions.NotFound:
            return "DELETED"

    def serial(self, name: str) -> str:
        output = self.instances.get_serial_port_output(project=PROJECT, zone=ZONE, instance=name)
        return output.contents

    def delete_all(self) -> None:
        self.faults()
        for instance in self.all_instances():
            address = f"{instance['zone'].partition('/compute/v1')[2]}/instances/{instance['id']}"
            with suppress(urllib.error.HTTPError):  # the test has just deleted it
                self.call(f"/compute/v1{address}", method="DELETE")
        eventually(lambda: not self.names())

    def vm_processes(self) -> set[int]:
        """Return the pids of all processes of all VMs of this emulator, even of those in other
        sessions.
        """
        marker = f"{MARKER}={self.state_dir}".encode()
        pids = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if marker in environ.read_bytes():
                    pids.add(int(environ.parent.name))
            except OSError:
                continue
        return pids


def an_instance(name: str, script: str, **changes: Any) -> compute_v1.Instance:
    """Return the request for a VM with this startup script. `changes`: its other fields."""
    metadata = {"startup-script": script, **changes.pop("metadata", {})}
    properties: dict[str, Any] = {
        "name": name,
        "machine_type": f"zones/{ZONE}/machineTypes/n1-standard-4",
        "disks": [{"boot": True, "initialize_params": {"source_image": IMAGE}}],
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "service_accounts": [{"email": "default"}],
        "scheduling": {"automatic_restart": False, "on_host_maintenance": "TERMINATE"},
        **changes,
    }
    return compute_v1.Instance(properties)


@contextmanager
def running_emulator(
    state_dir: Path,
    *options: str,
    pubsub: str = "",
    program: Sequence[str] = ("-m", "trainmaster_emulators.compute"),
) -> Iterator[Emulator]:
    """Run an emulator for the length of the block.

    `pubsub`: `host:port`, for `--system-events-topic`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    images = state_dir / "images.json"
    images.write_text(json.dumps({"default": sys.prefix}))
    log = state_dir / "emulator.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                *program,
                "--port",
                str(port),
                "--state-dir",
                str(state_dir),
                "--project",
                PROJECT,
                "--images",
                str(images),
                "--step-s",
                "0.05",
                "--maintenance-notice-s",
                "0.5",
                "--run-min-s",
                "0.5",
                "--shutdown-s",
                "5",
                *options,
            ],
            env={**os.environ, "PUBSUB_EMULATOR_HOST": pubsub},
            stdout=output,
            stderr=output,
        )
    emulator = Emulator(process, f"http://127.0.0.1:{port}", state_dir)

    def is_healthy() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return bool(emulator.call("/emulator/v1/health"))
        except (urllib.error.URLError, ConnectionError):
            return False

    try:
        eventually(is_healthy)
        yield emulator
    finally:
        emulator.instances.transport.close()
        emulator.operations.transport.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGKILL)
        assert "Traceback" not in log.read_text(), log.read_text()


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
