"""Resource policies of a region: group placement, which is all that a training gang asks for.

Made and deleted at once, by operations that are done when they are answered. Source: Compute's reference of
resourcePolicies; "Placement policies overview" for what goes with one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from emulators.compute.api_errors import ApiError, Json, already_exists, invalid, not_found, required
from emulators.compute.catalog import Catalog, stable_id
from emulators.compute.instances import NAME, Instance
from emulators.compute.operations import Operation, OperationStore, timestamp
from emulators.compute.properties import Properties

_WITHOUT: Final = ("n1-", "e2-", "t2d-", "m1-", "m2-")
"""Machine series that take no compact placement."""


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    region: str
    description: str
    placement: Json
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


class PolicyStore:
    """`instances` tells all VMs there are, for who uses a policy. Calls come under the cloud's lock."""

    def __init__(
        self, catalog: Catalog, operations: OperationStore, instances: Callable[[], Iterable[Instance]]
    ) -> None:
        self._catalog, self._operations, self._instances = catalog, operations, instances
        self._lock = threading.RLock()
        self._policies: dict[tuple[str, str], Policy] = {}

    def get(self, region: str, name: str) -> Json:
        self._catalog.region(region)
        with self._lock:
            return self._as_json(self._find(region, name))

    def in_region(self, region: str) -> list[Json]:
        self._catalog.region(region)
        with self._lock:
            return [self._as_json(each) for (place, _), each in sorted(self._policies.items()) if place == region]

    def insert(self, region: str, body: Json, request_id: str | None) -> Operation:
        self._catalog.region(region)
        name, placement = str(body.get("name") or ""), body.get("groupPlacementPolicy")
        if not name:
            raise required("resource.name")
        if not NAME.fullmatch(name):
            raise invalid("resource.name", name, f"Must be a match of regex '{NAME.pattern}'")
        if not isinstance(placement, dict) or placement.get("collocation", "COLLOCATED") != "COLLOCATED":
            raise invalid("resource.groupPlacementPolicy", placement, "Only collocated group placement is emulated.")
        with self._lock:
            if repeated := self._operations.repeated(request_id):
                return repeated
            if (region, name) in self._policies:
                raise already_exists(self._path(region, name))
            policy = Policy(name, region, str(body.get("description") or ""), placement)
            self._policies[(region, name)] = policy
            return self._done("insert", policy, request_id)

    def delete(self, region: str, name: str, request_id: str | None) -> Operation:
        self._catalog.region(region)
        with self._lock:
            policy = self._find(region, name)
            for instance in self._users(policy):
                message = f"The resource_policy resource '{self._path(region, name)}' is already being used by "
                used_by = instance.path(self._catalog.links)
                raise ApiError(400, "resourceInUseByAnotherResource", f"{message}'{used_by}'")
            del self._policies[(region, name)]
            return self._done("delete", policy, request_id)

    def check(self, zone: str, properties: Properties) -> None:
        """Whether a VM in that zone may have the policies it names: all of one policy's VMs are in one zone."""
        region = zone.rpartition("-")[0]
        for name in properties.resource_policies:
            with self._lock:
                policy = self._find(region, name)
                elsewhere = next((each for each in self._users(policy) if each.zone != zone), None)
            if properties.machine_type.startswith(_WITHOUT):
                message = f"Compact placement is not supported for machine type {properties.machine_type}."
                raise invalid("resource.resourcePolicies", name, message)
            if elsewhere is not None:
                why = f"Its group placement policy is used in zone {elsewhere.zone}."
                raise invalid("resource.resourcePolicies", name, why)

    def _users(self, policy: Policy) -> list[Instance]:
        return [
            each
            for each in self._instances()
            if each.zone.rpartition("-")[0] == policy.region and policy.name in each.properties.resource_policies
        ]

    def _find(self, region: str, name: str) -> Policy:
        policy = self._policies.get((region, name))
        if policy is None:
            raise not_found(self._path(region, name))
        return policy

    def _done(self, type_: str, policy: Policy, request_id: str | None) -> Operation:
        link = self._link(policy)
        operation = self._operations.begin_in_region(type_, policy.region, link, stable_id(link), request_id)
        self._operations.finish(operation)
        return operation

    def _as_json(self, policy: Policy) -> Json:
        return {
            "kind": "compute#resourcePolicy",
            "id": str(stable_id(self._link(policy))),
            "creationTimestamp": timestamp(policy.created_at),
            "name": policy.name,
            "region": self._catalog.links("regions", policy.region),
            "description": policy.description,
            "groupPlacementPolicy": policy.placement,
            "status": "READY",
            "selfLink": self._link(policy),
        }

    def _path(self, region: str, name: str) -> str:
        return self._catalog.links.path("regions", region, "resourcePolicies", name)

    def _link(self, policy: Policy) -> str:
        return self._catalog.links("regions", policy.region, "resourcePolicies", policy.name)
