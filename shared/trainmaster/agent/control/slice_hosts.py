"""The hosts of a Cloud TPU slice: which host this is, and when the other hosts have stopped.

All hosts of a slice have the same metadata, and instance names that Google chose. Attributes that Cloud TPU adds
identify each host. Source: the code of `torch_xla` and JAX that reads them.

All hosts receive the next directive at about the same time, and each stops its running program. A host whose program
failed has nothing to stop. If it started at once, it would meet programs of the previous incarnation on the other
hosts, because all incarnations use the same addresses and ports. It therefore waits::

    host 0   ──incarnation 1──✗         ·······························──incarnation 2──►
    host 1   ──incarnation 1──────────── SIGTERM ≤ grace_s SIGKILL ····──incarnation 2──►
                             directive received ◄──── wait ────►
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from trainmaster.agent.model.vm_config import IncarnationKey, SliceHost, VmRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainmaster.agent.google_http.metadata_server import MetadataServer
    from trainmaster.agent.model.vm_config import VmConfig

FIRST = IncarnationKey(1, 1)
DIRECTIVE_SKEW_MAX_S = 5.0
"""How far apart in time the hosts of a slice receive a directive, with a margin. An estimate."""

_LINE = re.compile(r"^([A-Z_]+):\s*['\"]?(.*?)['\"]?\s*$", re.MULTILINE)  # the YAML of tpu-env: flat, quoted text


def read_tpu_node(metadata: MetadataServer, instance: VmRef) -> VmRef:
    """Return the TPU node that this instance is a host of, as the control plane knows it. Raises HttpError."""
    env = dict(_LINE.findall(metadata.get("instance/attributes/tpu-env")))
    # We assume that UID is the node's numeric id, which the Cloud TPU API calls `id`.
    return VmRef(env.get("NODE_ID") or instance.name, instance.zone, env.get("UID") or instance.instance_id)


def read_slice_host(metadata: MetadataServer) -> SliceHost:
    """Return which host of its slice this instance is. Raises HttpError, or ValueError if it has no number."""
    number = int(metadata.get("instance/attributes/agent-worker-number"))
    endpoints = metadata.get("instance/attributes/worker-network-endpoints").strip()
    return SliceHost(number, addresses_of(endpoints))


def addresses_of(endpoints: str) -> tuple[str, ...]:
    """Return the addresses in ``HOST:UID:ADDRESS,…``, which is in the order of the hosts' numbers."""
    parts = [endpoint.split(":") for endpoint in endpoints.split(",")]
    return tuple(part[2] for part in parts if len(part) == 3)  # noqa: PLR2004


class PeerShutdownWait:
    """How long programs of earlier incarnations may still run on the other hosts of the slice.

    There is no wait on a VM, or on a slice of one host.
    """

    def __init__(self, config: VmConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._duration_s = config.grace_s + DIRECTIVE_SKEW_MAX_S if config.hosts > 1 else 0.0
        self._clock = clock
        self._key = FIRST  # no program ran before the first incarnation
        self._over_at = 0.0

    def on_directive(self, key: IncarnationKey) -> None:
        """Start the wait at the first directive for this incarnation: whatever its action, it ends older programs."""
        if key != self._key:
            self._key = key
            self._over_at = self._clock() + self._duration_s

    @property
    def remaining_s(self) -> float:
        """Seconds until the wait is over; 0 if it is."""
        return max(0.0, self._over_at - self._clock())
