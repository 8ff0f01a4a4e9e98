"""The VMs of all jobs, and the agents on them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from bench.scale.cloud import COMPUTE_CALL_S, Cloud
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows import replica_exit, vm_ready
from trainmaster.flows.commit.record import Deps
from trainmaster.memory.fleet import MemoryFleet
from trainmaster.messaging import agent_messages
from trainmaster.ports import CreateOutcome

INSERT_S: Final = 20.0
"""How long a call waits for an insert."""
BOOT_S: Final = 40.0
PAGE: Final = 500
"""VMs in one page of a listing."""


class ScaleFleet:
    """One fleet in memory per job, the agents of its VMs, and Compute Engine's quota."""

    def __init__(self, cloud: Cloud, deps: Deps) -> None:
        self._cloud, self._deps = cloud, deps
        self._fleets: dict[str, MemoryFleet] = {}
        self._vms: Counter[int] = Counter()
        """Number of VMs in each region."""
        self._owners: dict[str, str] = {}
        """VM name → job id."""
        self.exited_at: dict[str, float] = {}
        """VM name → when its program ended."""

    def list_vms(self, job_id: str, _tpu_zones: Sequence[str] = (), _zones: Sequence[str] = ()) -> tuple[Vm, ...]:
        fleet = self._fleets.get(job_id)
        vms = fleet.list_vms(job_id) if fleet else ()
        region = self._region(job_id)
        self._cloud.exclude(region, self._vms[region] - len(vms))
        self._charge_listing(len(vms))
        return vms

    def list_all(self, _zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        listed = tuple(labelled for fleet in self._fleets.values() for labelled in fleet.list_all())
        self._charge_listing(len(listed))
        return listed

    def _charge_listing(self, vms: int) -> None:
        pages = 1 + vms // PAGE
        self._cloud.usage.add("Compute listing pages", self._cloud.now, pages)
        self._cloud.spend(pages * COMPUTE_CALL_S)

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        cloud, region = self._cloud, self._region(job.job_id)
        cloud.change(region)
        fleet = self._fleets.setdefault(job.job_id, MemoryFleet(clock=cloud.clock))
        outcome = fleet.create(job, create, metadata)
        cloud.spend(INSERT_S)
        for name in create.names:
            if name not in self._owners:
                self._owners[name] = job.job_id
                self._vms[region] += 1
                boot_s = BOOT_S + cloud.rng.uniform(0, 10)
                cloud.after(cloud.spent + boot_s, partial(self._report_ready, job.job_id, name))
        return outcome

    def delete(self, vm: Vm) -> bool:
        cloud, region = self._cloud, self._region(self._owners[vm.name])
        cloud.change(region)
        if vm.name in self.exited_at:
            cloud.usage.deleted_s.append(cloud.now + cloud.spent - self.exited_at.pop(vm.name))
        self._vms[region] -= 1
        return self._fleets[self._owners[vm.name]].delete(vm)

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        self._cloud.change(self._region(self._owners[vm.name]))
        return self._fleets[self._owners[vm.name]].write_directive(vm, directive)

    def reported_metric(self, _vm: Vm) -> str | None:
        return None

    def last_heartbeat(self, _vm: Vm) -> datetime | None:
        return self._cloud.clock()

    def release(self, job: Job) -> bool:
        self._fleets.pop(job.job_id, None)
        return True

    def _region(self, job_id: str) -> int:
        return int(job_id.rpartition("_")[2]) % self._cloud.scenario.regions

    def _report_ready(self, job_id: str, name: str) -> None:
        data = self._message(job_id, name)
        self._cloud.deliver("vm_ready", lambda: vm_ready.handle(agent_messages.decode_vm_ready(data), self._deps))

    def exit_all(self, job_id: str) -> None:
        """Let all programs of the job end, the chief's last."""
        for vm in self._fleets[job_id].list_vms(job_id):
            last_s = 2.0 if vm.replica_id == self._job(job_id).plan.primary else 0.0
            self._cloud.after(last_s + self._cloud.rng.uniform(0, 2), partial(self._exit, job_id, vm.name))

    def _exit(self, job_id: str, name: str) -> None:
        self.exited_at[name] = self._cloud.now
        data = self._message(job_id, name, cause="process", exit_status=0)
        self._cloud.deliver(
            "replica_exit", lambda: replica_exit.handle(agent_messages.decode_replica_exit(data), self._deps)
        )

    def _message(self, job_id: str, name: str, **fields: object) -> bytes:
        (vm,) = [vm for vm in self._fleets[job_id].list_vms(job_id) if vm.name == name]
        document = {
            "version": 1,
            "job_id": job_id,
            "attempt": 1,
            "task_type": vm.replica_id.task_type,
            "task_index": vm.replica_id.index,
            "incarnation": 1,
            "vm_generation": vm.vm_generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
            "at": self._cloud.clock().isoformat(),
        }
        return json.dumps({**document, **fields}).encode()

    def _job(self, job_id: str) -> Job:
        loaded = self._deps.store.load(job_id)
        if loaded is None:
            raise KeyError(job_id)
        return loaded.state.job
