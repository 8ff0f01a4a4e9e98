"""The documents of explored jobs: drawn to suit a profile, or written for one test.

Kinds of jobs, which differ in how their replicas depend on each other:

    sync         a gang of a chief and workers, which run in rounds
    independent  the same with `independentReplicas`: each is judged alone
    ps           with a parameter server: each is judged alone
    partial      as `ps`, and it starts without some of its workers (`gang: false`)
    evaluator    as `sync`, with an evaluator beside the gang
    slices       one or two TPU slices
    tuning       a tuning job, whose trials are of the kind `sync`
"""

from __future__ import annotations

import json
import random
from typing import Any

from tests.explorer.profile import Profile

ZONES = ["us-central1-a", "us-central1-b", "us-central1-f"]
MACHINE = "n1-standard-4"
BIG = {"machineType": "n1-standard-8"}
ALTERNATIVES = (
    [{"zones": ZONES[:1]}, {"zones": ["us-east1-b"]}],
    [{"zones": ZONES[:1]}, {"zones": ZONES[:1], "machineSpec": BIG}],
    [{"zones": ZONES[:1], "spot": "all"}, {"zones": ZONES[:1], "spot": "none"}],
)
"""Two candidates: of another region, of another machine in the same zone, bought otherwise."""
PER_HOUR = 0.195
"""About what the machine costs on demand in USD, with its disk."""
CHIP_PER_HOUR = 1.2
"""About what a chip of a v5e slice costs on demand in USD."""
PRICED_ALTERNATIVES: dict[str, Any] = {
    "placement": {
        "ordered": [
            {"spot": {"use": "all", "onDemandAfter": 1}},
            {"regions": ["europe-west4"], "machineSpec": {"machineType": "n1-standard-8"}},
            {"machineSpec": {"machineType": "n1-standard-8"}},
        ]
    }
}
DEADLINE = "deadline"
STUDY = "hyperparameters"
"""Drawn with the options of `trainmaster`, although they belong into other sections of the job:
`scheduling.maxRunningTime` and the search of a tuning job.
"""


def draw_job(rng: random.Random, profile: Profile, job_id: str) -> tuple[str, bytes]:
    """Return kind and document of a job that suits the profile."""
    kind = rng.choice(profile.kinds)
    size = rng.choice(profile.sizes)
    if kind == "slices":
        return kind, _draw_slices(rng, profile, job_id)
    size = min(size, 2) if kind == "tuning" else size
    options = _draw_options(rng, profile, kind, size)
    limits = {"maxRunningTime": "7200s", "maxWaitTime": "3600s"}
    scheduling: dict[str, Any] = {"maxRunningTime": "86400s"} if profile.cap_s else limits
    if deadline := options.pop(DEADLINE, None):
        scheduling["maxRunningTime"] = deadline
    if profile.jobs > 1:
        scheduling["priority"] = rng.choice((0, 0, 5))
    return kind, job_document(job_id, kind, size, scheduling, options)


def _draw_slices(rng: random.Random, profile: Profile, job_id: str) -> bytes:
    count = rng.choice((1, 1, 2))
    topology = rng.choice(("2x2", "4x4", "4x4"))
    per_hour = CHIP_PER_HOUR * count * (4 if topology == "2x2" else 16)
    return slices_document(job_id, count, topology, max_cost=_max_cost(rng, profile, per_hour))


