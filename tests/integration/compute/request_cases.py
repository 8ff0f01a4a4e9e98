"""Job documents by theme, and their golden bulk-insert requests.

    python -m tests.integration.compute.request_cases

rewrites golden/. Review the changes before committing them.

The requests of a case are those of the first provisioning, or of the provisioning after some VMs
were lost. The minimal request is stored completely, all others as differences from it, so that a
reader sees what matters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from google.cloud import compute_v1

from tests.support.jobs import START
from tests.unit.jobspec.bodies import custom, gpus, job
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.reconcile.plan import vm_steps
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows.job_creation.intake import new_job
from trainmaster.gcp.compute_fleet.properties import resource
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.machine_types import LEGACY_MACHINES

GOLDEN: Final = Path(__file__).parent / "golden"
DEFAULTS: Final = VmDefaults(
    "p", "workers@p.iam.gserviceaccount.com", "global/networks/default", subnetwork=""
)
FAMILY: Final = "common-cu129-ubuntu-2404-nvidia-580"
WITH_BAKED_IMAGE: Final = replace(
    DEFAULTS, images={FAMILY: "projects/p/global/images/family/baked"}
)
WITH_OLD_DRIVER: Final = "projects/p/global/images/with-driver-535"
METADATA: Final = {"trainmaster-vm-config": "{}"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A job file, and the VMs that its job has lost and requests again."""

    document: Mapping[str, object]
    lost: Mapping[ReplicaId, int] = field(default_factory=dict)
    """Number of VMs that each replica has lost; empty: none was created before."""
    defaults: VmDefaults = DEFAULTS

    def job(self) -> Job:
        """Return the job of the file, as it was accepted."""
        return new_job(
            accept(self.document, default_job_id=None), "gs://b/jobs/digits.yaml#1", START
        )

    def requests(self) -> list[compute_v1.BulkInsertInstanceResource]:
        """Return the requests for the replicas that lost a VM; if none did, for all replicas."""
        job = self.job()
        steps = vm_steps(job, desired_vms(job, self._replicas(job), START), ())
        return [
            resource(job, step, self.defaults, METADATA)
            for step in steps
            if isinstance(step, Create)
        ]

    def _replicas(self, job: Job) -> tuple[Replica, ...]:
        if not self.lost:
            return tuple(Replica(1, replica_id) for replica_id in job.plan.replica_ids)
        return tuple(
            Replica(
                1,
                replica_id,
                ReplicaState.REPLACING,
                incarnation=1 + lost,
                vm_generation=1 + lost,
                vms_lost=lost,
            )
            for replica_id, lost in self.lost.items()
        )


def single_vm(**training: object) -> dict[str, object]:
    return custom(masterType="n1-standard-4", **training)


def gang(machine: str, workers: int = 2, **training: object) -> dict[str, object]:
    """A chief and workers with the same machine type."""
    return custom(masterType=machine, workerType=machine, workerCount=workers, **training)


def with_extension(document: Mapping[str, object], **extension: object) -> dict[str, object]:
    return {**document, "trainmaster": extension}


def on_gpus(machine: str, kind: str, count: int) -> dict[str, object]:
    return custom(masterType=machine, masterConfig=gpus(kind, count))


WORKER_0, WORKER_1 = ReplicaId(TaskType.WORKER, 0), ReplicaId(TaskType.WORKER, 1)
KEY: Final = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"

