"""The Fleet of an installation: Compute Engine for task groups of VMs, Cloud TPU for task groups of TPUs.

Cloud TPU is not called for jobs without TPUs, and never in installations that do not use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm
from trainmaster.core.reconcile.steps import Create
from trainmaster.ports import CreateOutcome, Fleet, NotCreated

TPU_DISABLED: Final = NotCreated(
    CapacityErrorKind.DENIED,
    "TPU_OFF",
    "this installation does not use Cloud TPU: enable tpu.googleapis.com and set TRAINMASTER_TPU=true",
)


class Fleets:
    """See `trainmaster.ports.Fleet`. `tpu` None: the installation does not use Cloud TPU."""

    def __init__(self, compute: Fleet, tpu: Fleet | None) -> None:
        self._compute = compute
        self._tpu = tpu

    def list_vms(self, job_id: str, tpu_zones: Sequence[str] = ()) -> tuple[Vm, ...]:
        vms = self._compute.list_vms(job_id)
        return (*vms, *self._tpu.list_vms(job_id, tpu_zones)) if self._tpu and tpu_zones else vms

    def list_all(self) -> tuple[LabelledVm, ...]:
        vms = self._compute.list_all()
        return (*vms, *self._tpu.list_all()) if self._tpu else vms

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        if create.group.tpu is None:
            return self._compute.create(job, create, metadata)
        return self._tpu.create(job, create, metadata) if self._tpu else TPU_DISABLED

    def delete(self, vm: Vm) -> bool:
        return self._fleet_of(vm).delete(vm)

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        return self._fleet_of(vm).write_directive(vm, directive)

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        return self._fleet_of(vm).last_heartbeat(vm)

    def reported_metric(self, vm: Vm) -> str | None:
        return self._fleet_of(vm).reported_metric(vm)

    def release(self, job: Job) -> bool:
        return self._compute.release(job)

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        return self._fleet_of(vm).serial_output(vm, start)

    def _fleet_of(self, vm: Vm) -> Fleet:
        if not vm.is_tpu:
            return self._compute
        if self._tpu is None:
            raise LookupError(f"{vm.name} is a TPU node, but this installation does not use Cloud TPU")
        return self._tpu
