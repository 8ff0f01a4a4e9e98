"""Forecast of a user's job under a preemption rate: final state, duration, VM-hours and
lost work.

`trainmaster advise` runs a user's job many times in the simulator, and shows a `Forecast`. A
*history* is one such run, which its seed determines. A *gang* is the members of a job that train
together, and restart together.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.jobspec.accept import AcceptedSpec
from trainmaster_local.simulator.history import run
from trainmaster_local.simulator.scenarios.fault_profiles import preemptions
from trainmaster_local.simulator.scenarios.scenario import Outcome, Scenario, SimJob

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions of the user about the job and the preemptions."""

    preemptions_per_hour: float
    """Preemption rate of one VM."""
    duration_s: float
    """Time that the training takes without interruption."""
    checkpoint_s: float
    """Interval between checkpoints; 0 means that no work is ever lost."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Median and 90th percentile over all histories."""

    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The results of all histories. Times are hours."""

    histories: int
    states: dict[str, int]
    """Number of histories, by the job's final state."""
    wall_h: Percentiles
    """From the submission to the end of the job."""
    vm_h: Percentiles
    """Sum over all VMs, from creation to deletion."""
    lost_h: Percentiles
    """Training that was done and lost, counted once for the whole gang."""
    restarts: Percentiles
    """Restarts of one program, or of the programs of a gang together."""
    replacements: Percentiles
    """VMs that were created in the place of another one."""
    reruns: Percentiles
    """Restarts of the whole job, each with a new attempt."""
    messages: dict[str, int]
    """The three most frequent error messages, with the number of their histories."""


def forecast_scenario(spec: AcceptedSpec, document: bytes, assumptions: Assumptions) -> Scenario:
    """Return a scenario in which VMs are preempted until the job ends.

    It stops one day after the job's deadlines.
    """
    limit_s = spec.plan.limits.max_running_s + (spec.plan.limits.max_wait_s or 0) + DAY_S
    job = SimJob(
        spec.job_id or "job", document, spec.plan, assumptions.duration_s, assumptions.checkpoint_s
    )
    profile = preemptions(assumptions.preemptions_per_hour)
    return Scenario((job,), profile, faults_s=limit_s, horizon_s=limit_s)


def run_histories(scenario: Scenario, count: int) -> list[Outcome]:
    """Run the scenario with the seeds 0 to `count` - 1."""
    runs = []
    for seed in range(count):
        generator = random.Random(seed)  # noqa: S311 - it must be reproducible
        runs.append(run(seed, scenario, generator))
    return runs


def summarize(outcomes: Sequence[Outcome]) -> Forecast:
    """Summarize the outcomes of at least one history."""
    return Forecast(
        histories=len(outcomes),
        states=dict(Counter(outcome.state.value for outcome in outcomes).most_common()),
        wall_h=_percentiles([outcome.wall_s / HOUR_S for outcome in outcomes]),
        vm_h=_percentiles([outcome.vm_s / HOUR_S for outcome in outcomes]),
        lost_h=_percentiles([outcome.lost_s / HOUR_S for outcome in outcomes]),
        restarts=_percentiles([_restarts(outcome) for outcome in outcomes]),
        replacements=_percentiles([outcome.replaced_vms for outcome in outcomes]),
        reruns=_percentiles([outcome.attempts - 1 for outcome in outcomes]),
        messages=dict(
            Counter(outcome.message for outcome in outcomes if outcome.message).most_common(3)
        ),
    )


def _restarts(outcome: Outcome) -> int:
    """Return how often a program was restarted alone, or those of a gang together.

    A gang restarts in a round. Its first round is no restart: the decision that the job runs begins
    it, and not `begin_round`. The first round of each rerun is counted as the rerun. A job whose
    programs restart alone has no rounds, but may have reruns.
    """
    reruns = outcome.attempts - 1
    restarts_of_gang = max(0, outcome.decisions["begin_round"] - reruns)
    return outcome.decisions["restart_replica"] + restarts_of_gang


def _percentiles(values: Sequence[float]) -> Percentiles:
    """Return the median and the 90th percentile; those of one value are the value."""
    if len(values) == 1:
        return Percentiles(values[0], values[0])
    deciles = statistics.quantiles(values, n=10, method="inclusive")  # the first of nine is 10 %
    return Percentiles(p50=round(deciles[4], 3), p90=round(deciles[8], 3))
