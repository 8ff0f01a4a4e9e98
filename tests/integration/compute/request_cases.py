"""Jobs and what Compute Engine is asked for because of them: cases by theme, and their golden text.

    python -m tests.integration.compute.request_cases        writes golden/ anew; read what it changed before you keep it

A case is a job document; its requests are those of a first provision, or of one after some VMs were lost. The plainest
request is there in full, every other as its difference: what a reader has to look at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from google.cloud import compute_v1

from shared.core.model.job import Job
from shared.core.model.replica import Replica, ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.reconcile.desired import desired_vms
from shared.core.reconcile.plan import vm_steps
from shared.core.reconcile.steps import Create
from shared.flows.intake import new_job
from shared.gcp.compute_fleet.properties import resource
from shared.gcp.vm_defaults import VmDefaults
from shared.jobspec import accept
from shared.jobspec.catalog.machine_types import LEGACY_MACHINES
from tests.support.jobs import START
from tests.unit.jobspec.bodies import custom, gpus, job

GOLDEN: Final = Path(__file__).parent / "golden"
DEFAULTS: Final = VmDefaults("p", "workers@p.iam.gserviceaccount.com", "global/networks/default", "")
METADATA: Final = {"trainmaster-vm-config": "{}"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`lost`: how many VMs each replica has lost so far. `defaults`: those of the installation."""

    document: Mapping[str, object]
    lost: Mapping[ReplicaId, int] = field(default_factory=dict)
    defaults: VmDefaults = DEFAULTS

    def job(self) -> Job:
        return new_job(accept(self.document, default_job_id=None), "gs://b/jobs/digits.yaml#1", START)

    def requests(self) -> list[compute_v1.BulkInsertInstanceResource]:
        """Of the replicas that lost a VM, or, where none did, of all."""
        job = self.job()
        found = vm_steps(job, desired_vms(job, self._replicas(job)), ())
        return [resource(job, step, self.defaults, METADATA) for step in found if isinstance(step, Create)]

    def _replicas(self, job: Job) -> tuple[Replica, ...]:
        if not self.lost:
            return tuple(Replica(1, replica_id) for replica_id in job.plan.replica_ids)
        return tuple(
            Replica(1, replica_id, ReplicaState.REPLACING, incarnation=1 + lost, vm_generation=1 + lost, replaced=lost)
            for replica_id, lost in self.lost.items()
        )


def plain(**training: object) -> dict[str, object]:
    return custom(masterType="n1-standard-4", **training)


def gang(machine: str, workers: int = 2, **training: object) -> dict[str, object]:
    """A chief and workers on the same machines."""
    return custom(masterType=machine, workerType=machine, workerCount=workers, **training)


def adding(document: Mapping[str, object], **extension: object) -> dict[str, object]:
    return {**document, "trainmaster": extension}


def on_gpus(machine: str, kind: str, count: int) -> dict[str, object]:
    return custom(masterType=machine, masterConfig=gpus(kind, count))


WORKER_0, WORKER_1 = ReplicaId(TaskType.WORKER, 0), ReplicaId(TaskType.WORKER, 1)
KEY: Final = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"

