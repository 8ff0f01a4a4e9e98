"""Resource policies of a region.

Only group placement policies are emulated; training jobs use no others.

They are created and deleted at once; the operations are done when the call returns. Source:
Compute's reference of resourcePolicies, and "Placement policies overview" for the restrictions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from trainmaster_emulators.machines.catalog import Catalog, stable_id
from trainmaster_emulators.machines.compute_errors import (
    ApiError,
    Json,
    already_exists,
    invalid,
    not_found,
    required,
)
from trainmaster_emulators.machines.instances import NAME, Instance
from trainmaster_emulators.machines.operations import Operation, OperationStore, timestamp
from trainmaster_emulators.machines.properties import Properties

_NO_COMPACT_PLACEMENT: Final = ("n1-", "e2-", "t2d-", "m1-", "m2-")
"""Machine series that do not support compact placement."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A group placement policy: its VMs are close to each other, in one zone."""

    name: str
    region: str
    description: str
    placement: Json
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


class PolicyStore:
    """The policies of one project. Thread-safe.

    `instances` returns all VMs. Whoever calls `check` before it creates a VM holds the lock of the
    instances meanwhile, so that no other VM takes the policy to another zone.
    """

    def __init__(
        self,
        catalog: Catalog,
        operations: OperationStore,
        instances: Callable[[], Iterable[Instance]],
    ) -> None:
        self._catalog = catalog
        self._operations = operations
        self._instances = instances
        self._lock = threading.RLock()
        self._policies: dict[tuple[str, str], Policy] = {}
        """Region and name → the policy."""

    def get(self, region: str, name: str) -> Json:
        self._catalog.region(region)
        with self._lock:
            return self._as_json(self._find(region, name))

    def in_region(self, region: str) -> list[Json]:
        self._catalog.region(region)
        with self._lock:
            return [
                self._as_json(policy)
                for _, policy in sorted(self._policies.items())
                if policy.region == region
            ]

    def insert(self, region: str, body: Json, request_id: str | None) -> Operation:
        self._catalog.region(region)
        name = str(body.get("name") or "")
        placement = body.get("groupPlacementPolicy")
        if not name:
            raise required("resource.name")
        if not NAME.fullmatch(name):
            raise invalid("resource.name", name, f"Must be a match of regex '{NAME.pattern}'")
        if not isinstance(placement, dict) or not _is_collocated(placement):
            raise invalid(
                "resource.groupPlacementPolicy",
                placement,
                "Only collocated group placement is emulated.",
            )
        with self._lock:
            earlier = self._operations.find_by_request(request_id)
            if earlier:
                return earlier
            if (region, name) in self._policies:
                raise already_exists(self._path(region, name))
            policy = Policy(name, region, str(body.get("description") or ""), placement)
            self._policies[(region, name)] = policy
            return self._done("insert", policy, request_id)

    def delete(self, region: str, name: str, request_id: str | None) -> Operation:
        self._catalog.region(region)
        with self._lock:
            policy = self._find(region, name)
            users = self._users(policy)
            if users:
                message = (
                    f"The resource_policy resource '{self._path(region, name)}' is already being"
                    f" used by '{users[0].path(self._catalog.links)}'"
                )
                raise ApiError(400, "resourceInUseByAnotherResource", message)
            del self._policies[(region, name)]
            return self._done("delete", policy, request_id)

    def check(self, zone: str, properties: Properties) -> None:
        """Raise ApiError (400) if a VM in that zone cannot use its policies: all VMs of a policy
        are in one zone.
        """
        region = zone.rpartition("-")[0]
        for name in properties.resource_policies:
            with self._lock:
                policy = self._find(region, name)
                elsewhere = next(
                    (instance for instance in self._users(policy) if instance.zone != zone), None
                )
            if properties.machine_type.startswith(_NO_COMPACT_PLACEMENT):
                message = (
                    "Compact placement is not supported for machine type"
                    f" {properties.machine_type}."
                )
                raise invalid("resource.resourcePolicies", name, message)
            if elsewhere is not None:
                why = f"Its group placement policy is used in zone {elsewhere.zone}."
                raise invalid("resource.resourcePolicies", name, why)

    def _users(self, policy: Policy) -> list[Instance]:
        """Return the VMs that were created with the policy."""
        return [
            instance
            for instance in self._instances()
            if instance.zone.rpartition("-")[0] == policy.region
            and policy.name in instance.properties.resource_policies
        ]

    def _find(self, region: str, name: str) -> Policy:
        policy = self._policies.get((region, name))
        if policy is None:
            raise not_found(self._path(region, name))
        return policy

    def _done(self, type_: str, policy: Policy, request_id: str | None) -> Operation:
        """Return an operation on the policy that has already finished."""
        link = self._link(policy)
        scope = ("regions", policy.region)
        operation = self._operations.begin(
            type_, scope, link, stable_id(link), request_id=request_id
        )
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


def _is_collocated(placement: Json) -> bool:
    return bool(placement.get("collocation", "COLLOCATED") == "COLLOCATED")
