"""The small jobs that seeded histories are about, and how a seed becomes a history."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Final

from shared.core.model.job import Plan
from shared.jobspec import accept, parse_document
from simulator.history import run
from simulator.scenarios.fault_profiles import HANDS, LINE, SLICES, Profile
from simulator.scenarios.scenario import Outcome, Scenario, SimJob

JOB_ID: Final = "sim_1"
VARIANTS: Final = 7
SYNCHRONOUS: Final = 0.75
LINE_JOBS: Final = (2, 3, 3, 4)
LINE_LIMITS: Final = {"vcpus": 12}
"""Of jobs that need 4, 8 or 12: one large one, or up to three small ones."""


def case(seed: int, profile: Profile, *, digest: bool = False) -> Outcome:
    """The history of this seed under this profile. Raises `simulator.scenarios.scenario.HistoryError`."""
    rng = random.Random(f"{profile.name}/{seed}")  # noqa: S311 - chance that repeats is the point
    return run(seed, scenario(rng, profile), rng, digest=digest)


def scenario(rng: random.Random, profile: Profile) -> Scenario:
    if profile.name == LINE.name:
        jobs = tuple(_waiting_job(rng, nth + 1) for nth in range(rng.choice(LINE_JOBS)))
        return Scenario(jobs, profile, LINE_LIMITS)
    if profile.name == SLICES.name:
        document, plan = slices(rng.choice((0, 0, 1)), rng.choice(("2x2", "4x4", "4x4")))
    else:
        document, plan = job(rng.choice((0, 1, 1, 1, 2, 3)), rng.randrange(VARIANTS))
    return Scenario((_sim_job(rng, JOB_ID, document, plan, is_uploaded=profile.name == HANDS.name),), profile)


def _waiting_job(rng: random.Random, nth: int) -> SimJob:
    job_id = f"sim_{nth}"
    document, plan = job(rng.choice((0, 0, 1, 2)), 0, job_id, rng.choice((0, 0, 5)))
    return _sim_job(rng, job_id, document, plan, submitted_s=rng.choice((0.0, rng.uniform(0, 15), rng.uniform(0, 120))))


def _sim_job(
    rng: random.Random,
    job_id: str,
    document: bytes,
    plan: Plan,
    *,
    submitted_s: float = 0.0,
    is_uploaded: bool = False,
) -> SimJob:
    duration_s = rng.uniform(20, 120)
    checkpoint_s = rng.choice((0.0, 10.0, 60.0))
    is_synchronous = rng.random() < SYNCHRONOUS
    return SimJob(job_id, document, plan, duration_s, checkpoint_s, is_synchronous, submitted_s, is_uploaded)


@cache
def job(workers: int, variant: int, job_id: str = JOB_ID, priority: int = 0) -> tuple[bytes, Plan]:
    training: dict[str, object] = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "region": "us-central1",
        "runtimeVersion": "2.21",
        "scheduling": {"maxRunningTime": "7200s", "maxWaitTime": "3600s", "priority": priority},
    }
    if workers:
        training |= {"workerType": "n1-standard-4", "workerCount": workers}
    extension: dict[str, object] = {"zones": ["us-central1-a", "us-central1-b", "us-central1-f"][: 1 + variant % 3]}
    match variant:
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
    return _accepted({"jobId": job_id, "trainingInput": training, "trainmaster": extension})


@cache
def slices(workers: int, topology: str) -> tuple[bytes, Plan]:
    """Of one host (2x2) or four (4x4)."""
    machine = {"machineType": "ct5lp-hightpu-4t", "tpuTopology": topology}
    pool = {"machineSpec": machine, "replicaCount": 1, "containerSpec": {"imageUri": "gcr.io/p/image"}}
    scheduling = {"timeout": "7200s", "maxWaitDuration": "3600s"}
    spec = {"workerPoolSpecs": [pool] * (1 + workers), "scheduling": scheduling}
    return _accepted({"jobId": JOB_ID, "jobSpec": spec, "trainmaster": {"region": "us-central1"}})


def _accepted(document: dict[str, object]) -> tuple[bytes, Plan]:
    body = json.dumps(document).encode()
    return body, accept(parse_document(body, "message.json"), default_job_id=None).plan