def _draw_options(rng: random.Random, profile: Profile, kind: str, size: int) -> dict[str, Any]:
    """Return the section `trainmaster` of a job of `size` replicas."""
    options: dict[str, Any] = {"zones": ZONES[: rng.choice((1, 2, 2, 3))]}
    if profile.alternatives:
        options = {"placement": {"ordered": rng.choice(ALTERNATIVES)}}
    if kind == "tuning":
        options[STUDY] = _study(rng)
    elif rng.random() < profile.options:
        options |= rng.choice(
            (
                {"restartJobOnWorkerRestart": True},
                {"disableRetries": True},
                {"exitPolicy": {"preset": "service"}},
                {"exitPolicy": {"preset": "restart"}},
                {"exitPolicy": {"rerun": ["1"]}},
                {"exitPolicy": {"restart": ["134", "139"], "pauses": False}},
                {"spot": {"use": "all"}},
                {"spot": {"use": "workers", "onDemandAfter": 2}},
                {DEADLINE: f"{rng.randrange(60, 400)}s"},
            )
        )
    if profile.cap_s:
        machines = max(size, 2) + 1 if kind in ("ps", "partial") else size + (kind == "evaluator")
        options |= _max_cost(rng, profile, machines * PER_HOUR)
        options |= rng.choice(({}, {}, PRICED_ALTERNATIVES))
    if profile.freeze:
        options["stallTimeout"] = "60s"
    if kind == "independent":
        options["independentReplicas"] = True
    if kind == "partial":
        options["gang"] = False
    if profile.keeps and rng.random() < profile.keeps:
        options["keepMachines"] = f"{rng.choice(profile.keep_s)}s"
    may_be_elastic = kind == "sync" and size > 1 and "restartJobOnWorkerRestart" not in options
    if profile.elastic and may_be_elastic:
        options["elastic"] = {"minReplicas": rng.randrange(1, size)}
    return options


def job_document(
    job_id: str, kind: str, size: int, scheduling: dict[str, Any], options: dict[str, Any]
) -> bytes:
    """Return a job of AI Platform with `size` members, of any kind but `slices`.

    `scheduling`: its section of this name. `options`: its section `trainmaster`, and `STUDY`.
    """
    has_servers = kind in ("ps", "partial")
    size = max(size, 2) if has_servers else size
    training: dict[str, Any] = {
        "scaleTier": "CUSTOM",
        "masterType": MACHINE,
        "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "region": "us-central1",
        "runtimeVersion": "2.21",
        "scheduling": scheduling,
    }
    training |= {"workerType": MACHINE, "workerCount": size - 1} if size > 1 else {}
    training |= {"parameterServerType": MACHINE, "parameterServerCount": 1} if has_servers else {}
    training |= {"evaluatorType": MACHINE, "evaluatorCount": 1} if kind == "evaluator" else {}
    extension = dict(options)
    if STUDY in extension:
        training[STUDY] = extension.pop(STUDY)
    return json.dumps(
        {"jobId": job_id, "trainingInput": training, "trainmaster": extension}
    ).encode()


def slices_document(
    job_id: str,
    count: int,
    topology: str,
    timeout: str = "7200s",
    max_cost: dict[str, Any] | None = None,
) -> bytes:
    """Return a custom job of Vertex AI with `count` slices, each of this topology."""
    machine = {"machineType": "ct5lp-hightpu-4t", "tpuTopology": topology}
    pool = {
        "machineSpec": machine,
        "replicaCount": 1,
        "containerSpec": {"imageUri": "gcr.io/p/image"},
    }
    scheduling = {"timeout": timeout, "maxWaitDuration": "3600s"}
    spec = {"workerPoolSpecs": [pool] * count, "scheduling": scheduling}
    return json.dumps(
        {
            "jobId": job_id,
            "jobSpec": spec,
            "trainmaster": {"region": "us-central1", **(max_cost or {})},
        }
    ).encode()


def _max_cost(rng: random.Random, profile: Profile, per_hour: float) -> dict[str, Any]:
    """Return a `maxCost` that pays for all machines for the profile's time, if it has one."""
    cap_s = rng.uniform(*profile.cap_s) if profile.cap_s else None
    return {"maxCost": f"{per_hour * cap_s / 3600 + 0.01:.2f} USD"} if cap_s else {}


def _study(rng: random.Random) -> dict[str, Any]:
    rate = {"minValue": 0.001, "maxValue": 0.1, "scaleType": "UNIT_LOG_SCALE"}
    study = {
        "goal": "MAXIMIZE",
        "hyperparameterMetricTag": "acc",
        "maxTrials": rng.randrange(1, 6),
        "maxParallelTrials": rng.randrange(1, 4),
        "enableTrialEarlyStopping": True,
        "params": [{"parameterName": "lr", "type": "DOUBLE", **rate}],
    }
    return study | ({"maxFailedTrials": rng.randrange(1, 3)} if rng.random() < 0.5 else {})
