"""A large installation in virtual time: the real flows, with the rates and quotas of Google Cloud around them.

    jobs are submitted over ARRIVAL_S ── VMs boot for BOOT_S ── all replicas report ── they train ── all exit 0

Each call of a port takes time, each function has its instances, and Compute Engine refuses changes above its quota.
Nothing fails otherwise. The result says what each minute cost, and how long jobs waited because of a quota.
`python -m bench.scale --jobs 10000 --replicas 10` runs 100,000 replicas.
"""

from __future__ import annotations

import argparse
import heapq
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, cast

from bench.control_plane import NameAddresses
from bench.jobs import job_spec
from shared.core.model.job import Job, JobState
from shared.core.model.vm import Directive, LabelledVm, Vm
from shared.core.reconcile.steps import Create
from shared.errors import TemporaryError
from shared.flows import provision, replica_exit, submit, sweep, vm_ready
from shared.flows.record import Deps
from shared.memory.fleet import MemoryFleet
from shared.memory.store import MemoryStore
from shared.messaging import agent_messages, internal_requests, topics
from shared.ports import Bus, CreateOutcome, Fleet, Store

START: Final = datetime(2026, 11, 22, tzinfo=UTC)
MINUTE: Final = 60.0
STORE_CALL_S: Final = 0.01
"""Firestore or Pub/Sub within a region: assumed."""
COMPUTE_CALL_S: Final = 1.0
"""A change or a listing of Compute Engine: assumed."""
INSERT_S: Final = 20.0
"""As long as an insert is waited for."""
REFUSED_S: Final = 30.0
"""How long the client repeats a change that the rate limit refuses (`shared.gcp.retries.FLEET_CALL_S`)."""
REFUSED_LIST_S: Final = 15.0
"""The same for a list (`shared.gcp.retries.FLEET_READ_S`)."""
BOOT_S: Final = 40.0
TRAINING_S: Final = 1800.0
ARRIVAL_S: Final = 600.0
PAGE: Final = 500
"""VMs in one page of a listing."""
STEPS_IN_PARALLEL: Final = 24
BACKOFF_S: Final = (1.0, 60.0)
"""Bounds of the time until a redelivery, as infra/ sets them."""
INSTANCES: Final = {"submit": 80, "vm_ready": 320, "replica_exit": 320, "provision": 80, "sweep": 1}
"""Deliveries at a time: instances times concurrency, as infra/functions.tf sets them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    jobs: int
    replicas: int
    """Of each job."""
    changes_per_minute: int = 1500
    """Compute Engine's default quota of changes. Source: Compute Engine documentation, "API rate limits"."""
    excluded_free: int = 10_000
    """VMs that the filter of a list may exclude without a charge."""
    excluded_per_minute: int = 750_000
    """VMs that the filters of all lists together may exclude: a fixed limit. Source: as above."""
    seed: int = 1


