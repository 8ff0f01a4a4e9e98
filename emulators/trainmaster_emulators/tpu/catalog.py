"""The fixed resources of Cloud TPU: zones, accelerator types, runtime versions.

Sizes and zones come from the catalog of the job format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.core.machines.tpus import GENERATIONS, Generation, zones_of
from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.tpu.tpu_errors import (
    bad_request,
    no_such_location,
    no_such_type,
)

RUNTIME_VERSIONS: Final = (
    "tpu-ubuntu2204-base",
    "tpu-vm-base",
    "v2-alpha-tpuv5",
    "v2-alpha-tpuv5-lite",
    "v2-alpha-tpuv6e",
)
"""Source: "TPU software versions" of Cloud TPU, for PyTorch and JAX."""
_API_TYPES: Final = {2: "V2", 4: "V3", 7: "V4", 9: "V5LITE_POD", 10: "V5P", 11: "V6E"}
"""Source: google.cloud.tpu.v2.AcceleratorConfig.Type."""
_GENERATIONS: Final = {
    "V2": "v2",
    "V3": "v3",
    "V4": "v4",
    "V5LITE_POD": "v5e",
    "V5P": "v5p",
    "V6E": "v6e",
}


@dataclass(frozen=True, slots=True)
class Slice:
    """The hardware of a node."""

    type: str
    """The acceleratorType, such as `v5litepod-16`."""
    kind: str
    """The API's name of the generation, such as `V5LITE_POD`."""
    topology: str
    """In chips, such as `4x4`."""
    hosts: int

    @property
    def chips_per_host(self) -> tuple[int, ...]:
        """Chips of one host in x, y, z: 2x2 in larger slices of every generation.

        Source: `tpu-env` of real TPU VMs.
        """
        return (2, 2, 1) if self.hosts > 1 else self._edges()

    @property
    def host_bounds(self) -> tuple[int, ...]:
        """Hosts of the slice in x, y, z."""
        x, y, z = self._edges()
        return (x // 2, y // 2, z) if self.hosts > 1 else (1, 1, 1)

    def _edges(self) -> tuple[int, int, int]:
        """Return the chips in x, y, z. Slices of some generations are flat, such as `4x4`."""
        x, y, *depth = map(int, self.topology.split("x"))
        return x, y, depth[0] if depth else 1


def zones() -> list[str]:
    names: set[str] = set()
    for table in GENERATIONS.values():
        names.update(table.zones, table.pod_zones)
    return sorted(names)


def check_zone(zone: str) -> None:
    """Raise StatusError unless Cloud TPU is in the zone."""
    if zone not in zones():
        raise no_such_location(zone)


def slices(zone: str) -> Iterator[Slice]:
    """Yield the slices that the zone has. Raises StatusError for an unknown zone."""
    check_zone(zone)
    for kind, name in _GENERATIONS.items():
        table = GENERATIONS[name]
        for size in table.topologies:
            if zone in zones_of(table.type_name(size)):
                yield _slice(kind, table, size)


def resolve_slice(body: Json, zone: str) -> Slice:
    """Return the slice of a node's `acceleratorType` or `acceleratorConfig`. Raises StatusError."""
    config: Json = body.get("acceleratorConfig") or {}
    if bool(body.get("acceleratorType")) == bool(config):
        raise bad_request("Exactly one of accelerator_type and accelerator_config must be set.")
    if config:
        return _by_topology(config, zone)
    requested = str(body["acceleratorType"])
    for slice_ in slices(zone):
        if slice_.type == requested:
            return slice_
    raise no_such_type(requested, zone)


def check_runtime(version: Any) -> str:
    """Return the version of a request. Raises StatusError if it is missing or unknown."""
    if not version:
        raise bad_request("The runtime version must be specified.")
    if version not in RUNTIME_VERSIONS:
        raise StatusError("NOT_FOUND", f"Runtime version '{version}' was not found")
    return str(version)


def _by_topology(config: Json, zone: str) -> Slice:
    type_ = config.get("type")  # a name, or its number
    kind = _API_TYPES.get(type_, "") if isinstance(type_, int) else str(type_)
    topology = str(config.get("topology") or "")
    table = GENERATIONS.get(_GENERATIONS.get(kind, ""))
    size = table.size_of(topology) if table else None
    if table is None or size is None or zone not in zones_of(table.type_name(size)):
        raise no_such_type(f"{kind} {topology}", zone)
    standard = _slice(kind, table, size)
    # The requested topology may be another one of the same size.
    return Slice(standard.type, kind, topology, standard.hosts)


def _slice(kind: str, table: Generation, size: int) -> Slice:
    """Return the slice of this size: cores or chips, as the names of the generation count."""
    return Slice(table.type_name(size), kind, table.topologies.get(size, ""), table.hosts(size))
