"""A job for every machine that can be requested: tiers, machine types, GPUs, TPUs.

`golden/machines.txt` has a line per job: its phrase, and the machines that the job gets.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.jobspec.bodies import custom, gpus, job
from trainmaster.core.machines.tpus import GENERATIONS, TPU_VMS
from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    LEGACY_MACHINES,
    TPU_TYPES,
    VERTEX_TPU_TYPES,
)
from trainmaster.jobspec.catalog.scale_tiers import TIERS

Request = tuple[str, dict[str, object]]
IMAGE = "us-docker.pkg.dev/my-project/training/trainer:1"
N1 = (
    "n1-standard-8",
    "n1-highmem-16",
    "n1-standard-32",
    "n1-highcpu-64",
    "n1-standard-64",
    "n1-standard-96",
)
OTHER_FAMILIES = (
    "n2-standard-8",
    "n2d-highmem-16",
    "e2-standard-4",
    "c2-standard-8",
    "c3-standard-22",
    "c3-standard-22-lssd",
)
NEWEST_FAMILIES = (
    "c4-standard-8",
    "c4d-highcpu-16",
    "n4-standard-4",
    "t2d-standard-8",
    "m3-ultramem-32",
    "n2-custom-6-3072",
)
TPU_REGIONS = {"v4": "us-central2", "v5e": "us-west4", "v5p": "us-east5", "v6e": "us-east5"}


def machine_requests() -> dict[str, dict[str, object]]:
    """Return a job document for each tier, machine type, GPU and TPU, by its name."""
    return dict([*_tiers(), *_machine_types(), *_gpus(), *_cloud_tpus(), *_tpu_machine_types()])


def vertex(region: str, **machine: object) -> dict[str, object]:
    pool = {"machineSpec": machine, "replicaCount": 1, "containerSpec": {"imageUri": IMAGE}}
    return {"jobId": "a", "workerPoolSpecs": [pool], "trainmaster": {"region": region}}


def _tiers() -> Iterator[Request]:
    for tier in TIERS:
        yield f"scaleTier {tier}", job(scaleTier=tier)


def _machine_types() -> Iterator[Request]:
    for name in (*LEGACY_MACHINES, *BUILT_IN_GPUS, *OTHER_FAMILIES, *NEWEST_FAMILIES):
        yield f"masterType {name}", custom(masterType=name)


def _gpus() -> Iterator[Request]:
    for gpu in GPU_COUNTS:
        for machine in N1:
            for count in (1, 2, 4, 8):
                yield (
                    f"{machine} with {count} x {gpu}",
                    custom(masterType=machine, masterConfig=gpus(gpu, count)),
                )


def _cloud_tpus() -> Iterator[Request]:
    yield (
        "a legacy machine that drives cloud_tpu",
        custom(masterType="standard", workerType="cloud_tpu", workerCount=1),
    )
    every_role = custom(masterType="cloud_tpu", workerType="cloud_tpu", workerCount=3)
    yield "cloud_tpu in every role", every_role
    for kind, tpu in TPU_TYPES.items():
        region = TPU_REGIONS.get(tpu.generation, "europe-west4")
        for count in tpu.sizes:
            document = custom(
                workerType="cloud_tpu", workerCount=1, workerConfig=gpus(kind, count), region=region
            )
            yield f"cloud_tpu as {kind} with {count}", document


def _tpu_machine_types() -> Iterator[Request]:
    for machine, vm in TPU_VMS.items():
        region = TPU_REGIONS[vm.generation]
        yield f"masterType {machine}", custom(masterType=machine, region=region)
        yield f"machineType {machine}", vertex(region, machineType=machine)
        for number, shape in GENERATIONS[vm.generation].topologies.items():
            yield (
                f"machineType {machine} as {shape}",
                vertex(region, machineType=machine, tpuTopology=shape),
            )
            kind = next(
                name
                for name, tpu in TPU_TYPES.items()
                if tpu.generation == vm.generation and not name.endswith("_POD")
            )
            config = gpus(kind, number)
            yield (
                f"masterType {machine} as {number} x {kind}",
                custom(masterType=machine, masterConfig=config, region=region),
            )
    vertex_pod = vertex(
        "europe-west4", machineType="cloud-tpu", acceleratorType="TPU_V3_POD", acceleratorCount=32
    )
    yield "machineType cloud-tpu as 32 x TPU_V3_POD", vertex_pod
    for kind in ("TPU_V2", "TPU_V3"):
        for count in VERTEX_TPU_TYPES[kind].sizes:
            document = vertex(
                "europe-west4",
                machineType="cloud-tpu",
                acceleratorType=kind,
                acceleratorCount=count,
            )
            yield f"machineType cloud-tpu as {count} x {kind}", document
    for shape in ("4x4x12", "4x12x12", "12x4x4", "4x4x2"):
        yield (
            f"machineType ct5p-hightpu-4t as {shape}",
            vertex("us-east5", machineType="ct5p-hightpu-4t", tpuTopology=shape),
        )
