"""The first event of each function, for `cold_starts`: it is loaded, judged and committed, on real
emulators.

An agent's event has the identity token of its VM, signed as Google signs it: verifying one is part
of the work.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.messaging import topics
from trainmaster.packaging.agent_archive import agent_archive, agent_object
from trainmaster_emulators.machines.vm_tokens import TokenIssuer, VmIdentity
from trainmaster_emulators.process import processes
from trainmaster_emulators.process.backends import require_backend
from trainmaster_emulators.process.service import Running, stop, wait_ready
from trainmaster_emulators.rest.server import in_background
from trainmaster_emulators.services import firestore, iam, pubsub, storage
from trainmaster_emulators.services.http_servers import key_server
from trainmaster_emulators.services.iap_issuer import IapIssuer

PROJECT: Final = "my-project"
BUCKET: Final = "bucket"
ACCOUNT: Final = f"trainmaster-worker@{PROJECT}.iam.gserviceaccount.com"
# Audience of the console's requests behind Identity-Aware Proxy (IAP), which signs in browsers
AUDIENCE: Final = "/projects/17/locations/us-central1/services/trainmaster-console"
NO_SERVER: Final = "http://127.0.0.1:9"
"""An address at which no server listens. A job's log that cannot be written delays nothing."""
CHIEF: Final = ReplicaId(TaskType.CHIEF, 0)
INSTANCE: Final = 17
"""Numeric id of the VM that sends the agent's events."""
STACK: Final = "cold"
"""Secret in the access tokens: the emulator of IAM refuses tokens without it."""
PROJECT_NUMBER: Final = 1
ATTEMPT: Final = 1
"""Attempt of the job that the agent's events are about."""
INCARNATION: Final = 1
"""Execution of the program within the attempt."""
VM_GENERATION: Final = 1
"""Number of the VM among those of the replica."""
TOKEN: Final = iam.access_token(iam.OWNER, STACK)
JOB: Final = {
    "trainingInput": {
        "region": "us-central1",
        # With a generation (#1), so that it is not looked up
        "packageUris": [f"gs://{BUCKET}/trainer-0.1.tar.gz#1"],
        "pythonModule": "trainer.task",
        "runtimeVersion": "2.21",
    }
}

Request = tuple[str, str, dict[str, str], bytes]
"""Method, path, headers, body."""


