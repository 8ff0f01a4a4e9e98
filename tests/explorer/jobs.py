"""The jobs of histories: documents, how their programs behave, and the examiner of each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.explorer.examiner import Examiner
from tests.explorer.profiles import Profile
from tests.explorer.programs import Program, Programs
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.world import World
    from trainmaster_local.memory.store import MemoryStore

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


class ExploredJob:
    """One job: what its programs do, and what happened to its machines."""

    plan: Plan

    def __init__(self, world: World, store: MemoryStore, job_id: str, kind: str) -> None:
        rng = world.rng
        profile = world.profile
        self.world, self.job_id = world, job_id
        self.work_s = world.between(profile.work_s)
        self.checkpoint_s = rng.choice((0, 10, 60))
        self.reactions = (
            profile.reactions if rng.random() < 0.5 else (rng.choice(profile.reactions),)
        )
        self.is_coupled = kind in ("sync", "evaluator", "slices", "tuning") or (
            kind == "ps" and rng.random() < 0.3
        )
        self.evaluates_forever = rng.random() < 0.3
        self.faults: list[tuple[float, ExploredVm, str]] = []
        """When which machine failed, and how."""
        self.reaction_to_save: str | None = None
        """What its programs do when they are asked to save; None: each draws it."""
        self.save_s: float | None = None
        """How long their saves take; None: each draws it."""
        self.on_program: Callable[[Program], None] = lambda _: None
        """Called when a program starts."""
        self.programs = Programs(self)
        self.examiner = Examiner(self, store)
        self.cost = 0.0
        """What its VMs have cost, in USD: each from the beginning of a successful insert until it
        has stopped.
        """

    def accept(self, plan: Plan) -> None:
        """Learn what the platform made of the document."""
        self.plan = plan
        self.primary = plan.primary
        self.stall_timeout_s = plan.watching.stall_timeout_s or 0
        self.members = sum(
            group.count * group.hosts for group in plan.groups if group.task_type != "evaluator"
        )

    @property
    def is_synchronous(self) -> bool:
        """Whether its members run in rounds: more than one machine, no parameter server, not
        independent.
        """
        has_servers = any(group.task_type == "ps" for group in self.plan.groups)
        return self.members > 1 and not has_servers and not self.plan.restarts.independent

    def is_member(self, replica_id: ReplicaId) -> bool:
        """Whether the replica runs in rounds."""
        return self.is_synchronous and replica_id.is_in_cluster

    def note_fault(self, vm: ExploredVm, kind: str) -> None:
        self.faults.append((self.world.now_s, vm, kind))

    def note_created(self, vm: ExploredVm) -> None:
        self.examiner.on_create(vm)

    def note_taken(self, vm: ExploredVm) -> None:
        self.examiner.on_take(vm)

    def note_deleted(self, vm: ExploredVm) -> None:
        self.examiner.on_delete(vm)


def draw_job(rng: random.Random, profile: Profile, job_id: str) -> tuple[str, bytes]:
    """Return kind and document of a job that suits the profile."""
    kind = rng.choice(profile.kinds)
    size = rng.choice(profile.sizes)
    if kind == "slices":
        count = rng.choice((1, 1, 2))
        topology = rng.choice(("2x2", "4x4", "4x4"))
        per_hour = CHIP_PER_HOUR * count * (4 if topology == "2x2" else 16)
        return kind, slices_document(
            job_id, count, topology, max_cost=_max_cost(rng, profile, per_hour)
        )
    scheduling: dict[str, Any] = {"maxRunningTime": "7200s", "maxWaitTime": "3600s"}
    options: dict[str, Any] = {"zones": ZONES[: rng.choice((1, 2, 2, 3))]}
    if profile.alternatives:
        options = {"placement": {"ordered": rng.choice(ALTERNATIVES)}}
    if kind == "tuning":
        options["hyperparameters"] = _study(rng)
        size = min(size, 2)
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
                {"deadline": f"{rng.randrange(60, 400)}s"},
            )
        )
    if profile.cap_s:
        machines = max(size, 2) + 1 if kind in ("ps", "partial") else size + (kind == "evaluator")
        options |= _max_cost(rng, profile, machines * PER_HOUR)
        options |= rng.choice(({}, {}, PRICED_ALTERNATIVES))
        scheduling = {"maxRunningTime": "86400s"}
    if profile.freeze:
        options["stallTimeout"] = "60s"
    options |= {"independentReplicas": True} if kind == "independent" else {}
    options |= {"gang": False} if kind == "partial" else {}
    if profile.keeps and rng.random() < profile.keeps:
        options |= {"keepMachines": f"{rng.choice(profile.keep_s)}s"}
    is_elastic = (
        profile.elastic
        and size > 1
        and kind == "sync"
        and "restartJobOnWorkerRestart" not in options
    )
    options |= {"elastic": {"minReplicas": rng.randrange(1, size)}} if is_elastic else {}
    scheduling |= {"maxRunningTime": options.pop("deadline")} if "deadline" in options else {}
    scheduling |= {"priority": rng.choice((0, 0, 5))} if profile.jobs > 1 else {}
    return kind, job_document(job_id, kind, size, scheduling, options)


def job_document(
    job_id: str, kind: str, size: int, scheduling: dict[str, Any], options: dict[str, Any]
) -> bytes:
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
    training |= (
        {"hyperparameters": extension.pop("hyperparameters")}
        if "hyperparameters" in options
        else {}
    )
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
