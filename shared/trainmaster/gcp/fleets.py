"""The Fleet of an installation: Compute Engine for task groups of VMs, Cloud TPU for task groups of
TPUs.

Cloud TPU is not called for jobs without TPUs, and never in installations that do not use it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm
from trainmaster.core.reconcile.steps import Create, HandOver
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports import CreateOutcome, Fleet, NotCreated, complete, reached

TPU_DISABLED: Final = NotCreated(
    CapacityErrorKind.DENIED,
    "TPU_OFF",
    "this installation does not use Cloud TPU: enable tpu.googleapis.com and set"
    " TRAINMASTER_TPU=true",
)

_log = logging.getLogger(__name__)


class Fleets:
    """See `trainmaster.ports.Fleet`. `tpu` None: the installation does not use Cloud TPU."""

    def __init__(self, compute: Fleet, tpu: Fleet | None) -> None:
        self._compute = compute
        self._tpu = tpu

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        tpu = self._tpu
        vms, unreachable, refusal = reached(lambda: self._compute.list_vms(job_id, zones=zones))
        if tpu is None or not tpu_zones:
            return complete(vms, unreachable, refusal)
        nodes, without_nodes, refusal = reached(lambda: tpu.list_vms(job_id, tpu_zones))
        return complete((*vms, *nodes), (*unreachable, *without_nodes), refusal)

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        """TPU nodes are left out while Cloud TPU does not answer: most installations have none."""
        vms, unreachable, _ = reached(lambda: self._compute.list_all(zones))
        if self._tpu is None:
            return complete(vms, unreachable)
        try:
            nodes, without_nodes, _ = reached(self._tpu.list_all)
        except (TemporaryError, PermanentError) as error:
            _log.warning("the TPU nodes of all jobs are left out: %s", error)
            return complete(vms, unreachable)
        return complete((*vms, *nodes), (*unreachable, *without_nodes))

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        if create.group.tpu is None:
            return self._compute.create(job, create, metadata)
        return self._tpu.create(job, create, metadata) if self._tpu else TPU_DISABLED

    def delete(self, vm: Vm) -> bool:
        return self._fleet_of(vm).delete(vm)

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        return self._fleet_of(vm).write_directive(vm, directive)

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        return self._fleet_of(hand_over.vm).hand_over(job, hand_over, metadata)

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
            raise LookupError(
                f"{vm.name} is a TPU node, but this installation does not use Cloud TPU"
            )
        return self._tpu