@dataclass(slots=True)
class Usage:
    """What the installation used, by minute of virtual time."""

    counts: dict[str, Counter[int]] = field(default_factory=dict)
    deliveries_max_s: float = 0.0
    refused: int = 0
    """Changes that Compute Engine refused for the whole time in which the client repeats them."""
    refused_lists: int = 0
    """Lists that it refused for the whole time, because filters had excluded too many VMs in that minute."""
    running_s: list[float] = field(default_factory=list)
    """Per job: from its submission until it runs."""
    deleted_s: list[float] = field(default_factory=list)
    """Per VM: from the exit of its program until it is deleted."""

    def add(self, name: str, at: float, number: int = 1) -> None:
        self.counts.setdefault(name, Counter())[int(at // MINUTE)] += number

    def total(self, name: str) -> int:
        return self.counts.get(name, Counter()).total()

    def peak_per_minute(self, name: str) -> int:
        return max(self.counts.get(name, Counter({0: 0})).values())


class Cloud:
    """Time, the message bus, the functions' instances and the quota. One delivery runs at a time, at once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.usage = Usage()
        self.rng = random.Random(scenario.seed)  # noqa: S311 - reproducible
        self.store = MemoryStore()
        self.now = 0.0
        self.spent = 0.0
        """How long the present delivery has taken."""
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, list[Callable[[], None]]] = {name: [] for name in INSTANCES}
        self._changes: Counter[int] = Counter()
        self._excluded: Counter[int] = Counter()
        self.fleet = ScaleFleet(self)
        self.deps = Deps(
            cast("Store", Timed(self.store, self, "store")),
            cast("Bus", ScaleBus(self)),
            clock=self.clock,
            sleep=self.spend,
        )
        self.fleet_deps = provision.FleetDeps(
            cast("Fleet", self.fleet), NameAddresses(), "my-project", {"startup-script": "#!"}, self.run_in_waves
        )

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.now + self.spent)

    def spend(self, seconds: float) -> None:
        self.spent += seconds

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._planned, (self.now + seconds, self._count, action))

    def run(self, is_over: Callable[[], bool]) -> None:
        while self._planned and not is_over():
            at, _, action = heapq.heappop(self._planned)
            self.now = at
            action()

    def deliver(self, function: str, handle: Callable[[], object], attempt: int = 0) -> None:
        """Run a delivery if an instance is free. Its effects are there at once, and the instance is busy for a time."""
        if self._busy[function] >= INSTANCES[function]:
            self._waiting[function].append(partial(self.deliver, function, handle, attempt))
            return
        self._busy[function] += 1
        self.spent = 0.0
        self.usage.add(f"invocations of {function}", self.now)
        try:
            handle()
        except TemporaryError:
            backoff_s = min(BACKOFF_S[0] * 2**attempt, BACKOFF_S[1])
            self.after(self.spent + backoff_s, partial(self.deliver, function, handle, attempt + 1))
            self.usage.add(f"redeliveries of {function}", self.now)
        self.usage.deliveries_max_s = max(self.usage.deliveries_max_s, self.spent)
        self.after(self.spent, partial(self._end, function))
        self.spent = 0.0

    def _end(self, function: str) -> None:
        self._busy[function] -= 1
        if self._waiting[function]:
            self._waiting[function].pop(0)()

    def change(self) -> None:
        """Spend the time of one change of a VM. Raises TemporaryError if the quota refuses it for too long."""
        at = self.now + self.spent
        minute = int(at // MINUTE)
        if self._changes[minute] >= self.scenario.changes_per_minute:
            minute += 1
            refill_s = minute * MINUTE - at
            if refill_s > REFUSED_S or self._changes[minute] >= self.scenario.changes_per_minute:
                self.spend(REFUSED_S)
                self.usage.refused += 1
                raise TemporaryError("rateLimitExceeded")
            self.spend(refill_s)
        self._changes[minute] += 1
        self.usage.add("Compute changes", minute * MINUTE)
        self.spend(COMPUTE_CALL_S)

    def exclude(self, vms: int) -> None:
        """Charge a list whose filter excludes this many VMs. Raises TemporaryError if the limit refuses it."""
        if vms <= self.scenario.excluded_free:
            return
        minute = int((self.now + self.spent) // MINUTE)
        if self._excluded[minute] + vms > self.scenario.excluded_per_minute:
            self.spend(REFUSED_LIST_S)
            self.usage.refused_lists += 1
            raise TemporaryError("quotaExceeded")
        self._excluded[minute] += vms
        self.usage.add("VMs excluded by filters", minute * MINUTE, vms)

    def run_in_waves(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run the tasks as `STEPS_IN_PARALLEL` threads would, and raise the first error at the end."""
        errors = []
        for first in range(0, len(tasks), STEPS_IN_PARALLEL):
            began, ended = self.spent, self.spent
            for task in tasks[first : first + STEPS_IN_PARALLEL]:
                self.spent = began
                try:
                    task()
                except TemporaryError as error:
                    errors.append(error)
                ended = max(ended, self.spent)
            self.spent = ended
        if errors:
            raise errors[0]


class Timed:
    """A store whose calls take time and are counted."""

    def __init__(self, store: MemoryStore, cloud: Cloud, name: str) -> None:
        self._store, self._cloud, self._name = store, cloud, name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, cloud = getattr(self._store, name), self._cloud

        def call(*args: Any, **options: Any) -> Any:
            cloud.spend(STORE_CALL_S)
            cloud.usage.add("Firestore requests", cloud.now)
            return method(*args, **options)

        return call


class ScaleBus:
    """Pub/Sub: a message is delivered when the call that published it has ended.

    The effects of a delivery are there at once, so that the stored lease is free again at once, too. A job's deliveries
    exclude each other here instead: one that meets another does nothing, and the other requests its work at its end.
    """

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._busy: set[str] = set()
        """Ids of the jobs that are being provisioned."""
        self._late: dict[str, bytes] = {}
        """Job id → the latest request that met another delivery."""

    def publish(self, topic: str, data: bytes, _attributes: Mapping[str, str]) -> None:
        self.publish_all(topic, [data])

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        self._cloud.spend(STORE_CALL_S)
        if topic != topics.PROVISION:
            raise KeyError(topic)
        for data in messages:
            self._send(data)

    def _send(self, data: bytes) -> None:
        cloud = self._cloud
        deliver = partial(cloud.deliver, "provision", partial(self._provision, data, cloud.clock()))
        cloud.after(cloud.spent + STORE_CALL_S, deliver)

    def _provision(self, data: bytes, published_at: datetime) -> None:
        cloud = self._cloud
        request = internal_requests.decode_provision(data)
        job_id = request.job_id if isinstance(request, internal_requests.ProvisionRequest) else ""
        if job_id in self._busy:
            self._late[job_id] = data
            cloud.spend(2 * STORE_CALL_S)
            return
        try:
            provision.handle(request, cloud.fleet_deps, cloud.deps, published_at)
        finally:
            if job_id:
                self._busy.add(job_id)
                cloud.after(cloud.spent, partial(self._release, job_id))

    def _release(self, job_id: str) -> None:
        self._busy.discard(job_id)
        if job_id in self._late:
            self._send(self._late.pop(job_id))


class ScaleFleet:
    """One fleet in memory per job, the agents of its VMs, and Compute Engine's quota."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._fleets: dict[str, MemoryFleet] = {}
        self._vms = 0
        """Number of VMs in the region."""
        self._owners: dict[str, str] = {}
        """VM name → job id."""
        self.exited_at: dict[str, float] = {}
        """VM name → when its program ended."""

    def list_vms(self, job_id: str, _tpu_zones: Sequence[str] = ()) -> tuple[Vm, ...]:
        fleet = self._fleets.get(job_id)
        vms = fleet.list_vms(job_id) if fleet else ()
        self._cloud.exclude(self._vms - len(vms))
        self._listed(len(vms))
        return vms

    def list_all(self) -> tuple[LabelledVm, ...]:
        listed = tuple(labelled for fleet in self._fleets.values() for labelled in fleet.list_all())
        self._listed(len(listed))
        return listed

    def _listed(self, vms: int) -> None:
        pages = 1 + vms // PAGE
        self._cloud.usage.add("Compute listing pages", self._cloud.now, pages)
        self._cloud.spend(pages * COMPUTE_CALL_S)

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        cloud = self._cloud
        cloud.change()
        fleet = self._fleets.setdefault(job.job_id, MemoryFleet(clock=cloud.clock))
        outcome = fleet.create(job, create, metadata)
        cloud.spend(INSERT_S)
        for name in create.names:
            if name not in self._owners:
                self._owners[name] = job.job_id
                self._vms += 1
                boot_s = BOOT_S + cloud.rng.uniform(0, 10)
                cloud.after(cloud.spent + boot_s, partial(self._report_ready, job.job_id, name))
        return outcome

    def delete(self, vm: Vm) -> bool:
        cloud = self._cloud
        cloud.change()
        if vm.name in self.exited_at:
            cloud.usage.deleted_s.append(cloud.now + cloud.spent - self.exited_at.pop(vm.name))
        self._vms -= 1
        return self._fleets[self._owners[vm.name]].delete(vm)

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        self._cloud.change()
        return self._fleets[self._owners[vm.name]].write_directive(vm, directive)

    def last_heartbeat(self, _vm: Vm) -> datetime | None:
        return self._cloud.clock()

    def release(self, job: Job) -> bool:
        self._fleets.pop(job.job_id, None)
        return True

    def _report_ready(self, job_id: str, name: str) -> None:
        data = self._message(job_id, name)
        deps = self._cloud.deps
        self._cloud.deliver("vm_ready", lambda: vm_ready.handle(agent_messages.decode_vm_ready(data), deps))

    def exit_all(self, job_id: str) -> None:
        """Let all programs of the job end, the chief's last."""
        for vm in self._fleets[job_id].list_vms(job_id):
            last_s = 2.0 if vm.replica_id == self._job(job_id).plan.primary else 0.0
            self._cloud.after(last_s + self._cloud.rng.uniform(0, 2), partial(self._exit, job_id, vm.name))

    def _exit(self, job_id: str, name: str) -> None:
        self.exited_at[name] = self._cloud.now
        data = self._message(job_id, name, cause="process", exit_status=0)
        deps = self._cloud.deps
        self._cloud.deliver("replica_exit", lambda: replica_exit.handle(agent_messages.decode_replica_exit(data), deps))

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
        loaded = self._cloud.store.load(job_id)
        if loaded is None:
            raise KeyError(job_id)
        return loaded.state.job


def run(scenario: Scenario) -> Usage:
    """Run all jobs to their end. Raises RuntimeError if one does not succeed or leaves a VM."""
    cloud = Cloud(scenario)
    submitted: dict[str, float] = {}
    left = set()

    def submit_job(job_id: str) -> None:
        submitted[job_id] = cloud.now
        data = json.dumps({"jobId": job_id, **job_spec(scenario.replicas)}).encode()
        cloud.deliver("submit", lambda: submit.handle(data, f"gs://bucket/jobs/{job_id}.json#1", cloud.deps))
        cloud.after(MINUTE, partial(watch, job_id))

    def watch(job_id: str) -> None:
        """Let the job's programs end some time after it runs."""
        loaded = cloud.store.load(job_id)
        if loaded is None or loaded.state.job.started_at is None:
            cloud.after(10.0, partial(watch, job_id))
            return
        began = (loaded.state.job.started_at - START).total_seconds()
        cloud.usage.running_s.append(began - submitted[job_id])
        cloud.after(max(0.0, began + TRAINING_S - cloud.now), partial(end, job_id))

    def end(job_id: str) -> None:
        cloud.fleet.exit_all(job_id)
        left.discard(job_id)

    def sweep_now() -> None:
        cloud.deliver("sweep", lambda: sweep.handle(cloud.deps))
        cloud.after(MINUTE, sweep_now)

    for number in range(scenario.jobs):
        job_id = f"scale_{number}"
        left.add(job_id)
        cloud.after(ARRIVAL_S * number / scenario.jobs, partial(submit_job, job_id))
    cloud.after(1.0, sweep_now)
    cloud.run(lambda: not left and not cloud.store.count_live() and not cloud.fleet.exited_at)
    states = Counter(job.state for job in cloud.store.recent_jobs(scenario.jobs))
    if states != {JobState.SUCCEEDED: scenario.jobs}:
        raise RuntimeError(f"not all jobs succeeded: {states}")
    return cloud.usage


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--changes-per-minute", type=int, default=1500)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    usage = run(Scenario(arguments.jobs, arguments.replicas, arguments.changes_per_minute))
    for name in sorted(usage.counts):
        sys.stdout.write(
            f"{name:32s} {usage.total(name):10,d} in all {usage.peak_per_minute(name):10,d} in one minute\n"
        )
    sys.stdout.write(f"changes refused for {REFUSED_S:.0f} s   {usage.refused:10,d}\n")
    sys.stdout.write(f"lists refused for {REFUSED_LIST_S:.0f} s     {usage.refused_lists:10,d}\n")
    sys.stdout.write(f"longest delivery           {usage.deliveries_max_s:10.1f} s\n")
    for name, values in (("until a job runs", usage.running_s), ("until a VM is deleted", usage.deleted_s)):
        ordered = sorted(values)
        median, last = ordered[len(ordered) // 2], ordered[-1]
        sys.stdout.write(f"{name:26s} {median:10.1f} s (median) {last:10.1f} s (longest)\n")


if __name__ == "__main__":
    main()
