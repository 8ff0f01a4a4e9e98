"""The input of a history (jobs and faults) and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.core.model.job import JobState
from trainmaster.core.model.plan import Plan
from trainmaster_local.simulator.scenarios.fault_profiles import Profile


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job of a history. Times are seconds of virtual time."""

    job_id: str
    document: bytes
    """The job file that its user submits."""
    plan: Plan
    """The plan that results from the document."""
    duration_s: float
    """How long its training takes without faults."""
    checkpoint_s: float
    """Interval between its checkpoints; 0 means that no work is ever lost."""
    is_synchronous: bool = True
    """Whether its replicas train together or independently."""
    submitted_s: float = 0.0
    submitter: str = ""
    """User that submits it by message; empty: unknown."""
    is_uploaded: bool = False
    """Submitted as a file in the bucket instead of a message."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Input of one history. Times are seconds of virtual time."""

    jobs: tuple[SimJob, ...]
    profile: Profile
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits on what all admitted jobs use together, such as `{"vcpus": 12}`. Empty: no limits."""
    faults_s: float = 300.0
    """When the faults stop."""
    horizon_s: float = 4000.0
    """When everything must have ended."""
    quiet_s: float = 900.0
    """After the faults: a history in which nothing is stored for this long, and jobs have not
    ended, is stuck.
    """


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a history. All fields but `states` are about the first job."""

    state: JobState
    message: str | None
    """Its error message."""
    wall_s: float
    """Virtual time until it ended."""
    vm_s: float
    """Total existence of all VMs, in seconds."""
    lost_s: float
    """Training that was done and lost, in seconds."""
    attempts: int
    replaced_vms: int
    """VMs of the job that were created in the place of another one."""
    decisions: Counter[str]
    """Number of decisions in its ledger, by kind."""
    steps: int
    """Number of trace lines."""
    digest: str
    """Hash of the trace; empty unless requested."""
    states: Counter[str] = field(default_factory=Counter)
    """Number of jobs, by their final state."""


class HistoryError(AssertionError):
    """A history broke an invariant, or a flow raised an unexpected exception.

    The text contains how to replay it.
    """

    def __init__(self, seed: int, scenario: Scenario, cause: Exception, trace: str) -> None:
        jobs = "\n".join(
            f"{job.document.decode()}\n{job.duration_s:.0f} s of"
            f" {'' if job.is_synchronous else 'a'}synchronous training, a checkpoint every"
            f" {job.checkpoint_s:.0f} s"
            for job in scenario.jobs
        )
        super().__init__(
            f"seed {seed}, profile {scenario.profile.name}: {type(cause).__name__}:"
            f" {cause}\n{jobs}\nreplay: python -m trainmaster_local.simulator --seed {seed}"
            f" --profile {scenario.profile.name}\n{trace}"
        )
        self.seed = seed
        self.cause = cause
