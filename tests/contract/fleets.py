"""Fleets under test, with faults, and builders of their requests.

A Fleet creates, lists and deletes VMs. There is one in memory, one on the emulator of Compute
Engine, and one in the explorer (tests/explorer), which runs random histories in virtual time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Protocol, cast

from tests.explorer.cloud import Cloud
from tests.explorer.history import History
from tests.explorer.profile import Profile
from tests.explorer.world import World as VirtualWorld
from tests.integration.compute.emulator import PROJECT, ZONE, Emulator
from tests.support.stack import eventually
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import Fleet, Pending
from trainmaster_local.memory.fleet import MemoryFleet

RUN = Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN)
OTHER_ZONE = "us-central1-b"
NOWHERE: Final = "http://127.0.0.1:9"
"""An address that nothing listens at."""
CALL_S: Final = 60.0
"""Longest time of a call of the explorer's cloud."""


class World(Protocol):
    """A fleet, with control over the cloud behind it."""

    @property
    def fleet(self) -> Fleet: ...

    def stock_out(self, *zones: str) -> None: ...

    def metadata(self, vm: Vm) -> dict[str, str]: ...

    def now(self) -> datetime: ...


class MemoryWorld:
    """The fleet in memory."""

    def __init__(self) -> None:
        self.fleet = MemoryFleet()

    def stock_out(self, *zones: str) -> None:
        self.fleet.stockout_zones = set(zones)

    def metadata(self, vm: Vm) -> dict[str, str]:
        return dict(self.fleet.metadata(vm.name))

    def now(self) -> datetime:
        return datetime.now(UTC)


class ExplorerWorld:
    """The cloud of the explorer's histories, whose time passes only while a call waits."""

    def __init__(self) -> None:
        history = History(0, Profile("contract", jobs=0))
        self._world = history.world
        self._cloud = history.cloud
        self.fleet = cast("Fleet", InvokedFleet(self._world, self._cloud))

    def stock_out(self, *zones: str) -> None:
        self._cloud.empty_zones = set(zones)

    def metadata(self, vm: Vm) -> dict[str, str]:
        return dict(self._cloud.present[vm.name, vm.zone].metadata)

    def now(self) -> datetime:
        return self._world.clock()


class InvokedFleet:
    """Calls each method in an invocation, again while an operation is pending."""

    def __init__(self, world: VirtualWorld, cloud: Cloud) -> None:
        self._world = world
        self._cloud = cloud

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            outcome: Any = Pending()
            while isinstance(outcome, Pending):
                outcome = self._invoke(partial(getattr(self._cloud, name), *args, **kwargs))
            return outcome

        return call

    def _invoke(self, method: Callable[[], Any]) -> Any:
        outcomes: list[Any] = []
        self._world.begin(lambda: outcomes.append(method()))
        self._world.run(self._world.now_s + CALL_S, lambda: bool(outcomes))
        return outcomes[0]


class EmulatorWorld:
    """The adapter of Compute Engine, on the emulator."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.fleet = a_fleet(emulator)

    def stock_out(self, *zones: str) -> None:
        self.emulator.faults(stockout_zones=list(zones))

    def metadata(self, vm: Vm) -> dict[str, str]:
        return {item.key: item.value for item in self.emulator.get(vm.name, vm.zone).metadata.items}

    def now(self) -> datetime:
        return datetime.now(UTC)


def a_fleet(
    emulator: Emulator,
    defaults: VmDefaults | None = None,
    *,
    endpoint: str = "",
    wait_s: float = 10.0,
) -> ComputeFleet:
    """Return the adapter, on the emulator. `wait_s`: how long a create waits for its result."""
    return ComputeFleet(
        defaults or VmDefaults(PROJECT), endpoint=endpoint or emulator.endpoint, wait_s=wait_s
    )


def a_create(job: Job, *, workers: int = 2, **changes: Any) -> Create:
    """Return the step that creates VMs for the first workers of the job."""
    replica_ids = tuple(ReplicaId(TaskType.WORKER, index) for index in range(workers))
    create = Create(
        group=job.plan.group(TaskType.WORKER),
        zone=ZONE,
        vm_generation=1,
        directive=RUN,
        replica_ids=replica_ids,
        names=tuple(vm_name(job.job_id, replica_id) for replica_id in replica_ids),
        round=0,
    )
    return replace(create, **changes)


def metadata(directive: Directive = RUN) -> dict[str, str]:
    """Return the metadata of a VM that sleeps, with this directive."""
    stored = {
        "attempt": directive.attempt,
        "incarnation": directive.incarnation,
        "action": directive.action,
    }
    return {"startup-script": "sleep 600", "trainmaster-directive": json.dumps(stored)}


def only_vm(fleet: Fleet, job: Job) -> Vm:
    """Return the one VM that the job has."""
    (vm,) = fleet.list_vms(job.job_id)
    return vm


def delete_and_wait(fleet: Fleet, vm: Vm) -> None:
    """Delete the VM and wait until it is gone."""
    eventually(lambda: fleet.delete(vm))
