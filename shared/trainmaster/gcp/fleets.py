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
    """The VMs of Compute Engine and the nodes of Cloud TPU as one fleet. Each call goes to the one
    that has the VM, or to both.

    Adapter of `trainmaster.ports.Fleet`, with the errors of the two. `tpu` None: the installation
    does not use Cloud TPU.
    """

    def __init__(self, compute: Fleet, tpu: Fleet | None) -> None:
        self._compute = compute
        self._tpu = tpu

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        """Return the job's VMs in every zone and its TPU nodes in `tpu_zones`, in any state."""
        tpu = self._tpu
        vms, unreachable, refusal = reached(lambda: self._compute.list_vms(job_id, zones=zones))
        if tpu is None or not tpu_zones:
            return complete(vms, unreachable, refusal)
        nodes, without_nodes, refusal = reached(lambda: tpu.list_vms(job_id, tpu_zones))
        return complete((*vms, *nodes), (*unreachable, *without_nodes), refusal)

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        """Return all VMs and TPU nodes with any job's label, in every zone and any state.

        TPU nodes are left out while Cloud TPU does not answer: most installations have none.
        """
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
        """Create the VMs of one bulk insert, all or nothing."""
        if create.group.tpu is None:
            return self._compute.create(job, create, metadata)
        return self._tpu.create(job, create, metadata) if self._tpu else TPU_DISABLED

    def delete(self, vm: Vm) -> bool:
        """Delete the VM by its numeric instance id, so that a newer VM of the same name is never
        deleted. Return whether it is gone.
        """
        return self._fleet_of(vm).delete(vm)

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Write the directive into the VM's metadata, with the metadata fingerprint that `vm` was
        listed with.
        """
        return self._fleet_of(vm).write_directive(vm, directive)

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        """Give a kept VM to this job: replace its metadata in one write, then its labels."""
        return self._fleet_of(hand_over.vm).hand_over(job, hand_over, metadata)

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        """Return when the VM's agent last wrote a heartbeat. None: unknown."""
        return self._fleet_of(vm).last_heartbeat(vm)

    def reported_metric(self, vm: Vm) -> str | None:
        """Return what the agent of a trial's VM last wrote about its metric, unchecked: a program
        on the VM may have written it. None: unknown.
        """
        return self._fleet_of(vm).reported_metric(vm)

    def release(self, job: Job) -> bool:
        """Delete the other resources of an ended job without VMs, such as placement policies."""
        return self._compute.release(job)

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """Return the serial console output from byte `start` on, and where to continue."""
        return self._fleet_of(vm).serial_output(vm, start)

    def _fleet_of(self, vm: Vm) -> Fleet:
        if not vm.is_tpu:
            return self._compute
        if self._tpu is None:
            raise LookupError(
                f"{vm.name} is a TPU node, but this installation does not use Cloud TPU"
            )
        return self._tpu
