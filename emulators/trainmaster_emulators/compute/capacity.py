"""Capacity of zones: unlimited, except where injected faults limit it."""

from __future__ import annotations

from collections.abc import Collection

from trainmaster_emulators.machines.api_errors import OperationError, quota_exceeded, stockout
from trainmaster_emulators.machines.catalog import Catalog
from trainmaster_emulators.machines.injected_faults import FaultInjector
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.properties import Properties


class Capacity:
    """The capacity of all zones, as the current faults leave it."""

    def __init__(self, project: str, catalog: Catalog, faults: FaultInjector) -> None:
        self._project, self._catalog, self._faults = project, catalog, faults

    def room(self, machine_type: str, requested: int, in_zone: Collection[Instance]) -> int:
        """Return for how many of the requested VMs a zone has capacity, if there is no stockout.

        `in_zone`: the VMs that the zone has.
        """
        limit = self._faults.now.machine_limits.get(machine_type)
        if limit is None:
            return requested
        used = sum(instance.properties.machine_type == machine_type for instance in in_zone)
        return max(0, min(requested, limit - used))

    def shortage(self, zone: str, properties: Properties, room: int) -> OperationError | None:
        """Return the error by which an insert will fail because of the injected faults. `room` < 0: no capacity."""
        faults = self._faults.now
        region = zone.rpartition("-")[0]
        if region in faults.quota_regions:
            return quota_exceeded(region, "CPUS", 24.0)
        has_capacity = zone not in faults.stockout_zones and room >= 0
        return None if has_capacity else self.stockout(zone, properties)

    def stockout(self, zone: str, properties: Properties) -> OperationError:
        """Return Google's error, which suggests the zones of the region without a stockout."""
        prefix = f"{zone.rpartition('-')[0]}-"
        without_capacity = (zone, *self._faults.now.stockout_zones)
        available = [
            name for name in self._catalog.zone_names() if name.startswith(prefix) and name not in without_capacity
        ]
        return stockout(self._project, zone, properties.machine_type, properties.attachment, available)
