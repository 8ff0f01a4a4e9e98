"""The small jobs that seeded histories are about, and how a seed becomes a history."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Final

from shared.core.jobs import Plan
from shared.jobspec import accept, parse_document
from simulator.history import Outcome, Scenario, run
from simulator.profiles import Profile

JOB_ID: Final = "sim_1"
VARIANTS: Final = 6
SYNCHRONOUS: Final = 0.75


def case(seed: int, profile: Profile, *, digest: bool = False) -> Outcome:
    """The history of this seed under this profile. Raises `simulator.history.HistoryError`."""
    rng = random.Random(f"{profile.name}/{seed}")  # noqa: S311 - chance that repeats is the point
    return run(seed, scenario(rng, profile), rng, digest=digest)


def scenario(rng: random.Random, profile: Profile) -> Scenario:
    variant = rng.randrange(VARIANTS)
    document, plan = job(rng.choice((0, 1, 1, 1, 2, 3)), variant)
    duration_s = rng.uniform(20, 120)
    checkpoint_s = rng.choice((0.0, 10.0, 60.0))
    is_synchronous = rng.random() < SYNCHRONOUS
    return Scenario(JOB_ID, document, plan, profile, duration_s, checkpoint_s, is_synchronous=is_synchronous)


@cache
def job(workers: int, variant: int) -> tuple[bytes, Plan]:
    training: dict[str, object] = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "region": "us-central1",
        "runtimeVersion": "2.21",
        "scheduling": {"maxRunningTime": "7200s", "maxWaitTime": "3600s"},
    }
    if workers:
        training |= {"workerType": "n1-standard-4", "workerCount": workers}
    extension: dict[str, object] = {"zones": ["us-central1-a", "us-central1-b", "us-central1-f"][: 1 + variant % 3]}
    if variant == VARIANTS - 1:
        extension["restartJobOnWorkerRestart"] = True
    if variant == VARIANTS - 2:
        extension["disableRetries"] = True
    if variant == 1:
        training.pop("scheduling")
    if variant == VARIANTS // 2:
        extension["spot"] = {"use": "workers", "onDemandAfter": 2}
    body = json.dumps({"jobId": JOB_ID, "trainingInput": training, "trainmaster": extension}).encode()
    return body, accept(parse_document(body, "message.json"), default_job_id=None).plan
