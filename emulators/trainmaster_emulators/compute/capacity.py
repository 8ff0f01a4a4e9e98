"""Capacity of zones: unlimited, except where injected faults or weather limit it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from itertools import product
from typing import Final

from trainmaster_emulators.machines.catalog import Catalog, basename
from trainmaster_emulators.machines.compute_errors import (
    Json,
    OperationError,
    invalid,
    quota_exceeded,
    required,
    stockout,
)
from trainmaster_emulators.machines.injected_faults import FaultInjector
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.properties import (
    Properties,
    parse_accelerators,
    parse_machine_type,
)
from trainmaster_local.simulator.weather import ADVICE

SPOT: Final = "SPOT"
SHAPES: Final = ("ANY", "ANY_SINGLE_ZONE", "BALANCED")
_UPTIMES: Final = ((0.7, "3600s"), (0.4, "600s"), (0.0, "60s"))
"""Least obtainability → estimated uptime."""


class Capacity:
    """The capacity of all zones, as faults and weather leave it. Asking the weather changes it."""

    def __init__(self, project: str, catalog: Catalog, faults: FaultInjector) -> None:
        self._project = project
        self._catalog = catalog
        self._faults = faults
        self._lock = threading.Lock()

    def room(
        self, zone: str, properties: Properties, requested: int, in_zone: Collection[Instance]
    ) -> int:
        """Return for how many of the requested VMs a zone has capacity, if there is no stockout.

        `in_zone`: the VMs that the zone has.
        """
        machine_type = properties.machine_type
        spot = properties.scheduling.spot
        limits = [self._faults.now.machine_limits.get(machine_type)]
        with self._lock:
            weather = self._faults.weather
            if weather:
                limits.append(weather.room(zone, self._faults.weather_s, machine_type, spot=spot))
        used = sum(instance.properties.machine_type == machine_type for instance in in_zone)
        rooms = [limit - used for limit in limits if limit is not None]
        return max(0, min([requested, *rooms]))

    def advise(self, region: str, body: Json) -> Json:
        """Return the answer of `advice.capacity`: zone and machine type that most likely have room
        for Spot VMs.

        Raises ApiError (400, 404). Source of the scores: "View the availability of Spot VMs".
        """
        size = body.get("size")
        if type(size) is not int or size < 1:
            raise invalid("resource.size", size, "Must be a positive integer.")
        pools = [
            (self._chance(zone, kind, size), zone, kind) for zone, kind in self._pools(region, body)
        ]
        chance, zone, kind = max(pools)
        uptime = next(text for least, text in _UPTIMES if chance >= least)
        shard = {
            "instanceCount": size,
            "machineType": kind,
            "provisioningModel": SPOT,
            "zone": zone,
        }
        scores = {"obtainability": chance, "estimatedUptime": uptime}
        return {"recommendations": [{"scores": scores, "shards": [shard]}]}

    def _pools(self, region: str, body: Json) -> list[tuple[str, str]]:
        """Return each zone and machine type of a request for advice."""
        zones_of_region = self._catalog.region(region)["zones"]
        policy = body.get("distributionPolicy") or {}
        properties = body.get("instanceProperties") or {}
        model = (properties.get("scheduling") or {}).get("provisioningModel")
        shape = policy.get("targetShape")
        if shape not in SHAPES:
            raise invalid("resource.distributionPolicy.targetShape", shape, f"One of {SHAPES}.")
        if model != SPOT:
            raise invalid(
                "resource.instanceProperties.scheduling.provisioningModel",
                model,
                f"Only {SPOT} has advice.",
            )
        requested_zones = [str(item.get("zone")) for item in policy.get("zones") or ()]
        zones = [basename(zone) for zone in requested_zones or zones_of_region]
        for zone in zones:
            if basename(self._catalog.zone(zone)["region"]) != region:
                raise invalid(
                    "resource.distributionPolicy.zones",
                    zone,
                    f"The zone is not in the region {region}.",
                )
        machine_types = self._selected_machine_types(body, zones[0])
        if not machine_types:
            raise required("resource.instanceFlexibilityPolicy.instanceSelections")
        return list(product(zones, machine_types))

    def _selected_machine_types(self, body: Json, zone: str) -> list[str]:
        """Return the machine types of a request for advice, after a check of their accelerators."""
        machine_types = []
        policy = body.get("instanceFlexibilityPolicy") or {}
        for selection in (policy.get("instanceSelections") or {}).values():
            for name in selection.get("machineTypes") or ():
                machine_type = parse_machine_type({"machineType": name}, zone, self._catalog)
                parse_accelerators(selection, zone, machine_type, self._catalog)
                machine_types.append(machine_type)
        return machine_types

    def _chance(self, zone: str, machine_type: str, count: int) -> float:
        """Return the estimated chance, from 0 to 1, of `count` Spot VMs in the zone."""
        faults = self._faults.now
        if zone in faults.stockout_zones or count > faults.machine_limits.get(machine_type, count):
            return min(ADVICE)
        with self._lock:
            weather = self._faults.weather
            if weather is None:
                return max(ADVICE)
            return weather.advice(zone, count, self._faults.weather_s, machine_type)

    def shortage(self, zone: str, properties: Properties, room: int) -> OperationError | None:
        """Return the error by which an insert will fail because of the injected faults.

        `room` < 0: no capacity.
        """
        faults = self._faults.now
        region = zone.rpartition("-")[0]
        if region in faults.quota_regions:
            return quota_exceeded(region, "CPUS", limit=24.0)
        has_capacity = zone not in faults.stockout_zones and room >= 0
        return None if has_capacity else self.stockout(zone, properties)

    def stockout(self, zone: str, properties: Properties) -> OperationError:
        """Return Google's error, which suggests zones of the region without a stockout; not all if
        there is weather.
        """
        prefix = f"{zone.rpartition('-')[0]}-"
        machine_type = properties.machine_type
        without_capacity = (zone, *self._faults.now.stockout_zones)
        available = [
            name
            for name in self._catalog.zone_names()
            if name.startswith(prefix) and name not in without_capacity
        ]
        with self._lock:
            weather = self._faults.weather
            if weather:
                now_s = self._faults.weather_s
                spot = properties.scheduling.spot
                available = list(weather.named(zone, available, now_s, machine_type, spot=spot))
        return stockout(self._project, zone, machine_type, properties.attachment, available)
