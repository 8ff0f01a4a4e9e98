"""A user's own job under a preemption rate: how it ends, how long it takes, what it costs in VM-hours and lost work."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from shared.jobspec import AcceptedSpec
from simulator.history import run
from simulator.scenarios.fault_profiles import preempted
from simulator.scenarios.scenario import Outcome, Scenario, SimJob

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Question:
    """`duration_s`: how long the training takes undisturbed. `preemptions_per_hour` are of each VM."""

    preemptions_per_hour: float
    duration_s: float
    checkpoint_s: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the tenth-worst of what was seen."""

    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Report:
    """Times in hours. `lost_h` is training that was done and thrown away, once for the whole gang."""

    histories: int
    ends: dict[str, int]
    wall_h: Spread
    vm_h: Spread
    lost_h: Spread
    restarts: Spread
    replacements: Spread
    reruns: Spread
    messages: dict[str, int]


def scenario(spec: AcceptedSpec, document: bytes, question: Question) -> Scenario:
    """Faults go on for as long as the job does; it has the time that its own deadline gives it, and a day."""
    limit_s = spec.plan.max_running_s + (spec.plan.max_wait_s or 0) + DAY_S
    job = SimJob(spec.job_id or "job", document, spec.plan, question.duration_s, question.checkpoint_s)
    profile = preempted(question.preemptions_per_hour)
    return Scenario((job,), profile, faults_s=limit_s, horizon_s=limit_s)


def simulate(this: Scenario, seeds: int, progress: Callable[[int], None] = lambda _: None) -> list[Outcome]:
    outcomes = []
    for seed in range(seeds):
        outcomes.append(run(seed, this, random.Random(seed)))  # noqa: S311 - chance that repeats is the point
        progress(seed + 1)
    return outcomes


def report(outcomes: Sequence[Outcome]) -> Report:
    return Report(
        histories=len(outcomes),
        ends=dict(Counter(each.state.value for each in outcomes).most_common()),
        wall_h=_spread([each.wall_s / HOUR_S for each in outcomes]),
        vm_h=_spread([each.vm_s / HOUR_S for each in outcomes]),
        lost_h=_spread([each.lost_s / HOUR_S for each in outcomes]),
        restarts=_spread([each.decisions["restart_replica"] + each.decisions["hold_replica"] for each in outcomes]),
        replacements=_spread([each.decisions["replace_vm"] for each in outcomes]),
        reruns=_spread([each.attempts - 1 for each in outcomes]),
        messages=dict(Counter(each.message for each in outcomes if each.message).most_common(3)),
    )


def _spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0])
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return Spread(round(tenths[4], 3), round(tenths[8], 3))
