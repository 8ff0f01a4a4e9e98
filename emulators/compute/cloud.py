"""The verbs of the instances API: each checks what Google checks before it answers; the rest is `lifecycle`'s.

What is refused here is refused at the call; what goes wrong later is an error of the operation.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from emulators.compute.api_errors import (
    ApiError,
    Json,
    OperationError,
    already_exists,
    condition_not_met,
    invalid,
    not_found,
    not_ready,
    quota_exceeded,
    required,
    stockout,
)
from emulators.compute.catalog import Catalog
from emulators.compute.injected_faults import FaultInjector
from emulators.compute.instances import NAME, Instance, Status
from emulators.compute.lifecycle import Lifecycle, SystemEventSink, Timing, discard_system_event
from emulators.compute.operations import Operation, OperationStore
from emulators.compute.powered_vm import Disk
from emulators.compute.properties import Properties, parse_labels, parse_metadata, parse_properties
from emulators.compute.resource_policies import PolicyStore
from emulators.compute.vm_metadata import Project
from emulators.compute.vm_power import VmPower

BULK_COUNT_MAX: Final = 5000
PATTERN_DIGITS_MAX: Final = 18
RUN_DURATION_S_MIN: Final = 30.0
"""Source: https://cloud.google.com/compute/docs/instances/limit-vm-runtime."""


