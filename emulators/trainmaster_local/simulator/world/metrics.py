"""The series `agent/alive` of simulated VMs: each host that is up writes a point every
30 seconds.

The flow that looks for silent agents reads them, as it reads Cloud Monitoring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.ports.metrics import Label, MetricPoint, MetricQuery, MetricSeries, Reducer
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.vm import SimVm, VmPool

INTERVAL_S: Final = 30.0
"""Time between two points of a host."""


@dataclass(slots=True)
class SimMetrics:
    """Adapter of `trainmaster.ports.MetricReader`."""

    context: Context
    pool: VmPool

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        """Return the last point of each host in the time of the query; with the reducer COUNT, how
        many hosts of each job have one.
        """
        last_points = []
        for vm in (*self.pool.present.values(), *self.pool.past):
            if query.job_id in ("", vm.job_id):
                last_points += [
                    (vm, host, at)
                    for host, at in enumerate(self._last_points(vm))
                    if query.start < at <= query.end
                ]
        if query.reducer is Reducer.COUNT:
            counts = Counter(vm.job_id for vm, _, _ in last_points)
            return [
                _series({Label.JOB: job_id}, query.end, count) for job_id, count in counts.items()
            ]
        return [
            _series(
                {
                    Label.TASK_ID: str(vm.observed.replica_id),
                    Label.GENERATION: str(vm.observed.vm_generation),
                    Label.HOST: str(host),
                },
                at,
                1.0,
            )
            for vm, host, at in last_points
        ]

    def _last_points(self, vm: SimVm) -> Iterable[datetime]:
        """Yield the last point of each host."""
        clock = self.context.scheduler.clock()
        now_s = self.context.now
        for agent in vm.agents:
            until_s = now_s if agent.off_since_s is None else agent.off_since_s
            # The last whole interval since the creation.
            last_s = vm.created_s + (until_s - vm.created_s) // INTERVAL_S * INTERVAL_S
            yield clock - timedelta(seconds=now_s - last_s)


def _series(labels: dict[Label, str], at: datetime, value: float) -> MetricSeries:
    """Return a series with one point."""
    return MetricSeries(labels, (MetricPoint(at, value),))
