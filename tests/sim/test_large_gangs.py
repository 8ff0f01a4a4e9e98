"""Gangs of thirty, a hundred and a thousand replicas, under faults of a few of their VMs and
programs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from trainmaster_local.simulator.history import run
from trainmaster_local.simulator.scenarios.fault_profiles import STORM
from trainmaster_local.simulator.scenarios.generator import JOB_ID, rng_of, training_job
from trainmaster_local.simulator.scenarios.scenario import Outcome, Scenario, SimJob

FAULTS_PER_HISTORY = 2.0
MORE = ((30, 0), (30, 1), (998, 1))
"""Replicas and seeds of the histories that only heavy tests run."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def run_gang(replicas: int, seed: int) -> Outcome:
    """Run a job of this many replicas and two parameter servers.

    The expected number of faults is always the same. The job trains for two minutes, and writes a
    checkpoint every ten seconds.
    """
    rate = FAULTS_PER_HISTORY / replicas
    profile = replace(STORM, suspend=0.05, fail=rate, loss_per_hour=12 * rate, stockout=0.1)
    document, plan = training_job(replicas - 1, 2 if replicas > 2 else 0)
    job = SimJob(JOB_ID, document, plan, duration_s=120.0, checkpoint_s=10.0)
    return run(seed, Scenario((job,), profile), rng_of(seed, profile))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("replicas", "seed"),
    [
        (30, 2),
        (100, 1),
        *(
            pytest.param(
                *gang,
                marks=pytest.mark.heavy(
                    fact="a large gang ends",
                    quick="the same test with gangs of 30 and of 100 replicas",
                ),
            )
            for gang in MORE
        ),
    ],
)
def test_large_gang_ends_without_violation(replicas: int, seed: int) -> None:
    outcome = run_gang(replicas, seed)
    print(
        f"{replicas} replicas: {outcome.state}, {outcome.attempts} attempts,"
        f" {dict(outcome.decisions)}"
    )
    assert outcome.state.is_terminal
    assert outcome.decisions["mark_ready"] >= replicas
