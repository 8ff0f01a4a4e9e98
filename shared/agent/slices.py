"""A host of a Cloud TPU slice: which of its hosts this is, and what its runtime has to know of the others.

A slice's hosts carry the same metadata, and instance names that nobody chose. What they are is told by attributes that
Cloud TPU adds. Source: `torch_xla`'s and JAX's readers of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.agent.gang import Host, Vm

if TYPE_CHECKING:
    from shared.agent.metadata import Metadata

_LINE = re.compile(r"^([A-Z_]+):\s*['\"]?(.*?)['\"]?\s*$", re.MULTILINE)  # the YAML of tpu-env: flat, quoted text


def ask_node(metadata: Metadata, instance: Vm) -> Vm:
    """The TPU node of which this instance is a host, as the control plane knows it."""
    env = dict(_LINE.findall(metadata.get("instance/attributes/tpu-env")))
    # UID is taken for the node's numeric id, which the Cloud TPU API calls `id`.
    return Vm(env.get("NODE_ID") or instance.name, instance.zone, env.get("UID") or instance.instance_id)


def ask_host(metadata: Metadata) -> Host:
    """Raises ValueError where Cloud TPU says something else than a number."""
    number = int(metadata.get("instance/attributes/agent-worker-number"))
    endpoints = metadata.get("instance/attributes/worker-network-endpoints").strip()
    return Host(number, addresses_of(endpoints))


def addresses_of(endpoints: str) -> tuple[str, ...]:
    """``HOST:UID:ADDRESS,…`` in the order of the hosts' numbers."""
    return tuple(each.split(":")[2] for each in endpoints.split(",") if each.count(":") == 2)  # noqa: PLR2004
