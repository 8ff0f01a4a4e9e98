"""Draws scenarios of the simulator: small jobs of every kind, under one fault profile.

All is drawn from the generator of the history, so that a seed gives the same scenario again. A
variant is a kind of job, which `training_job` describes.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from typing import Final

from trainmaster.core.model.plan import Plan
from trainmaster.core.timeouts import STARTUP_TIMEOUT_S
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster_local.simulator.scenarios.fault_profiles import (
    KEPT,
    PARTIAL,
    QUEUE,
    SLICES,
    STORM,
    USERS,
    Profile,
)
from trainmaster_local.simulator.scenarios.scenario import Scenario, SimJob

PACKAGE_URI: Final = "gs://bucket/trainer-0.1.tar.gz"
"""The package of every job. The simulated bucket contains it."""
JOB_ID: Final = "sim_1"
VARIANTS: Final = 7
"""Variants below this number are drawn under most profiles."""
PARTIAL_VARIANTS: Final = (7, 8)
"""Variants of jobs that may start before all of their VMs exist."""
SOON_SUBMITTED_S: Final = 15.0
LATE_SUBMITTED_S: Final = 120.0
"""A third of the jobs that may queue are submitted at once, within the first, and within the second
of these times.
"""
# Values that are drawn with equal chances
WORKERS: Final = (0, 1, 1, 1, 2, 3)
"""Workers besides the master."""
STORM_WORKERS: Final = (2, 4, 7, 11)
"""Workers besides the master, under profiles that need larger gangs."""
SYNCHRONOUS_SHARE: Final = 0.75
"""Share of the jobs whose programs train together."""
QUEUE_JOB_COUNTS: Final = (2, 3, 3, 4)
"""Jobs that compete for the limits."""
QUEUE_LIMITS: Final = {"vcpus": 12}
"""Jobs need 4, 8 or 12 vCPUs: one large job fits, or up to three small ones."""

QUEUE_WORKERS: Final = (0, 0, 1, 2)
"""Workers of such a job besides the master."""
QUEUE_PRIORITIES: Final = (0, 0, 5)
KEPT_JOB_COUNTS: Final = (2, 3, 4)
"""Jobs that may take each other's machines."""
KEPT_LIMITS: Final[tuple[dict[str, int], ...]] = ({}, {}, QUEUE_LIMITS)
"""Limits of their installation."""
KEPT_WORKERS: Final = (0, 1, 1, 2)
"""Workers of such a job besides the master."""
KEEP_S: Final = (None, 0, 60, 300, 300, 300)
"""Seconds for which such a job keeps its machines after its end; None: it does not keep them."""
KEPT_INTERVALS_S: Final = (20, 150, 250)
"""Seconds between the submissions of such jobs, besides `KEPT_JITTER_S`."""
KEPT_JITTER_S: Final = 30
KEPT_FAULTS_S: Final = 900.0
"""Time with faults in a history of such jobs: the last of them is submitted late."""
SLICE_WORKERS: Final = (0, 0, 1)
"""Slices besides the first one."""
SLICE_TOPOLOGIES: Final = ("2x2", "4x4", "4x4")
DURATION_S: Final = (20, 120)
"""Shortest and longest training without faults."""
CHECKPOINT_S: Final = (0.0, 10.0, 60.0)
"""Intervals between checkpoints; 0: no work is ever lost."""

SAME_USER: Final = 0.9
"""Share of the jobs that may take each other's machines."""
SILENCE_S: Final = STARTUP_TIMEOUT_S + 120.0
"""Longest time in which nothing is stored while a VM hangs, that of a VM that hangs as it boots."""


def rng_of(seed: int, profile: Profile) -> random.Random:
    """Return the random generator of the history with this seed under this profile."""
    return random.Random(f"{profile.name}/{seed}")  # noqa: S311 - it must be reproducible


def draw_scenario(rng: random.Random, profile: Profile) -> Scenario:
    """Draw the jobs that suit the profile: queued jobs, jobs on TPU slices, or one job of any other
    kind.
    """
    if profile.name == QUEUE.name:
        jobs = tuple(
            _draw_queued_job(rng, number + 1) for number in range(rng.choice(QUEUE_JOB_COUNTS))
        )
        return Scenario(jobs, profile, QUEUE_LIMITS)
    if profile.name == KEPT.name:
        kept = tuple(
            _draw_keeping_job(rng, number + 1) for number in range(rng.choice(KEPT_JOB_COUNTS))
        )
        return Scenario(kept, profile, rng.choice(KEPT_LIMITS), faults_s=KEPT_FAULTS_S)
    if profile.name == SLICES.name:
        document, plan = slice_job(rng.choice(SLICE_WORKERS), rng.choice(SLICE_TOPOLOGIES))
    else:
        workers = rng.choice(
            STORM_WORKERS if profile.name in (STORM.name, PARTIAL.name) else WORKERS
        )
        variant = (
            rng.choice(PARTIAL_VARIANTS)
            if profile.name == PARTIAL.name
            else rng.randrange(VARIANTS)
        )
        document, plan = training_job(workers, variant)
    job = _draw_job(rng, JOB_ID, document, plan, is_uploaded=profile.name == USERS.name)
    if not plan.is_synchronous:  # programs of such a job must not wait for all of their peers
        job = replace(job, is_synchronous=False)
    scenario = Scenario((job,), profile)
    if profile.hang_per_hour:
        return replace(scenario, quiet_s=SILENCE_S, horizon_s=scenario.horizon_s + SILENCE_S)
    return scenario


