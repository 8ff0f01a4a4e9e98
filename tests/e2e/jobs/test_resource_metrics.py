"""Resource metrics of a whole job: measured by its agents, sent to the Monitoring emulator, shown
by the console.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime

import pytest

from tests.e2e.conftest import Lab
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.gcp.log_entries import LogEntries
from trainmaster.gcp.monitoring_metrics import MonitoringMetrics
from trainmaster.ports.metrics import Label, Metric, MetricQuery, MetricSeries

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BURN_S = 24
"""Twice the interval of reports, so that one is sent before the end."""
WORKER_1 = ReplicaId(TaskType.WORKER, 1)
NVIDIA_SMI = "#!/bin/sh\nprintf '0, 91, 12000, 16000\\n1, 2, 400, 16000\\n'\n"
"""Prints for each of two GPUs its index, its utilization in percent, and used and total MiB."""


def add_gpus(lab: Lab, job_id: str, replica_id: ReplicaId) -> None:
    """Install a program that reports two GPUs on the replica's VM."""
    program = (
        lab.stack.state_dir
        / "compute"
        / "vms"
        / lab.vm(job_id, replica_id).instance_id
        / "bin"
        / "nvidia-smi"
    )
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)


def core_share(lab: Lab, job_id: str, until: datetime) -> float:
    """Return the share of its time in which worker 1 used a core, by the last line that it printed
    before `until`.
    """
    entries = LogEntries(
        lab.stack.state.config.project, lab.stack.environment["TRAINMASTER_LOGGING_ENDPOINT"]
    )
    condition = (
        f'resource.labels.job_id="{job_id}" AND resource.labels.task_name="worker-replica-1"'
    )
    newest, _ = entries.page(f'{condition} AND jsonPayload.message:"used"', newest_first=True)
    lines = [entry["jsonPayload"]["message"] for entry in newest]
    entries.close()
    found = [re.fullmatch(r"used ([\d.]+) s of ([\d.]+) s at ([\d.]+)", line) for line in lines]
    reports = [tuple(map(float, match.groups())) for match in found if match]
    used_s, elapsed_s, _ = max(
        (report for report in reports if report[2] <= until.timestamp()),
        key=lambda report: report[2],
    )
    return used_s / elapsed_s


def latest(series: MetricSeries) -> float:
    return series.points[-1].value


@pytest.mark.heavy(
    fact="the load of a program is on the chart of its replica",
    quick="`integration/monitoring/test_agent.py`, `unit/agent/utilization`",
)
@pytest.mark.timeout(400)
def test_job_that_burns_one_core_shows_it_on_the_right_replica(lab: Lab) -> None:
    job_id = lab.scripted(pythonModule="trainer.burner", args=["--seconds", str(BURN_S)])
    lab.wait(job_id, JobState.RUNNING)
    add_gpus(lab, job_id, WORKER_1)
    lab.wait_for_success(job_id, BURN_S + 60)
    job = lab.state(job_id).job
    endpoint = lab.stack.environment["TRAINMASTER_MONITORING_ENDPOINT"]
    reader = MonitoringMetrics(lab.stack.state.config.project, endpoint)
    end = datetime.now(UTC)

    def read(metric: Metric) -> dict[tuple[str, str], MetricSeries]:
        found = reader.read(MetricQuery(job_id, metric, job.created_at, end))
        return {
            (series.labels[Label.TASK_ID], series.labels.get(Label.GPU, "")): series
            for series in found
        }

    cpu = read(Metric.CPU)
    assert set(cpu) == {("chief-0", ""), ("worker-0", ""), ("worker-1", "")}
    assert len(cpu["worker-1", ""].points) >= 2, "one report within the run, and one at its end"
    first = cpu["worker-1", ""].points[0]
    core = core_share(lab, job_id, first.at) / len(os.sched_getaffinity(0))
    assert first.value == pytest.approx(core, rel=0.3)
    assert latest(cpu["worker-0", ""]) < core / 4
    assert {key: latest(series) for key, series in read(Metric.GPU).items()} == {
        ("worker-1", "0"): 0.91,
        ("worker-1", "1"): 0.02,
    }
    reader.close()
    shown = lab.stack.run("trainmaster", "jobs", "top", job_id, "--format", "json")
    worker = next(
        use for use in json.loads(shown.stdout)["replicas"] if use["replica"] == "worker-1"
    )
    assert [gpu["utilization"] for gpu in worker["gpus"]] == [0.91, 0.02]
