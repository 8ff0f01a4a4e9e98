"""One event in a warm function: decoded, authenticated, judged, committed and published, compared with bare calls.

The events of one job are handled one after another, and each is followed by one run of the floor. Times are medians.

    ready, job preparing    a replica's first report; the flow also counts the replicas that have been ready
    failed exit             a program fails and restarts in its VM; the flow also looks for lost peers, before and after
                            its commit (decision 30), and publishes a provisioning request
    ready, job running      a restarted replica reports
    exit 0                  a worker completes; the flow publishes a provisioning request
    duplicate               the same exit is delivered again
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from bench.agents import Agents, agents
from bench.bare_calls import BareEvents, latest_keys
from bench.cloud import Emulators, Project
from bench.control_plane import ControlPlane, Delivery
from bench.figures import Figure, Figures, median_ms
from bench.jobs import job_spec
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.vm import Vm
from trainmaster.messaging.internal_requests import ProvisionRequest

JOB: Final = "warm_events"
WARM_UP: Final = 5
"""Events before the first one that is timed."""
RATIO_MAX: Final = 1.5


def measure(emulators: Emulators, samples: int) -> Figures:
    """Return the time of each kind of event, in ms. `samples` is how often each is measured."""
    with emulators.project() as project, agents(project.name) as senders:
        return _Measurement(project, senders, samples + WARM_UP).run()


class _Measurement:
    def __init__(self, project: Project, senders: Agents, workers: int) -> None:
        self._project, self._senders, self._workers = project, senders, workers
        self._functions = ControlPlane(project.store, auth=senders.auth(project.store), bus=project.bus)
        self._figures: Figures = {}

    def run(self) -> Figures:
        functions, senders = self._functions, self._senders
        functions.run([functions.submit(JOB, job_spec(self._workers + 1))])
        self._provision()
        chief = next(vm for vm in functions.vms(JOB) if vm.replica_id.task_type is not TaskType.WORKER)
        self._measure("ready, job preparing", lambda vm: functions.vm_ready(senders.message(JOB, vm)))
        functions.run([functions.vm_ready(senders.message(JOB, chief))])
        self._measure(
            "failed exit",
            lambda vm: functions.replica_exit(senders.message(JOB, vm, cause="process", exit_status=1, tail="x" * 500)),
        )
        self._provision()
        self._measure(
            "ready, job running", lambda vm: functions.vm_ready(senders.message(JOB, vm)), ratio_max=RATIO_MAX
        )
        exits = {
            vm.name: functions.replica_exit(senders.message(JOB, vm, cause="process", exit_status=0))
            for vm in self._vms()
        }
        self._measure("exit 0", lambda vm: exits[vm.name])
        self._measure("duplicate", lambda vm: exits[vm.name])
        return self._figures

    def _provision(self) -> None:
        """Make the VMs equal the stored state. This is not measured."""
        self._functions.run([self._functions.provision(ProvisionRequest(JOB))])

    def _vms(self) -> Iterable[Vm]:
        return [vm for vm in self._functions.vms(JOB) if vm.replica_id.task_type is TaskType.WORKER]

    def _measure(self, name: str, delivery: Callable[[Vm], Delivery], ratio_max: float | None = None) -> None:
        project = self._project
        floor = BareEvents(project.client, JOB, *latest_keys(project.store, JOB), name)
        events, floors = [], []
        for vm in self._vms():
            _, handle = delivery(vm)
            events.append(_seconds(handle))
            floors.append(_seconds(floor.run))
        self._figures[f"warm event: {name}"] = Figure(
            median_ms(events[WARM_UP:]), "ms", median_ms(floors[WARM_UP:]), ratio_max=ratio_max
        )


def _seconds(handle: Callable[[], object]) -> float:
    began = time.perf_counter()
    handle()
    return time.perf_counter() - began