@dataclass(frozen=True, slots=True)
class World:
    """The emulators that the functions use."""

    variables: dict[str, str]
    """Environment variables with their addresses."""
    issuer: TokenIssuer
    """Signs as Google does for VMs."""
    iap: IapIssuer
    """Signs as Identity-Aware Proxy does for the console's requests."""

    def first_request(self, function: str, job_id: str) -> Request:
        """Return the function's first request.

        `submit` creates the job that the other events are about.
        """
        if function == "api":
            return (
                "GET",
                f"/v1/projects/{PROJECT}/jobs/{job_id}",
                {"Authorization": f"Bearer {TOKEN}"},
                b"",
            )
        if function == "console":
            assertion = self.iap.assertion("anna@example.com", AUDIENCE, datetime.now(UTC))
            return "GET", f"/jobs/{job_id}", {"X-Goog-IAP-JWT-Assertion": assertion}, b""
        subject = self._subject(job_id)
        bodies: dict[str, dict[str, object]] = {
            "submit": {"jobId": job_id, **JOB},
            "vm_ready": subject,
            "replica_exit": {**subject, "cause": "process", "exit_status": 1},
            "maintenance": {**subject, "cause": "preemption"},
            "provision": {"version": 1, "job_id": "no_such_job"},
            "tune": {"version": 1, "job_id": "no_such_job"},
        }
        event = bodies.get(function, {})
        is_of_agent = function in ("vm_ready", "replica_exit", "maintenance")
        attributes = {"identity": self._token(job_id)} if is_of_agent else {}
        data = base64.b64encode(json.dumps(event).encode()).decode()
        message = {"data": data, "attributes": attributes, "messageId": "1"}
        body = json.dumps(
            {"message": message, "subscription": "projects/p/subscriptions/s"}
        ).encode()
        return "POST", "/", {"Content-Type": "application/json"}, body

    def _subject(self, job_id: str) -> dict[str, object]:
        """Return the fields that all events of the chief's agent have."""
        return {
            "version": 1,
            "job_id": job_id,
            "attempt": ATTEMPT,
            "task_type": CHIEF.task_type.value,
            "task_index": CHIEF.index,
            "incarnation": INCARNATION,
            "vm_generation": VM_GENERATION,
            "vm": {
                "name": vm_name(job_id, CHIEF),
                "zone": "us-central1-a",
                "instance_id": str(INSTANCE),
            },
            "at": datetime.now(UTC).isoformat(),
        }

    def _token(self, job_id: str) -> str:
        """Return the identity token of the chief's VM."""
        now = datetime.now(UTC)
        identity = VmIdentity(
            email=ACCOUNT,
            project=PROJECT,
            project_number=PROJECT_NUMBER,
            zone="us-central1-a",
            instance_id=INSTANCE,
            instance_name=vm_name(job_id, CHIEF),
            created_at=now,
        )
        replica = f"{ATTEMPT}/{CHIEF.task_type.value}/{CHIEF.index}"
        audience = f"trainmaster/{PROJECT}/{job_id}/{replica}/{INCARNATION}"
        # `full`: the token names the VM, and not only its service account.
        return self.issuer.identity_token(identity, audience, full=True, now=now)


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Run the emulators for the length of the block. `folder`: for their data and logs."""
    ports = processes.Ports()
    backend = require_backend()
    address, tls_address = ports.take_blocked_addresses(2)
    (pubsub_address,) = ports.take_blocked_addresses(1)
    documents = firestore.service(backend, ports.take_blocked_addresses(firestore.ADDRESSES))
    services = [
        storage.service(backend, folder / storage.NAME, address, tls_address),
        documents,
        pubsub.service(backend, pubsub_address, folder),
    ]
    running = [
        Running(
            service,
            processes.service_environment("bench-cold", addresses=[service.address]),
            folder / f"{service.name}.log",
        )
        for service in services
    ]
    issuer = TokenIssuer()
    iap = IapIssuer()
    servers = [
        key_server(issuer.certificates),
        iam.listen(port=0, project=PROJECT, secret=STACK),
        iap.listen(),
    ]
    with ExitStack() as stack:
        stack.callback(ports.close)
        stack.callback(stop, running)
        wait_ready(running, within_s=60)
        for name in (topics.DEAD_LETTER, topics.PROVISION, topics.JOB_STATE):
            pubsub.PubSub(pubsub_address, PROJECT).create_topic(name)
        storage.create_bucket(address, PROJECT, BUCKET)
        for server in servers:
            stack.enter_context(in_background(server))
        keys, access, iap_keys = (
            f"http://127.0.0.1:{server.server_address[1]}" for server in servers
        )
        yield World(
            {
                "TRAINMASTER_PROJECT": PROJECT,
                "TRAINMASTER_BUCKET": BUCKET,
                "TRAINMASTER_AGENT": f"gs://stage/{agent_object(agent_archive())}",
                "TRAINMASTER_WORKER_SERVICE_ACCOUNT": ACCOUNT,
                "TRAINMASTER_IDENTITY_KEYS": keys,
                "TRAINMASTER_CONSOLE_AUDIENCE": AUDIENCE,
                "TRAINMASTER_CONSOLE_KEYS": iap_keys,
                "TRAINMASTER_IAM_ENDPOINT": access,
                "TRAINMASTER_IAM_ACCOUNTS_ENDPOINT": access,
                "TRAINMASTER_IAM_TOKENS_ENDPOINT": access,
                "TRAINMASTER_IAM_PEOPLE_ENDPOINT": access,
                "TRAINMASTER_LOGGING_ENDPOINT": NO_SERVER,
                "TRAINMASTER_COMPUTE_ENDPOINT": NO_SERVER,
                "STORAGE_EMULATOR_HOST": f"http://{address}",
                "GOOGLE_CLOUD_PROJECT": PROJECT,
                "FIRESTORE_EMULATOR_HOST": documents.address,
                "PUBSUB_EMULATOR_HOST": pubsub_address,
            },
            issuer,
            iap,
        )
