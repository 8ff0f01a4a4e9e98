"""The methods of the instances API. Each checks the request, then `lifecycle` carries it out.

A failed check is an error of the call. A later failure is an error of the operation.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from trainmaster_emulators.compute.bulk_insert import bulk_names
from trainmaster_emulators.compute.capacity import Capacity
from trainmaster_emulators.compute.resource_policies import PolicyStore
from trainmaster_emulators.machines.catalog import Catalog
from trainmaster_emulators.machines.compute_errors import (
    ApiError,
    Json,
    already_exists,
    condition_not_met,
    invalid,
    not_ready,
    rate_limited,
    required,
)
from trainmaster_emulators.machines.injected_faults import FaultInjector
from trainmaster_emulators.machines.instance_registry import InstanceRegistry
from trainmaster_emulators.machines.instances import NAME, Instance, Status
from trainmaster_emulators.machines.lifecycle import Lifecycle
from trainmaster_emulators.machines.operations import Operation, OperationStore
from trainmaster_emulators.machines.powered_vm import Disk
from trainmaster_emulators.machines.properties import (
    Properties,
    parse_labels,
    parse_metadata,
    parse_properties,
)
from trainmaster_emulators.machines.vm_metadata import Project
from trainmaster_emulators.machines.vm_power import VmPower
from trainmaster_emulators.machines.vm_transitions import (
    SystemEventSink,
    Timing,
    discard_system_event,
)
from trainmaster_emulators.realism.profile import CallQuota, ListLag, Profile

RUN_DURATION_S_MIN: Final = 30.0
"""Source: https://cloud.google.com/compute/docs/instances/limit-vm-runtime."""