THEMES: Final[Mapping[str, Mapping[str, Case]]] = {
    "tiers": {
        tier: Case(job(scaleTier=tier))
        for tier in ("BASIC", "STANDARD_1", "PREMIUM_1", "BASIC_GPU")
    },
    # A V100 needs an image with another driver.
    "legacy": {
        name: Case(
            with_extension(custom(masterType=name), image=WITH_OLD_DRIVER)
            if "v100" in name
            else custom(masterType=name)
        )
        for name in LEGACY_MACHINES
    },
    "gpus": {
        f"{count} {kind} on {machine}": Case(
            with_extension(on_gpus(machine, kind, count), image=WITH_OLD_DRIVER)
            if kind in ("NVIDIA_TESLA_P4", "NVIDIA_TESLA_V100")
            else on_gpus(machine, kind, count)
        )
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
        )
    },
    "provisioning_models": {
        "workers on Spot VMs": Case(with_extension(gang("n1-standard-4"), spot="workers")),
        "all on Spot VMs with GPUs": Case(with_extension(gang("g2-standard-8"), spot="all")),
        "lost once, still a Spot VM": Case(
            with_extension(gang("n1-standard-4"), spot={"use": "workers", "onDemandAfter": 2}),
            {WORKER_0: 1},
        ),
        "lost twice, now on demand": Case(
            with_extension(gang("n1-standard-4"), spot={"use": "workers", "onDemandAfter": 2}),
            {WORKER_0: 2},
        ),
        "two replicas lost, one now on demand": Case(
            with_extension(gang("n1-standard-4"), spot={"use": "workers", "onDemandAfter": 1}),
            {WORKER_0: 1, WORKER_1: 0},
        ),
        "reserved GPUs": Case(with_extension(gang("a2-highgpu-8g"), reservation="a100s")),
        "reserved GPUs and a chief without": Case(
            with_extension(
                custom(masterType="n1-standard-4", workerType="a3-highgpu-8g", workerCount=2),
                reservation="projects/other/reservations/h100s",
            )
        ),
        "reserved GPUs of a machine that is not sold on demand": Case(
            with_extension(custom(masterType="a3-ultragpu-8g"), reservation="h200s")
        ),
        "machine that is sold as a Spot VM only": Case(
            with_extension(custom(masterType="a3-highgpu-1g"), spot="all")
        ),
        "reserved CPUs": Case(
            with_extension(custom(masterType="c3-standard-8"), reservation="c3s")
        ),
        "reservation, and Spot workers that do not use it": Case(
            with_extension(gang("g2-standard-8"), reservation="l4s", spot="workers")
        ),
    },
    "placement": {
        "compact placement": Case(gang("a2-highgpu-8g", 4)),
        "compact placement of Spot VMs": Case(with_extension(gang("a3-megagpu-8g", 2), spot="all")),
        "no placement policy for T4s": Case(
            custom(
                masterType="n1-standard-8",
                workerType="n1-standard-8",
                workerCount=2,
                masterConfig=gpus("NVIDIA_TESLA_T4", 1),
                workerConfig=gpus("NVIDIA_TESLA_T4", 1),
            )
        ),
        "in the job's zone": Case(
            with_extension(gang("a4-highgpu-8g"), spot="all", zones=["us-central1-b"])
        ),
    },
    "job_settings": {
        "encryption key": Case(single_vm(encryptionConfig={"kmsKeyName": KEY})),
        "boot image with a driver to install": Case(
            with_extension(
                custom(masterType="g2-standard-8"),
                image="projects/deeplearning-platform-release/global/images/family/common-cu128",
            )
        ),
        "image of the installation": Case(single_vm(), defaults=WITH_BAKED_IMAGE),
        "own image with the name of Google's": Case(
            with_extension(single_vm(), image=f"projects/p/global/images/family/{FAMILY}"),
            defaults=WITH_BAKED_IMAGE,
        ),
        "boot image": Case(
            with_extension(
                custom(masterType="g2-standard-8"), image="projects/p/global/images/mine-1"
            )
        ),
        "service account": Case(single_vm(serviceAccount="me@p.iam.gserviceaccount.com")),
        "network": Case(single_vm(network="projects/123456789012/global/networks/vpc")),
        "subnetwork of the installation": Case(
            single_vm(),
            defaults=replace(
                DEFAULTS, network="global/networks/vpc", subnetwork="regions/{region}/subnetworks/s"
            ),
        ),
        "network of the service account": Case(
            single_vm(serviceAccount="finance@p.iam.gserviceaccount.com"),
            defaults=replace(
                DEFAULTS,
                account_networks={"finance@p.iam.gserviceaccount.com": "trainmaster-finance"},
            ),
        ),
        "no service account": Case(single_vm(), defaults=replace(DEFAULTS, service_account="")),
        "labels": Case({**single_vm(), "labels": {"team": "vision", "cost_center": "4711"}}),
        "disk": Case(
            single_vm(
                masterConfig={"diskConfig": {"bootDiskType": "pd-standard", "bootDiskSizeGb": 200}}
            )
        ),
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
        "time limits": Case(
            single_vm(scheduling={"maxRunningTime": "7200s", "maxWaitTime": "1800s"})
        ),
        "longest running time": Case(single_vm(scheduling={"maxRunningTime": "8640000s"})),
    },
}


MINIMAL: Final = Case(single_vm())
"""The other requests are stored as differences from this one's."""


def minimal_request() -> Json:
    (request,) = MINIMAL.requests()
    return as_sent(request)


def differences(case: Case) -> list[Json]:
    """Return the differences of each request from the minimal one, by path; null: the request has
    no such field.
    """
    minimal = _leaves(minimal_request())
    requests = []
    for request in case.requests():
        leaves = _leaves(as_sent(request))
        paths = sorted(minimal.keys() | leaves.keys())
        requests.append(
            {path: leaves.get(path) for path in paths if leaves.get(path) != minimal.get(path)}
        )
    return requests


def as_sent(request: compute_v1.BulkInsertInstanceResource) -> Json:
    """Return the request's JSON, with unordered lists sorted.

    The JSON must parse to the same request.
    """
    json_text = compute_v1.BulkInsertInstanceResource.to_json(
        request, use_integers_for_enums=False, always_print_fields_with_no_presence=False
    )
    assert compute_v1.BulkInsertInstanceResource.from_json(json_text) == request
    body: Json = json.loads(json_text)
    properties = body["instanceProperties"]
    properties["metadata"] = {
        item["key"]: item["value"] for item in properties["metadata"]["items"]
    }
    names = list(body["perInstanceProperties"])
    assert not any(body["perInstanceProperties"].values()), "their field `name` is for output only"
    return {**body, "perInstanceProperties": sorted(names, key=lambda name: (len(name), name))}


def _leaves(value: Json, path: str = "") -> Json:
    """Return the leaves by path, such as `scheduling.maxRunDuration.seconds`.

    A list is one leaf, except that a list of a single dict is treated like the dict.
    """
    leaves: Json = {}
    for key, item in value.items():
        item_path = f"{path}.{key}" if path else key
        inner = item[0] if isinstance(item, list) and len(item) == 1 else item
        leaves |= _leaves(inner, item_path) if isinstance(inner, dict) else {item_path: item}
    return leaves


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "minimal.json").write_text(
        json.dumps(minimal_request(), indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
    for theme, cases in THEMES.items():
        shown = {name: differences(case) for name, case in cases.items()}
        (GOLDEN / f"{theme}.json").write_text(json.dumps(shown, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
