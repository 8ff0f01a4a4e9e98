"""What one history is about: which jobs, under which faults, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.core.model.job import JobState, Plan
from simulator.scenarios.fault_profiles import Profile


@dataclass(frozen=True, slots=True)
class SimJob:
    """`document` is what its user submits, `plan` what it means; submitted after `submitted_s`, by message or as a
    file. Times in seconds of virtual time."""

    job_id: str
    document: bytes
    plan: Plan
    duration_s: float
    checkpoint_s: float
    is_synchronous: bool = True
    submitted_s: float = 0.0
    is_uploaded: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """`limits` are those of all jobs together. `quiet_s`: once the faults are over, where nothing happens for so long,
    something is stuck."""

    jobs: tuple[SimJob, ...]
    profile: Profile
    limits: Mapping[str, int] = field(default_factory=dict)
    faults_s: float = 300.0
    horizon_s: float = 4000.0
    quiet_s: float = 700.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the first job, and in `states` of all. `vm_s`: seconds of all VMs; `lost_s`: training done and
    thrown away."""

    state: JobState
    message: str | None
    wall_s: float
    vm_s: float
    lost_s: float
    attempts: int
    decisions: Counter[str]
    steps: int
    digest: str
    states: Counter[str] = field(default_factory=Counter)


class HistoryError(AssertionError):
    """A history that broke an invariant, or a flow that raised what it must not. Its text replays it."""

    def __init__(self, seed: int, scenario: Scenario, cause: Exception, trace: str) -> None:
        jobs = "\n".join(
            f"{job.document.decode()}\n{job.duration_s:.0f} s of training, a checkpoint every "
            f"{job.checkpoint_s:.0f} s, {'synchronous' if job.is_synchronous else 'each for itself'}"
            for job in scenario.jobs
        )
        super().__init__(
            f"seed {seed}, profile {scenario.profile.name}: {type(cause).__name__}: {cause}\n{jobs}\n"
            f"replay: python -m simulator --seed {seed} --profile {scenario.profile.name}\n{trace}"
        )
        self.seed = seed
        self.cause = cause
