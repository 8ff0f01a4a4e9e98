"""The hosts of a Cloud TPU slice: which host this is.

All hosts of a slice have the same metadata, and instance names that Google chose. Attributes that
Cloud TPU adds identify each host. Source: the code of `torch_xla` and JAX that reads them.
"""

from __future__ import annotations

import re

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import SliceHost, VmRef

_LINE = re.compile(r"^([A-Z_]+):\s*['\"]?(.*?)['\"]?\s*$", re.MULTILINE)
"""One entry of the attribute tpu-env, which is YAML: flat, with quoted texts."""
ENDPOINT_PARTS = 3
"""``HOST:UID:ADDRESS``."""


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
    """Return the addresses in ``HOST:UID:ADDRESS,…``, which is in the order of the hosts'
    numbers.
    """
    split = [endpoint.split(":") for endpoint in endpoints.split(",")]
    return tuple(parts[-1] for parts in split if len(parts) == ENDPOINT_PARTS)
