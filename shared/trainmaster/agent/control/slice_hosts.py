"""The hosts of a Cloud TPU slice: which host this is.

All hosts of a slice have the same metadata, and instance names that Google chose. Attributes that
Cloud TPU adds identify each host. Source: the code of `torch_xla` and JAX that reads them.
"""

from __future__ import annotations

import re

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import SliceHost, VmRef

_LINE = re.compile(
    r"^([A-Z_]+):\s*['\"]?(.*?)['\"]?\s*$", re.MULTILINE
)  # the YAML of tpu-env: flat, quoted text


def read_tpu_node(metadata: MetadataServer, instance: VmRef) -> VmRef:
    """Return the TPU node that this instance is a host of, as the control plane knows it.

    Raises HttpError.
    """
    env = dict(_LINE.findall(metadata.get("instance/attributes/tpu-env")))
    # We assume that UID is the node's numeric id, which the Cloud TPU API calls `id`.
    return VmRef(
        env.get("NODE_ID") or instance.name, instance.zone, env.get("UID") or instance.instance_id
    )


def read_slice_host(metadata: MetadataServer) -> SliceHost:
    """Return which host of its slice this instance is.

    Raises HttpError, or ValueError if it has no number.
    """
    number = int(metadata.get("instance/attributes/agent-worker-number"))
    endpoints = metadata.get("instance/attributes/worker-network-endpoints").strip()
    return SliceHost(number, addresses_of(endpoints))


def addresses_of(endpoints: str) -> tuple[str, ...]:
    """Return the addresses in ``HOST:UID:ADDRESS,…``, which is in the order of the
    hosts' numbers.
    """
    parts = [endpoint.split(":") for endpoint in endpoints.split(",")]
    return tuple(part[2] for part in parts if len(part) == 3)  # noqa: PLR2004
