"""Machine time of simulated jobs, against the VMs that really existed, and under every kind of
fault.

Machine time is the sum of the time of all machines, divided by what they were used for. The time of
a replica is divided into spans, one after another, from the submission to the end of the job.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.jobs import a_spec
from trainmaster.core.model.job import Job
from trainmaster.core.reporting.goodput import Goodput, goodput_of
from trainmaster.core.reporting.history import read_history
from trainmaster.core.reporting.lost_work import written_objects
from trainmaster.core.reporting.phases import Span, replica_spans
from trainmaster.jobspec.accept import accept
from trainmaster_local.simulator.history import History
from trainmaster_local.simulator.scenarios.fault_profiles import (
    CAPACITY,
    EVERYTHING,
    MACHINES,
    MESSAGES,
    PROGRAMS,
    QUEUE,
    SLICES,
    Profile,
    preemptions,
)
from trainmaster_local.simulator.scenarios.generator import draw_scenario, rng_of
from trainmaster_local.simulator.scenarios.scenario import Scenario, SimJob

HOUR_S = 3600.0
BOOT_MAX_S = 40
"""How long a VM exists before its agent starts, at most."""
DELETION_MAX_S = 20
"""How long a VM exists after its loss or the end of its job, at most."""
PROFILES = (CAPACITY, EVERYTHING, MACHINES, MESSAGES, PROGRAMS, QUEUE, SLICES)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A hundred histories log thousands of lines."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def run_drawn(seed: int, profile: Profile) -> History:
    rng = rng_of(seed, profile)
    history = History(draw_scenario(rng, profile), rng)
    history.run()
    return history


def spans_of(history: History, job_id: str) -> tuple[Job, tuple[Span, ...]] | None:
    """Return the job and the spans of all its replicas; None: it is a tuning job, or unknown."""
    told = read_history(history.store.ledger(job_id))
    return None if told is None or told.state.job.tuning else (told.state.job, replica_spans(told))


def machine_time(job: Job, spans: tuple[Span, ...], checkpoints_s: list[int]) -> Goodput:
    assert job.ended_at is not None
    written = written_objects(
        ("ckpt", job.created_at + timedelta(seconds=second)) for second in checkpoints_s
    )
    return goodput_of(job, spans, job.ended_at, written)


@settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    seed=st.integers(0, 10_000),
    profile=st.sampled_from(PROFILES),
    checkpoints_s=st.lists(st.integers(0, 4000), max_size=20),
)
@example(seed=610, profile=EVERYTHING, checkpoints_s=[])  # completed after the job's end
def test_machine_time_of_any_simulated_job_adds_up(
    seed: int, profile: Profile, checkpoints_s: list[int]
) -> None:
    history = run_drawn(seed, profile)
    for simulated in history.scenario.jobs:
        found = spans_of(history, simulated.job_id)
        if found is None:
            continue
        job, spans = found
        accepted_at = history.store.ledger(job.job_id)[0].at
        for replica_id in job.plan.replica_ids:
            own = [span for span in spans if span.replica_id == replica_id]
            assert own[0].start == accepted_at
            assert own[-1].end == job.ended_at
            assert all(span.end == following.start for span, following in pairwise(own)), own
        result = machine_time(job, spans, checkpoints_s)
        machines = sum(group.count * group.hosts for group in job.plan.groups)
        assert job.ended_at is not None
        total_s = sum(sum(attempt.total_s.values()) for attempt in result.attempts)
        assert total_s == pytest.approx(machines * (job.ended_at - accepted_at).total_seconds())
        counted_s = (
            machines * (job.ended_at - job.started_at).total_seconds() if job.started_at else 0.0
        )
        assert result.counted_s == pytest.approx(counted_s)
        assert 0 <= result.lost.at_least_s <= result.lost.at_most_s <= result.running_s + 1e-6
        assert 0 <= result.running_s <= result.paid_s <= total_s + 1e-6
        assert all(
            seconds >= 0 for attempt in result.attempts for seconds in attempt.total_s.values()
        )


@pytest.mark.parametrize(("per_hour", "seed"), [(0.0, 1), (0.5, 3), (0.5, 4)])
def test_paid_time_is_that_of_the_vms_that_existed(per_hour: float, seed: int) -> None:
    spec = accept({"jobId": "job", **a_spec()}, default_job_id="job")
    document = json.dumps({"jobId": "job", **a_spec()}).encode()
    job = SimJob("job", document, spec.plan, duration_s=6 * HOUR_S, checkpoint_s=600)
    history = History(
        Scenario((job,), preemptions(per_hour), faults_s=20 * HOUR_S, horizon_s=30 * HOUR_S),
        random.Random(seed),  # noqa: S311
    )
    history.run()
    found = spans_of(history, "job")
    assert found is not None
    result = machine_time(*found, checkpoints_s=[])
    existed_s = history.outcome().vm_s
    assert result.unsplit_s == 0
    unused_s = (BOOT_MAX_S + DELETION_MAX_S) * len(history.pool.past)
    assert existed_s - unused_s <= result.paid_s <= existed_s