class Cloud:
    """One project. `run_s_min` is the shortest `maxRunDuration` taken."""

    def __init__(
        self,
        project: Project,
        catalog: Catalog,
        power: VmPower,
        state_dir: Path,
        timing: Timing,
        run_s_min: float = RUN_DURATION_S_MIN,
        system_events: SystemEventSink = discard_system_event,
    ) -> None:
        self.project, self.catalog, self.links = project, catalog, catalog.links
        self.state_dir, self.run_s_min = state_dir, run_s_min
        self.operations = OperationStore(self.links)
        self.faults = FaultInjector()
        self.lifecycle = Lifecycle(self.operations, self.faults, power, timing, self.links, self, system_events)
        self._lock = threading.RLock()
        self._instances: dict[tuple[str, str], Instance] = {}
        self.policies = PolicyStore(catalog, self.operations, self.list_all)

    # Reading

    def get(self, zone: str, name_or_id: str) -> Instance:
        self.catalog.zone(zone)
        with self._lock:
            found = self._instances.get((zone, name_or_id))
            if found is None and name_or_id.isdigit():
                mine = (each for (place, _), each in self._instances.items() if place == zone)
                found = next((each for each in mine if str(each.id) == name_or_id), None)
        if found is None:
            raise not_found(self.links.path("zones", zone, "instances", name_or_id))
        return found

    def find(self, name: str) -> Instance:
        """By name alone: of several in different zones the youngest."""
        named = [each for each in self.list_all() if each.name == name]
        if not named:
            raise not_found(self.links.path("instances", name))
        return max(named, key=lambda each: each.created_at)

    def list_all(self) -> Sequence[Instance]:
        """In the order of zone and name."""
        with self._lock:
            return [self._instances[key] for key in sorted(self._instances)]

    def forget(self, instance: Instance) -> None:
        with self._lock:
            if self._instances.get((instance.zone, instance.name)) is instance:
                del self._instances[(instance.zone, instance.name)]

    # Creating

    def insert(self, zone: str, body: Json, request_id: str | None) -> Operation:
        self.catalog.zone(zone)
        with self._lock:
            if repeated := self.operations.repeated(request_id):
                return repeated
            properties = self._properties(zone, body)
            (instance,) = self._register(zone, [str(body.get("name", ""))], properties)
            operation = self._begin("insert", instance, request_id)
            self.lifecycle.insert(operation, [(instance, operation)], self._shortage(zone, properties))
            return operation

    def bulk_insert(self, zone: str, body: Json, request_id: str | None) -> Operation:
        """All or nothing as long as nothing but whole zones runs dry, whatever `minCount` says."""
        self.catalog.zone(zone)
        with self._lock:
            if repeated := self.operations.repeated(request_id):
                return repeated
            properties = self._properties(zone, body.get("instanceProperties") or {})
            names = self._bulk_names(zone, body)
            instances = self._register(zone, names, properties)
            group = secrets.token_hex(16)
            operation = self.operations.begin(
                "bulkInsert",
                zone=zone,
                target_link=self.links("zones", zone, "instances"),
                target_id=0,
                request_id=request_id,
                group_id=group,
            )
            each_own = [(instance, self._begin("insert", instance, None, group)) for instance in instances]
            self.lifecycle.insert(operation, each_own, self._shortage(zone, properties))
            return operation

    def _properties(self, zone: str, body: Json) -> Properties:
        properties = parse_properties(body, zone, self.catalog, self.project.default_account, self.run_s_min)
        self.policies.check(zone, properties)
        return properties

    def _bulk_names(self, zone: str, body: Json) -> list[str]:
        count = int(body.get("count") or 0)
        per_instance = body.get("perInstanceProperties") or {}
        pattern = str(body.get("namePattern") or "")
        if not 1 <= count <= BULK_COUNT_MAX:
            raise invalid("resource.count", count, f"Must be between 1 and {BULK_COUNT_MAX}.")
        if int(body.get("minCount") or count) > count:
            raise invalid("resource.minCount", body["minCount"], "Must not be greater than count.")
        if per_instance and pattern:
            message = "Only one of 'namePattern' and 'perInstanceProperties' can be specified."
            raise ApiError(400, "invalid", message)
        if per_instance:
            if len(per_instance) != count:
                why = f"The number of entries must match count ({count})."
                raise invalid("resource.perInstanceProperties", len(per_instance), why)
            return [str((value or {}).get("name") or key) for key, value in per_instance.items()]
        return self._numbered_names(zone, pattern, count)

    def _numbered_names(self, zone: str, pattern: str, count: int) -> list[str]:
        """`#` stands for a digit; numbering goes on after the largest number there is."""
        runs = re.findall(r"#+", pattern)
        if len(runs) != 1 or len(runs[0]) > PATTERN_DIGITS_MAX:
            raise invalid(
                "resource.namePattern",
                pattern,
                f"Must contain one sequence of up to {PATTERN_DIGITS_MAX} '#' characters.",
            )
        before, after = pattern.split(runs[0])
        numbered = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
        taken = [match for place, name in self._instances if place == zone and (match := numbered.fullmatch(name))]
        first = max((int(match[1]) for match in taken), default=0) + 1
        return [f"{before}{number:0{len(runs[0])}d}{after}" for number in range(first, first + count)]

    def _register(self, zone: str, names: Sequence[str], properties: Properties) -> list[Instance]:
        """Takes all the names or, where one of them is wrong or taken, none."""
        for name in names:
            if not name:
                raise required("resource.name")
            if not NAME.fullmatch(name):
                raise invalid("resource.name", name, f"Must be a match of regex '{NAME.pattern}'")
            if (zone, name) in self._instances or names.count(name) > 1:
                raise already_exists(self.links.path("zones", zone, "instances", name))
        instances = [self._new(zone, name, properties) for name in names]
        self._instances |= {(zone, instance.name): instance for instance in instances}
        return instances

    def _new(self, zone: str, name: str, properties: Properties) -> Instance:
        number = secrets.randbits(62) | 1 << 62  # as Google's: 19 digits, unique for ever
        disk = Disk(self.state_dir / "vms" / str(number), self.state_dir / "serial" / f"{name}-{number}.log")
        instance = Instance(name, zone, number, properties, disk, dict(properties.metadata), dict(properties.labels))
        instance.transition_lock.acquire()  # lifecycle.insert gives it back
        return instance

    def _shortage(self, zone: str, properties: Properties) -> OperationError | None:
        """What an insert now will fail of, in the end."""
        faults = self.faults.now
        region = zone.rpartition("-")[0]
        if region in faults.quota_regions:
            return quota_exceeded(region, "CPUS", 24.0)
        if zone not in faults.stockout_zones:
            return None
        others = [each for each in self.catalog.zone_names() if each.startswith(f"{region}-")]
        free = [each for each in others if each != zone and each not in faults.stockout_zones]
        return stockout(self.project.id, zone, properties.machine_type, properties.attachment, free)

    # Changing

    def delete(self, zone: str, name: str, request_id: str | None) -> Operation:
        return self._act("delete", zone, name, request_id, self.lifecycle.delete, check=_not_protected)

    def stop(self, zone: str, name: str, request_id: str | None) -> Operation:
        return self._act("stop", zone, name, request_id, self.lifecycle.stop)

    def start(self, zone: str, name: str, request_id: str | None) -> Operation:
        return self._act("start", zone, name, request_id, self.lifecycle.start)

    def reset(self, zone: str, name: str, request_id: str | None) -> Operation:
        return self._act("reset", zone, name, request_id, self.lifecycle.reset, check=self._running)

    def set_metadata(self, zone: str, name: str, body: Json, request_id: str | None) -> Operation:
        def change(instance: Instance) -> None:
            items = parse_metadata(body)
            if body.get("fingerprint") != instance.metadata_fingerprint:
                raise condition_not_met("metadata")
            instance.metadata = items
            if instance.metadata_tree is not None:
                instance.metadata_tree.put("instance/attributes", dict(items))

        return self._change("setMetadata", zone, name, request_id, change)

    def set_labels(self, zone: str, name: str, body: Json, request_id: str | None) -> Operation:
        def change(instance: Instance) -> None:
            labels = parse_labels(body.get("labels") or {})
            if body.get("labelFingerprint") != instance.label_fingerprint:
                raise condition_not_met("labels")
            instance.labels = labels

        return self._change("setLabels", zone, name, request_id, change)

    def simulate_maintenance_event(self, zone: str, name: str, request_id: str | None) -> Operation:
        def begin(operation: Operation, instance: Instance) -> None:
            self.operations.start(operation)
            self.lifecycle.maintain(instance, None, requested=operation)

        return self._act("simulateMaintenanceEvent", zone, name, request_id, begin, check=self._running)

    def _act(
        self,
        type_: str,
        zone: str,
        name: str,
        request_id: str | None,
        act: Callable[[Operation, Instance], None],
        check: Callable[[Instance], None] = lambda _: None,
    ) -> Operation:
        with self._lock:
            if repeated := self.operations.repeated(request_id):
                return repeated
            instance = self.get(zone, name)
            check(instance)
            operation = self._begin(type_, instance, request_id)
            act(operation, instance)
            return operation

    def _change(
        self, type_: str, zone: str, name: str, request_id: str | None, change: Callable[[Instance], None]
    ) -> Operation:
        """Takes effect at once, so that a fingerprint is compared and changed in one; the operation follows."""
        return self._act(
            type_, zone, name, request_id, lambda operation, _: self.lifecycle.finish_soon(operation), check=change
        )

    def _begin(self, type_: str, instance: Instance, request_id: str | None, group: str | None = None) -> Operation:
        return self.operations.begin(
            type_,
            zone=instance.zone,
            target_link=instance.link(self.links),
            target_id=instance.id,
            request_id=request_id,
            group_id=group,
        )

    def _running(self, instance: Instance) -> None:
        if instance.status is not Status.RUNNING:
            raise not_ready(instance.path(self.links))


def _not_protected(instance: Instance) -> None:
    if instance.properties.shown.get("deletionProtection"):
        raise ApiError(400, "invalidResourceUsage", f"The instance '{instance.name}' is protected from deletion.")