def _draw_queued_job(rng: random.Random, number: int) -> SimJob:
    """Draw a job that competes with others for the limits."""
    job_id = f"sim_{number}"
    document, plan = training_job(
        rng.choice(QUEUE_WORKERS),
        variant=0,
        job_id=job_id,
        priority=rng.choice(QUEUE_PRIORITIES),
    )
    return _draw_job(
        rng,
        job_id,
        document,
        plan,
        submitted_s=rng.choice(
            (0.0, rng.uniform(0, SOON_SUBMITTED_S), rng.uniform(0, LATE_SUBMITTED_S))
        ),
    )


def _draw_keeping_job(rng: random.Random, number: int) -> SimJob:
    """Draw a job that often keeps its machines until the next job takes them."""
    job_id = f"sim_{number}"
    keep_s = rng.choice(KEEP_S)
    document, plan = training_job(rng.choice(KEPT_WORKERS), variant=0, job_id=job_id, keep_s=keep_s)
    submitted_s = rng.uniform(0, KEPT_JITTER_S) + (number - 1) * rng.choice(KEPT_INTERVALS_S)
    job = _draw_job(rng, job_id, document, plan, submitted_s=submitted_s)
    return replace(job, submitter="anna" if rng.random() < SAME_USER else "berta")


def _draw_job(
    rng: random.Random,
    job_id: str,
    document: bytes,
    plan: Plan,
    *,
    submitted_s: float = 0.0,
    is_uploaded: bool = False,
) -> SimJob:
    """Draw how long the job trains, how often it saves, and whether its programs train together."""
    duration_s = rng.uniform(*DURATION_S)
    checkpoint_s = rng.choice(CHECKPOINT_S)
    is_synchronous = rng.random() < SYNCHRONOUS_SHARE
    return SimJob(
        job_id,
        document,
        plan,
        duration_s,
        checkpoint_s,
        is_synchronous=is_synchronous,
        submitted_s=submitted_s,
        is_uploaded=is_uploaded,
    )


@cache
def training_job(
    workers: int,
    variant: int,
    job_id: str = JOB_ID,
    priority: int = 0,
    keep_s: int | None = None,
) -> tuple[bytes, Plan]:
    """Return job file and plan of a job on n1-standard-4.

    `variant` selects its zones and policies.
    """
    training: dict[str, object] = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "packageUris": [PACKAGE_URI],
        "pythonModule": "trainer.task",
        "region": "us-central1",
        "runtimeVersion": "2.21",
        "scheduling": {"maxRunningTime": "7200s", "maxWaitTime": "3600s", "priority": priority},
    }
    if workers:
        training |= {"workerType": "n1-standard-4", "workerCount": workers}
    extension: dict[str, object] = {
        "zones": ["us-central1-a", "us-central1-b", "us-central1-f"][: 1 + variant % 3]
    }
    if keep_s is not None:
        extension["keepMachines"] = f"{keep_s}s"
    match variant:  # 0 and 6: none of these
        case 1:
            training.pop("scheduling")
        case 2:
            training |= {"parameterServerType": "n1-standard-4", "parameterServerCount": 1}
            training |= {"evaluatorType": "n1-standard-4", "evaluatorCount": 1}
        case 3:
            extension["spot"] = {"use": "workers", "onDemandAfter": 2}
        case 4:
            extension["disableRetries"] = True
        case 5:
            extension["restartJobOnWorkerRestart"] = True
        case 7:
            training |= {"parameterServerType": "n1-standard-4", "parameterServerCount": 1}
            extension["gang"] = False
        case 8:
            extension |= {"gang": False, "independentReplicas": True}
    return _accept({"jobId": job_id, "trainingInput": training, "trainmaster": extension})


@cache
def slice_job(workers: int, topology: str) -> tuple[bytes, Plan]:
    """Return job file and plan of a job on TPU slices of one host (2x2) or four hosts (4x4)."""
    machine = {"machineType": "ct5lp-hightpu-4t", "tpuTopology": topology}
    pool = {
        "machineSpec": machine,
        "replicaCount": 1,
        "containerSpec": {"imageUri": "gcr.io/p/image"},
    }
    scheduling = {"timeout": "7200s", "maxWaitDuration": "3600s"}
    spec = {"workerPoolSpecs": [pool] * (1 + workers), "scheduling": scheduling}
    return _accept({"jobId": JOB_ID, "jobSpec": spec, "trainmaster": {"region": "us-central1"}})


def _accept(document: dict[str, object]) -> tuple[bytes, Plan]:
    """Return the document as JSON, and the plan of the job that it describes."""
    body = json.dumps(document).encode()
    return body, accept(parse_document(body, "message.json"), default_job_id=None).plan
