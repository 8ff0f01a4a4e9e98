"""The node resource: the checks of a request, the node, and its JSON representation.

    CREATING ─► READY ─► STOPPING ─► STOPPED ─► STARTING ─► READY
        │         ├────► REPAIRING ─► READY   (a host ended)
        └─────────┼────► PREEMPTED
                  ├────► TERMINATED           (maintenance)
                  └────► DELETING ─► deleted

STOPPED, PREEMPTED and TERMINATED nodes stay until the user deletes them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.properties import METADATA_BYTES_MAX, METADATA_VALUE_BYTES_MAX
from trainmaster_emulators.rest.api_errors import Json
from trainmaster_emulators.tpu.catalog import Slice, check_runtime, resolve_slice
from trainmaster_emulators.tpu.operations import timestamp
from trainmaster_emulators.tpu.tpu_errors import bad_request

NODE_ID: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
PORT: Final = 8470
"""Port of a worker's network endpoint. Source: nodes of the real API."""


class NodeState(StrEnum):
    CREATING = "CREATING"
    READY = "READY"
    REPAIRING = "REPAIRING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    STARTING = "STARTING"
    DELETING = "DELETING"
    PREEMPTED = "PREEMPTED"
    TERMINATED = "TERMINATED"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The valid contents of a create request."""

    slice: Slice
    runtime: str
    """TPU software version."""
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    service_account: str
    """E-mail address."""
    scopes: tuple[str, ...]
    spot: bool
    reserved: bool
    """Uses a reservation."""
    shown: Json
    """Fields of the request that the resource shows unchanged."""


def parse_node_spec(body: Json, zone: str, default_account: str) -> NodeSpec:
    """Check all of a create request except the id. Raises the StatusError that Google returns."""
    account: Json = body.get("serviceAccount") or {}
    scheduling: Json = body.get("schedulingConfig") or {}
    spot = bool(scheduling.get("spot") or scheduling.get("preemptible"))
    reserved = bool(scheduling.get("reserved"))
    if spot and reserved:
        raise bad_request("A node cannot be both spot and reserved.")
    return NodeSpec(
        slice=resolve_slice(body, zone),
        runtime=check_runtime(body.get("runtimeVersion")),
        labels=parse_labels(body.get("labels") or {}),
        metadata=parse_metadata(body.get("metadata") or {}),
        service_account=str(account.get("email") or default_account),
        scopes=tuple(account.get("scope") or ("https://www.googleapis.com/auth/cloud-platform",)),
        spot=spot,
        reserved=reserved,
        shown={
            key: body[key]
            for key in ("description", "networkConfig", "schedulingConfig", "tags")
            if key in body
        },
    )


def parse_metadata(metadata: Json) -> dict[str, str]:
    """Check metadata against Compute's limits, because it becomes metadata of VMs.

    Raises StatusError.
    """
    for key, value in metadata.items():
        if len(str(value).encode()) > METADATA_VALUE_BYTES_MAX:
            raise bad_request(
                f"The metadata value of {key} is longer than {METADATA_VALUE_BYTES_MAX} bytes."
            )
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in metadata.items())
    if size > METADATA_BYTES_MAX:
        raise bad_request(f"All metadata together are longer than {METADATA_BYTES_MAX} bytes.")
    return {key: str(value) for key, value in metadata.items()}


def parse_labels(labels: Json) -> dict[str, str]:
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(str(value)):
            raise bad_request(f"Invalid label {key}={value}.")
    return {key: str(value) for key, value in labels.items()}


@dataclass(slots=True, eq=False)
class Node:
    """A node that exists."""

    path: str
    """Full resource name."""
    zone: str
    id: int
    spec: NodeSpec
    addresses: tuple[str, ...]
    """Addresses of the hosts."""
    metadata: dict[str, str]
    labels: dict[str, str]
    hosts: list[Instance] = field(default_factory=list)
    """VMs that the Compute API does not list: at Google, too, they belong to another project."""
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: NodeState = NodeState.CREATING
    health: str = "HEALTH_UNSPECIFIED"
    queued: str = ""
    """Path of the queued resource that requested the node; empty for none."""
    is_preempted: bool = False
    """Preempted during its creation."""
    deleted: bool = False
    transition_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held during a transition from one state to another."""

    @property
    def name(self) -> str:
        """The node id: the last part of the path."""
        return self.path.rpartition("/")[2]

    def as_json(self) -> Json:
        spec = self.spec
        shown: Json = {
            "name": self.path,
            "id": str(self.id),
            "acceleratorType": spec.slice.type,
            "acceleratorConfig": {"type": spec.slice.kind, "topology": spec.slice.topology},
            "state": self.state.value,
            "health": self.health,
            "runtimeVersion": spec.runtime,
            "createTime": timestamp(self.created_at),
            "labels": dict(self.labels),
            "metadata": dict(self.metadata),
            "serviceAccount": {"email": spec.service_account, "scope": list(spec.scopes)},
            **spec.shown,
        }
        if self.queued:
            shown["queuedResource"] = self.queued
        if self.state is not NodeState.CREATING:
            shown["networkEndpoints"] = [
                {"ipAddress": address, "port": PORT} for address in self.addresses
            ]
        return shown
