"""The VMs that exist, by zone and name."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from trainmaster_emulators.machines.catalog import Catalog
from trainmaster_emulators.machines.compute_errors import ApiError, not_found
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.realism.profile import ListLag


class InstanceRegistry:
    """The VMs of one project. Thread-safe; `lock` makes one step of several calls."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._instances: dict[tuple[str, str], Instance] = {}
        self.lock = threading.RLock()
        self.list_lag: ListLag | None = None
        """The time for which the API's lists lack new VMs. None: they never do."""

    def get(self, zone: str, name_or_id: str) -> Instance:
        """Return a VM. Raises ApiError (404) if there is none."""
        self._catalog.zone(zone)
        with self.lock:
            instance = self._instances.get((zone, name_or_id))
            if instance is None and name_or_id.isdigit():
                instance = next((vm for vm in self.in_zone(zone) if str(vm.id) == name_or_id), None)
        if instance is None:
            raise not_found(self._catalog.links.path("zones", zone, "instances", name_or_id))
        return instance

    def name_of(self, zone: str, name_or_id: str) -> str:
        """Return the name of a VM; that of a missing VM is what the call names."""
        try:
            return self.get(zone, name_or_id).name
        except ApiError:
            return name_or_id

    def find(self, name: str) -> Instance:
        """Return the VM of that name in any zone; of several, the youngest."""
        matches = [vm for vm in self.list_all() if vm.name == name]
        if not matches:
            raise not_found(self._catalog.links.path("instances", name))
        return max(matches, key=lambda vm: vm.created_at)

    def has(self, zone: str, name: str) -> bool:
        """Whether a VM of the zone has this name."""
        with self.lock:
            return (zone, name) in self._instances

    def in_zone(self, zone: str) -> Sequence[Instance]:
        """Return the VMs of a zone, in the order of their creation."""
        with self.lock:
            return [vm for vm in self._instances.values() if vm.zone == zone]

    def list_all(self) -> Sequence[Instance]:
        """Return all VMs, sorted by zone and name."""
        with self.lock:
            return [self._instances[key] for key in sorted(self._instances)]

    def list_visible(self) -> Sequence[Instance]:
        """Return the VMs that the API's lists contain: on a realistic stack, new ones are missing
        for some time.
        """
        lag = self.list_lag
        if lag is None:
            return self.list_all()
        now = datetime.now(UTC)
        return [vm for vm in self.list_all() if not lag.hides(vm.id, vm.created_at, now)]

    def add(self, instances: Iterable[Instance]) -> None:
        with self.lock:
            self._instances |= {(instance.zone, instance.name): instance for instance in instances}

    def forget(self, instance: Instance) -> None:
        """Free the name of a VM, unless a younger VM has it."""
        with self.lock:
            if self._instances.get((instance.zone, instance.name)) is instance:
                del self._instances[(instance.zone, instance.name)]
