"""A host of a Cloud TPU slice: which of its hosts this is, and what its runtime has to know of the others.

A slice's hosts carry the same metadata, and instance names that nobody chose. What they are is told by attributes that
Cloud TPU adds. Source: `torch_xla`'s and JAX's readers of them.

All hosts hear of the next incarnation at about the same time, and each ends what it runs. The one whose program failed has
nothing to end, and would meet what the others still run: in each incarnation they have the same addresses and ports::

    host 0   ──incarnation 1──✗         ·······························──incarnation 2──►
    host 1   ──incarnation 1──────────── SIGTERM ≤ grace_s SIGKILL ····──incarnation 2──►
                       next incarnation heard ◄────── parting ───────►
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from shared.agent.control.vm_config import Host, Key, Vm

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.agent.control.vm_config import Gang
    from shared.agent.http.metadata_server import Metadata

FIRST = Key(1, 1)
HEARD_S = 5.0  # how far apart the hosts of a slice hear of a directive, with room to spare; a guess

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


class Parting:
    """How long the processes of earlier incarnations may still run on any host of a slice; a VM waits for nobody."""

    def __init__(self, gang: Gang, clock: Callable[[], float] = time.monotonic) -> None:
        self._lasts_s = gang.grace_s + HEARD_S if gang.hosts > 1 else 0.0
        self._clock = clock
        self._key = FIRST  # before which nobody runs
        self._over_at = 0.0

    def hears_of(self, key: Key) -> None:
        """The incarnation of the latest directive, whatever that says of it: any one ends what runs of older ones."""
        if key != self._key:
            self._key = key
            self._over_at = self._clock() + self._lasts_s

    @property
    def left_s(self) -> float:
        """0: it is over."""
        return max(0.0, self._over_at - self._clock())
