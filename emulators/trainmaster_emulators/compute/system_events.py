"""Compute's system-event audit log, exported to Pub/Sub: events of VMs that the user did not
request.

At Google a log sink exports the log `cloudaudit.googleapis.com/system_event` to a topic within
seconds. Here the entry is published at once, or after the delay of a realistic stack. Source of its
format: LogEntry and AuditLog of the Cloud Logging API, with Google's values for a `gce_instance`.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Final

from trainmaster_emulators.machines.compute_errors import Json
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.operations import Operation
from trainmaster_emulators.process.loopback import CallError
from trainmaster_emulators.realism.profile import Span
from trainmaster_emulators.services.pubsub import PubSub

PRINCIPAL: Final = "system@google.com"
PUBLISH_ATTEMPTS: Final = 6
"""Most attempts to publish an entry, within 13 seconds.

A real sink stores entries that it cannot deliver.
"""
PAUSE_S: Final = 0.2
"""Pause after the first failed attempt. It doubles with each further one."""

log = logging.getLogger(__name__)


def log_entry(project: str, operation: Operation, instance: Instance) -> Json:
    """Return the LogEntry of an event. `project`: that of the VM."""
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "status": {"message": operation.status_message or ""},
            "authenticationInfo": {"principalEmail": PRINCIPAL},
            "serviceName": "compute.googleapis.com",
            "methodName": operation.type,
            "resourceName": f"projects/{project}/zones/{instance.zone}/instances/{instance.name}",
            "request": {"@type": f"type.googleapis.com/{operation.type}"},
        },
        "insertId": secrets.token_hex(6),
        "resource": {
            "type": "gce_instance",
            "labels": {
                "project_id": project,
                "zone": instance.zone,
                "instance_id": str(instance.id),
            },
        },
        "timestamp": now,
        "severity": "INFO",
        "logName": f"projects/{project}/logs/cloudaudit.googleapis.com%2Fsystem_event",
        "operation": {
            "id": operation.name,
            "producer": operation.type,
            "first": True,
            "last": True,
        },
        "receiveTimestamp": now,
    }


NO_DELAY: Final = Span(low_s=0, high_s=0)


@dataclass(frozen=True, slots=True)
class LogSink:
    """Publishes the entries."""

    host: str
    """`host:port` of Pub/Sub."""
    topic: str
    """`projects/P/topics/T`."""
    project: str
    """The project of the VMs."""
    delay: Span = NO_DELAY
    """From the event to the publication of its entry. Entries may overtake each other."""

    def export(self, operation: Operation, instance: Instance) -> None:
        """Publish on another thread, so that the VM's transition does not wait."""
        entry = json.dumps(log_entry(self.project, operation, instance)).encode()
        threading.Thread(target=self._publish, args=(entry,), name="log-sink", daemon=True).start()

    def _publish(self, entry: bytes) -> None:
        time.sleep(self.delay.draw(Random()))  # noqa: S311 - a duration, not a secret
        _, owner, _, topic = self.topic.split("/")
        pubsub = PubSub(self.host, owner)
        for attempt in range(PUBLISH_ATTEMPTS):
            try:
                pubsub.publish(topic, entry)
            except (OSError, CallError) as error:
                log.warning("cannot publish a system event to %s: %s", self.topic, error)
                time.sleep(PAUSE_S * 2**attempt)
            else:
                return
