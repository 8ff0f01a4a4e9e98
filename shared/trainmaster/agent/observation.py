"""What the agent measures while programs run, and where it reports it.

progress    steps and metrics that the program reports ──► the monitor
monitor     what the machine uses, and the progress, each minute ──► Cloud Monitoring
metric      the metric of a trial, from the program's files ──► its exit
report      the same while the program runs ──► a guest attribute of the VM

Only the agent of the primary, the replica whose exit 0 ends the job, measures the progress. A trial
is one run of hyperparameter tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.metric.metric_report import MetricReport
from trainmaster.agent.metric.summary_metric import SummaryMetric
from trainmaster.agent.metric.trial_metric import TAG_VARIABLE, TrialMetric
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import AgentIdentity
from trainmaster.agent.progress.collector import ProgressCollector
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.cloud_storage import StorageReader
from trainmaster.agent.utilization.monitor import (
    UtilizationMonitor,
    configured_monitor,
    find_sources,
)
from trainmaster.agent.workspace import Workspace


@dataclass(frozen=True)
class Observation:
    """The parts that measure."""

    monitor: UtilizationMonitor | None
    """None: metrics are off."""
    progress: ProgressCollector | None
    """None: this is not the primary."""
    metric: TrialMetric
    report: MetricReport

    @property
    def reported_progress(self) -> ProgressCollector | None:
        """The progress, if the monitor reports it."""
        return self.progress if self.monitor is not None else None

    def start(self, inbox: Inbox) -> None:
        """Start the threads of all parts but the monitor, which also needs the agent."""
        if self.reported_progress is not None:
            inbox.start_thread(self.reported_progress.serve)
            inbox.start_thread(self.reported_progress.run)
        if self.metric.is_reported:
            inbox.start_thread(self.report.run)

    @property
    def on_program_end(self) -> Sequence[Callable[[], None]]:
        """What must be called when a program has ended, before its exit is reported."""
        calls: list[Callable[[], None]] = []
        if self.monitor is not None:
            calls.append(self.monitor.finish_interval)
        if self.metric.is_reported:
            calls.append(self.report.count_missing)
        return calls


def observe(
    identity: AgentIdentity,
    workspace: Workspace,
    run_state: RunState,
    metadata: MetadataServer,
    *,
    storage: StorageReader,
    monitoring: GoogleApi,
    processes: Callable[[], Sequence[int]],
) -> Observation:
    """Return the parts that measure, which nothing has started yet.

    `processes`: returns the ids of the program's processes.
    """
    console = workspace.console
    summary_metric = create_summary_metric(identity, storage, console)
    progress = (
        ProgressCollector(workspace.work, console, summary_metric) if identity.is_primary else None
    )
    sources = find_sources(workspace.environ, console.log, processes)
    monitor = configured_monitor(
        identity, sources, metadata, monitoring, run_state, console, progress
    )
    metric = TrialMetric(identity, workspace.work, summary_metric)
    tenure = identity.config.tenure
    report = MetricReport(metric, lambda: run_state.last_started, metadata, console, tenure)
    return Observation(monitor, progress, metric, report)


def create_summary_metric(
    identity: AgentIdentity, storage: StorageReader, console: Console
) -> SummaryMetric | None:
    """Return the reader of summary events; None unless this is the primary and has a folder.

    For a trial it reads the trial's metric, otherwise all metrics.
    """
    variables = identity.config.environment
    tag = variables.get(TAG_VARIABLE, "")
    folder = identity.config.job_dir
    if not folder and not tag:
        folder = variables.get("AIP_TENSORBOARD_LOG_DIR")
    if not folder or not identity.is_primary:
        return None
    return SummaryMetric(tag, folder, storage, console.log)
