"""Faults of a slice, under `/emulator/v1/vms/NODE`: Google has no API for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster_emulators.machines.compute_errors import ApiError, Json, not_found, not_ready
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.lifecycle import PREEMPTION_NOTICE_S
from trainmaster_emulators.tpu.cloud import TpuCloud
from trainmaster_emulators.tpu.nodes import Node, NodeState


def host_of(node: Node, body: Mapping[str, Any]) -> Instance:
    """Return the host of the body, such as `{"host": 2}`; the first one if the body has none."""
    number = int(body.get("host") or 0)
    if number >= len(node.hosts):
        raise not_found(f"{node.path}/hosts/{number}")
    return node.hosts[number]


def act(cloud: TpuCloud, node: Node, verb: str, body: Json) -> Json:
    """Inject a fault: `preempt` and `maintenance` into the whole slice, `crash` into one host.

    Returns at once.
    """
    ends_creation = verb == "preempt" and node.state is NodeState.CREATING
    if node.state is not NodeState.READY and not ends_creation:
        raise not_ready(node.path)
    notice_s = None if body.get("notice_s") is None else float(body["notice_s"])
    match verb:
        case "preempt":
            cloud.lifecycle.preempt(node, PREEMPTION_NOTICE_S if notice_s is None else notice_s)
        case "maintenance":
            cloud.lifecycle.maintain(node, notice_s)
        case "crash":
            cloud.lifecycle.crash(node, host_of(node, body))
        case _:
            raise ApiError(404, "notFound", f"TPU nodes have no fault '{verb}'")
    return node.as_json()