THEMES: Final[Mapping[str, Mapping[str, Case]]] = {
    "tiers": {tier: Case(job(scaleTier=tier)) for tier in ("BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU")},
    "legacy": {name: Case(custom(masterType=name)) for name in LEGACY_MACHINES},
    "gpus": {
        f"{count} {kind} on {machine}": Case(on_gpus(machine, kind, count))
        for machine, kind, count in (
            ("n1-standard-4", "NVIDIA_TESLA_T4", 1),
            ("n1-highmem-8", "NVIDIA_TESLA_T4", 4),
            ("n1-standard-32", "NVIDIA_TESLA_T4", 2),
            ("n1-standard-8", "NVIDIA_TESLA_P4", 2),
            ("n1-standard-8", "NVIDIA_TESLA_V100", 1),
            ("n1-standard-96", "NVIDIA_TESLA_V100", 8),
            ("n1-highcpu-16", "NVIDIA_TESLA_K80", 8),
            ("n1-standard-8", "NVIDIA_TESLA_P100", 2),
            ("g2-standard-24", "NVIDIA_L4", 2),
            ("a2-highgpu-4g", "NVIDIA_TESLA_A100", 4),
        )
    },
    "families": {
        name: Case(custom(masterType=name))
        for name in (
            "e2-standard-4",
            "n2-standard-8",
            "c2-standard-8",
            "c3-standard-8",
            "c4-standard-8",
            "n4-standard-8",
            "t2d-standard-8",
            "g2-standard-8",
            "a2-highgpu-1g",
            "a2-ultragpu-8g",
            "a3-highgpu-8g",
            "a3-megagpu-8g",
            "a3-ultragpu-8g",
            "a4-highgpu-8g",
        )
    },
    "bought": {
        "workers on Spot VMs": Case(adding(gang("n1-standard-4"), spot="workers")),
        "all on Spot VMs with GPUs": Case(adding(gang("g2-standard-8"), spot="all")),
        "lost once, still on Spot": Case(
            adding(gang("n1-standard-4"), spot={"use": "workers", "onDemandAfter": 2}), {WORKER_0: 1}
        ),
        "lost twice, now on demand": Case(
            adding(gang("n1-standard-4"), spot={"use": "workers", "onDemandAfter": 2}), {WORKER_0: 2}
        ),
        "two lost at once, one of them for the last time": Case(
            adding(gang("n1-standard-4"), spot={"use": "workers", "onDemandAfter": 1}), {WORKER_0: 1, WORKER_1: 0}
        ),
        "reserved GPUs": Case(adding(gang("a2-highgpu-8g"), reservation="a100s")),
        "reserved GPUs beside a chief without": Case(
            adding(
                custom(masterType="n1-standard-4", workerType="a3-highgpu-8g", workerCount=2),
                reservation="projects/other/reservations/h100s",
            )
        ),
        "reserved CPUs": Case(adding(custom(masterType="c3-standard-8"), reservation="c3s")),
        "a reservation, and Spot workers who take none": Case(
            adding(gang("g2-standard-8"), reservation="l4s", spot="workers")
        ),
    },
    "placed": {
        "side by side": Case(gang("a2-highgpu-8g", 4)),
        "side by side on Spot": Case(adding(gang("a3-megagpu-8g", 2), spot="all")),
        "T4s stand anywhere": Case(
            custom(
                masterType="n1-standard-8",
                workerType="n1-standard-8",
                workerCount=2,
                masterConfig=gpus("NVIDIA_TESLA_T4", 1),
                workerConfig=gpus("NVIDIA_TESLA_T4", 1),
            )
        ),
        "in the zone the job asks for": Case(adding(gang("a4-highgpu-8g"), zones=["us-central1-b"])),
    },
    "own": {
        "key": Case(plain(encryptionConfig={"kmsKeyName": KEY})),
        "boot image with a driver to install": Case(
            adding(
                custom(masterType="g2-standard-8"),
                image="projects/deeplearning-platform-release/global/images/family/common-cu128",
            )
        ),
        "boot image": Case(adding(custom(masterType="g2-standard-8"), image="projects/p/global/images/mine-1")),
        "account": Case(plain(serviceAccount="me@p.iam.gserviceaccount.com")),
        "network": Case(plain(network="projects/123456789012/global/networks/vpc")),
        "subnetwork of the installation": Case(
            plain(),
            defaults=replace(DEFAULTS, network="global/networks/vpc", subnetwork="regions/{region}/subnetworks/s"),
        ),
        "no account at all": Case(plain(), defaults=replace(DEFAULTS, service_account="")),
        "labels": Case({**plain(), "labels": {"team": "vision", "cost_center": "4711"}}),
        "disk": Case(plain(masterConfig={"diskConfig": {"bootDiskType": "pd-standard", "bootDiskSizeGb": 200}})),
        "container": Case(
            {
                "jobId": "digits_1",
                "trainingInput": {
                    "region": "us-central1",
                    "scaleTier": "CUSTOM",
                    "masterType": "g2-standard-8",
                    "masterConfig": {"imageUri": "us-docker.pkg.dev/p/r/trainer:1"},
                },
            }
        ),
        "times": Case(plain(scheduling={"maxRunningTime": "7200s", "maxWaitTime": "1800s"})),
        "all the time there is": Case(plain(scheduling={"maxRunningTime": "8640000s"})),
    },
}


PLAINEST: Final = Case(plain())
"""The request that all others are told by their difference from."""


def plainest() -> Json:
    (request,) = PLAINEST.requests()
    return as_sent(request)


def differences(case: Case) -> list[Json]:
    """Of each of its requests from the plainest one, by path; null: it has no such field."""
    before = _leaves(plainest())
    found = []
    for request in case.requests():
        leaves = _leaves(as_sent(request))
        paths = sorted(before.keys() | leaves.keys())
        found.append({path: leaves.get(path) for path in paths if leaves.get(path) != before.get(path)})
    return found


def as_sent(request: compute_v1.BulkInsertInstanceResource) -> Json:
    """As the wire has it, with its unordered lists in order; and it is read there as it was written."""
    sent = compute_v1.BulkInsertInstanceResource.to_json(
        request, use_integers_for_enums=False, always_print_fields_with_no_presence=False
    )
    assert compute_v1.BulkInsertInstanceResource.from_json(sent) == request
    found: Json = json.loads(sent)
    properties = found["instanceProperties"]
    properties["metadata"] = {each["key"]: each["value"] for each in properties["metadata"]["items"]}
    names = sorted(
        (each["name"] for each in found["perInstanceProperties"].values()), key=lambda name: (len(name), name)
    )
    return {**found, "perInstanceProperties": names}


def _leaves(value: Json, path: str = "") -> Json:
    """`scheduling.maxRunDuration.seconds` → "608400"; a list is one value, but for its own single dict."""
    found: Json = {}
    for key, each in value.items():
        here = f"{path}.{key}" if path else key
        inner = each[0] if isinstance(each, list) and len(each) == 1 else each
        found |= _leaves(inner, here) if isinstance(inner, dict) else {here: each}
    return found


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "plainest.json").write_text(json.dumps(plainest(), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for theme, cases in THEMES.items():
        shown = {name: differences(case) for name, case in cases.items()}
        (GOLDEN / f"{theme}.json").write_text(json.dumps(shown, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