class Cloud:
    """The VMs of one project. `run_s_min`: the shortest `maxRunDuration` that is accepted."""

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
        self.project = project
        self.catalog = catalog
        self.links = catalog.links
        self.state_dir = state_dir
        self.run_s_min = run_s_min
        self.operations = OperationStore(self.links)
        self.instances = InstanceRegistry(catalog)
        self.faults = FaultInjector()
        self.capacity = Capacity(project.id, catalog, self.faults)
        self.lifecycle = Lifecycle(
            self.operations, self.faults, power, timing, self.links, self.instances, system_events
        )
        self.policies = PolicyStore(catalog, self.operations, self.instances.list_all)
        self._quota: CallQuota | None = None

    def behave_like(self, profile: Profile) -> None:
        """Behave like Google Cloud: limit the calls per minute, let lists lag, and let some inserts
        fail late.
        """
        self.instances.list_lag = ListLag(profile.list_lag)
        self._quota = CallQuota(profile.calls_per_minute, profile.minute_s, time.time)
        self.lifecycle.fail_late(
            profile.late_failures, lambda vm: self.capacity.stockout(vm.zone, vm.properties)
        )

    def admit_call(self, method: str) -> None:
        """Count a call of the API. Raises ApiError if it exceeds a quota."""
        self.faults.admit_call()
        if self._quota and not self._quota.admits("read" if method == "GET" else "change"):
            raise rate_limited()

    # Creating

    def insert(self, zone: str, body: Json, request_id: str | None) -> Operation:
        self.catalog.zone(zone)
        with self.instances.lock:
            earlier = self.operations.find_by_request(request_id)
            if earlier:
                return earlier
            properties = self._properties(zone, body)
            room_left = self._room(zone, properties, requested=1) - 1  # negative: no capacity
            shortage = self.capacity.shortage(zone, properties, room_left)
            (instance,) = self._register(zone, [str(body.get("name", ""))], properties)
            operation = self._begin("insert", instance, request_id)
            self.lifecycle.insert(operation, [(instance, operation)], shortage, min_count=1)
            return operation

    def bulk_insert(self, zone: str, body: Json, request_id: str | None) -> Operation:
        """Create all VMs, or at least `minCount` of them if the zone has no capacity for more, or
        none.
        """
        self.catalog.zone(zone)
        with self.instances.lock:
            earlier = self.operations.find_by_request(request_id)
            if earlier:
                return earlier
            properties = self._properties(zone, body.get("instanceProperties") or {})
            names = bulk_names(body)
            min_count = int(body.get("minCount") or len(names))
            room = self._room(zone, properties, len(names))
            if room >= min_count:
                names = names[:room]
            room_left = room - len(names)  # negative: no capacity
            shortage = self.capacity.shortage(zone, properties, room_left)
            instances = self._register(zone, names, properties)
            group = secrets.token_hex(16)
            operation = self.operations.begin(
                "bulkInsert",
                scope=("zones", zone),
                target_link=self.links("zones", zone, "instances"),
                target_id=0,
                request_id=request_id,
                group_id=group,
            )
            with_operations = [
                (instance, self._begin("insert", instance, request_id=None, group=group))
                for instance in instances
            ]
            self.lifecycle.insert(operation, with_operations, shortage, min_count)
            return operation

    def _properties(self, zone: str, body: Json) -> Properties:
        properties = parse_properties(
            body, zone, self.catalog, self.project.default_account, self.run_s_min
        )
        self.policies.check(zone, properties)
        return properties

    def _register(self, zone: str, names: Sequence[str], properties: Properties) -> list[Instance]:
        """Create instances of these names, or raise ApiError if one of the names is invalid or in
        use.
        """
        for name in names:
            if not name:
                raise required("resource.name")
            if not NAME.fullmatch(name):
                raise invalid("resource.name", name, f"Must be a match of regex '{NAME.pattern}'")
            if self.instances.has(zone, name) or names.count(name) > 1:
                raise already_exists(self.links.path("zones", zone, "instances", name))
        instances = [self._new(zone, name, properties) for name in names]
        self.instances.add(instances)
        return instances

    def _new(self, zone: str, name: str, properties: Properties) -> Instance:
        number = secrets.randbits(62) | 1 << 62  # like Google's ids: 19 digits, never reused
        disk = Disk(
            self.state_dir / "vms" / str(number), self.state_dir / "serial" / f"{name}-{number}.log"
        )
        instance = Instance(
            name, zone, number, properties, disk, dict(properties.metadata), dict(properties.labels)
        )
        if zone in self.faults.now.unfit_zones and properties.accelerators:
            disk.break_gpu()
        instance.transition_lock.acquire()  # lifecycle.insert releases it
        return instance

    def _room(self, zone: str, properties: Properties, requested: int) -> int:
        return self.capacity.room(zone, properties, requested, self.instances.in_zone(zone))

    # Changing

    def transition(self, verb: str, zone: str, name: str, request_id: str | None) -> Operation:
        """Delete, stop, start or reset a VM, as `verb` says."""
        checks = {"delete": _check_deletable, "reset": self._check_running}
        step: Callable[[Instance], None] = getattr(self.lifecycle.vms, verb)

        def begin(operation: Operation, instance: Instance) -> None:
            self.lifecycle.begin(operation, instance, step)

        return self._act(verb, zone, name, request_id, begin, checks.get(verb, lambda _: None))

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
            self.lifecycle.maintain(instance, notice_s=None, requested=operation)

        return self._act(
            "simulateMaintenanceEvent", zone, name, request_id, begin, check=self._check_running
        )

    def _act(
        self,
        type_: str,
        zone: str,
        name: str,
        request_id: str | None,
        act: Callable[[Operation, Instance], None],
        check: Callable[[Instance], None] = lambda _: None,
    ) -> Operation:
        """Check a request and begin what it asks for, once for each `request_id`."""
        with self.instances.lock:
            earlier = self.operations.find_by_request(request_id)
            if earlier:
                return earlier
            instance = self.instances.get(zone, name)
            check(instance)
            operation = self._begin(type_, instance, request_id)
            act(operation, instance)
            return operation

    def _change(
        self,
        type_: str,
        zone: str,
        name: str,
        request_id: str | None,
        change: Callable[[Instance], None],
    ) -> Operation:
        """Apply a change at once, so that it happens together with the fingerprint check; the
        operation ends later.
        """
        return self._act(
            type_,
            zone,
            name,
            request_id,
            lambda operation, _: self.lifecycle.finish_soon(operation),
            check=change,
        )

    def _begin(
        self, type_: str, instance: Instance, request_id: str | None, group: str | None = None
    ) -> Operation:
        return self.operations.begin(
            type_,
            scope=("zones", instance.zone),
            target_link=instance.link(self.links),
            target_id=instance.id,
            request_id=request_id,
            group_id=group,
        )

    def _check_running(self, instance: Instance) -> None:
        if instance.status is not Status.RUNNING:
            raise not_ready(instance.path(self.links))


def _check_deletable(instance: Instance) -> None:
    if instance.properties.shown.get("deletionProtection"):
        raise ApiError(
            400,
            "invalidResourceUsage",
            f"The instance '{instance.name}' is protected from deletion.",
        )
