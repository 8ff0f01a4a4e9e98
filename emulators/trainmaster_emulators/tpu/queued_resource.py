"""The queued resource: the checks of a request, the resource, and its JSON representation.

    CREATING ─► WAITING_FOR_RESOURCES ─► PROVISIONING ─► ACTIVE ─► SUSPENDING ─► SUSPENDED
                        └───── time limit ──► FAILED ◄─┘ the node cannot be created

A resource is suspended when its node no longer runs. A FAILED or SUSPENDED resource stays until the
user deletes it. Source of the states: Cloud TPU's `QueuedResourceState` and "Manage queued
resources", by which WAITING_FOR_RESOURCES replaced ACCEPTED.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.tpu.nodes import NODE_ID
from trainmaster_emulators.tpu.operations import timestamp
from trainmaster_emulators.tpu.tpu_errors import bad_request

QUEUED_TYPE: Final = "type.googleapis.com/google.cloud.tpu.v2.QueuedResource"
FLEX_START_MAX: Final = timedelta(days=7)
"""Source: "Request Cloud TPUs using Flex-start"."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.~+%-]+")


class QueueState(StrEnum):
    CREATING = "CREATING"
    WAITING = "WAITING_FOR_RESOURCES"
    PROVISIONING = "PROVISIONING"
    ACTIVE = "ACTIVE"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    DELETING = "DELETING"

    @property
    def data(self) -> str:
        """Name of the field with the details of this state."""
        return "acceptedData" if self is QueueState.WAITING else f"{self.value.lower()}Data"


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """The valid contents of a create request, for one node."""

    node_id: str
    node: Json
    """The Node to create."""
    valid_until: datetime | None
    """The request fails if there is no capacity until then; None: it waits without a limit."""
    max_run: timedelta | None
    """Run limit of a flex-start node."""
    shown: Json
    """The request, which the resource shows."""


def parse_queue_request(body: Json, zone_path: str) -> QueueRequest:
    """Check a create request.

    Raises the StatusError that Google returns. `zone_path`: `projects/P/locations/ZONE`.
    """
    if "spot" in body and "guaranteed" in body:
        raise bad_request("Only one tier can be set.")
    node_specs = (body.get("tpu") or {}).get("nodeSpec") or []
    if len(node_specs) != 1 or not node_specs[0].get("nodeId"):
        raise bad_request("Exactly one node spec with a node_id is emulated.")
    (spec,) = node_specs
    if spec.get("parent") != zone_path:
        raise bad_request(f"The parent of the node spec must be {zone_path}.")
    if not NODE_ID.fullmatch(spec["nodeId"]):
        raise bad_request(f"Invalid node id '{spec['nodeId']}'.")
    node = dict(spec.get("node") or {})
    if "spot" in body or "reservationName" in body:
        node["schedulingConfig"] = {"spot": "spot" in body, "reserved": "reservationName" in body}
    valid_until = _valid_until(body.get("queueingPolicy") or {})
    return QueueRequest(spec["nodeId"], node, valid_until, _max_run(body), body)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise bad_request(f"Invalid queued resource id '{name}'.")


def _valid_until(policy: Json) -> datetime | None:
    now = datetime.now(UTC)
    duration = policy.get("validUntilDuration")
    if duration:
        return now + _seconds(duration)
    interval = policy.get("validInterval") or {}
    moment = policy.get("validUntilTime") or interval.get("endTime")
    if not moment:
        return None
    until = datetime.fromisoformat(moment)
    if until <= now:
        raise bad_request("The valid-until time has passed.")
    return until


def _max_run(body: Json) -> timedelta | None:
    if body.get("provisioningModel") != "FLEX_START":
        return None
    duration = (body.get("runDuration") or {}).get("maxRunDuration")
    if not duration or "spot" in body or "reservationName" in body:
        raise bad_request(
            "FLEX_START needs a max run duration, and neither Spot nor a reservation."
        )
    run = _seconds(duration)
    if run > FLEX_START_MAX:
        raise bad_request("The max run duration must be at most 7 days.")
    return run


def _seconds(duration: str) -> timedelta:
    """Parse a protobuf Duration in JSON, such as `3600s`."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?s", duration):
        raise bad_request(f"Illegal duration: {duration}.")
    return timedelta(seconds=float(duration[:-1]))


@dataclass(slots=True, eq=False)
class QueuedResource:
    """A queued resource that exists."""

    path: str
    """Full resource name."""
    zone: str
    request: QueueRequest
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: QueueState = QueueState.CREATING
    error: StatusError | None = None
    initiator: str | None = None
    """USER or SERVICE: who ended the node."""
    transition_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the state is compared and changed."""

    def as_json(self) -> Json:
        data: Json = {"error": self.error.as_status()} if self.error else {}
        state: Json = {"state": self.state.value, self.state.data: data}
        if self.initiator:
            state["stateInitiator"] = self.initiator
        return {
            **self.request.shown,
            "name": self.path,
            "createTime": timestamp(self.created_at),
            "state": state,
        }
