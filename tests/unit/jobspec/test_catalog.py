"""The tables of the catalog: each row refers to something that exists, so that every substitution
is possible.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainmaster.api import enum_numbers
from trainmaster.core.machines.machine_types import find_machine_type
from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    GPU_NAMES,
    LEGACY_MACHINES,
    N1_MACHINES,
    RETIRED_GPUS,
    TPU_MACHINES,
    valid_gpu_counts,
)
from trainmaster.jobspec.catalog.regions import REGION_ZONES
from trainmaster.jobspec.catalog.runtimes import (
    CONTAINER_HOST,
    PAST_RUNTIMES,
    RUNTIME_DEFAULT,
    RUNTIMES,
    Runtime,
)
from trainmaster.jobspec.catalog.scale_tiers import TIERS
from trainmaster.jobspec.formats.ai_platform import AiPlatformJob, TrainingInput
from trainmaster.jobspec.formats.base_model import WireModel, nested_models
from trainmaster.jobspec.problems import FieldPath
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT


@pytest.mark.parametrize("gpu", RETIRED_GPUS)
@pytest.mark.parametrize("machine", N1_MACHINES)
def test_replacement_of_retired_gpu_fits_the_same_machines(gpu: str, machine: str) -> None:
    retired = RETIRED_GPUS[gpu]
    for count in valid_gpu_counts(gpu, machine):
        assert retired.counts[count] in valid_gpu_counts(retired.replaced_by, machine)


@pytest.mark.parametrize("name", LEGACY_MACHINES)
def test_legacy_machine_is_a_valid_compute_machine(name: str) -> None:
    machine = LEGACY_MACHINES[name]

    assert find_machine_type(machine.machine_type)
    if machine.gpu is not None:
        assert machine.gpu.count in valid_gpu_counts(machine.gpu.type, machine.machine_type)


def test_every_gpu_has_a_number_in_the_enum_of_vertex_ai() -> None:
    """Google's generated clients send numbers."""
    numbers = enum_numbers.NAMES["acceleratorType"].values()
    assert set(GPU_NAMES) <= set(numbers), (
        "compare core/machines/gpus.py with accelerator_type.proto"
    )


def test_every_gpu_has_a_compute_engine_name() -> None:
    assert set(GPU_COUNTS) <= set(GPU_NAMES)
    assert {gpu.type for gpu in BUILT_IN_GPUS.values()} <= set(GPU_NAMES)
    for name in GPU_NAMES.values():
        assert re.fullmatch(r"nvidia-[a-z0-9-]+", name)


@pytest.mark.parametrize(
    "machine",
    ["n2-standard-8", "c4-highmem-16", "e2-medium", "c3-standard-4-lssd", "n2-custom-6-3072"],
)
def test_current_machine_families_are_known(machine: str) -> None:
    assert find_machine_type(machine)


@pytest.mark.parametrize(
    "machine", ["standard", "n1-standard-5", "c4a-standard-4", "g2-standard-5", "n2-standard", ""]
)
def test_other_names_are_not_compute_machines(machine: str) -> None:
    assert not find_machine_type(machine)


def test_past_runtimes_are_replaced_by_current_ones() -> None:
    assert RUNTIME_DEFAULT in RUNTIMES
    assert {past.replaced_by for past in PAST_RUNTIMES.values()} <= set(RUNTIMES)
    for runtime in RUNTIMES.values():
        assert re.fullmatch(r"projects/[a-z-]+/global/images/family/[a-z0-9-]+", runtime.image)


def has_local_environment(runtime: Runtime) -> bool:
    return Path(f"requirements/runtime-{runtime.name}.in").exists()


def test_local_environments_have_different_images() -> None:
    """The local stack chooses the Python environment of a VM by its image."""
    images = {
        runtime.name: runtime.image
        for runtime in RUNTIMES.values()
        if has_local_environment(runtime)
    }
    assert images
    assert len(set(images.values())) == len(images)


# Source: the system Python of each distribution; Google's images have no other one.
PYTHONS = {"ubuntu-2404": "3.12", "debian-12": "3.11"}


@pytest.mark.parametrize(
    "runtime", [*RUNTIMES.values(), CONTAINER_HOST], ids=lambda runtime: runtime.name
)
def test_python_of_runtime_is_that_of_its_image(runtime: Runtime) -> None:
    assert [
        python for distribution, python in PYTHONS.items() if distribution in runtime.image
    ] == [runtime.python]


@pytest.mark.parametrize(
    "version", [version for version, runtime in RUNTIMES.items() if runtime.name == "pytorch"]
)
def test_pytorch_runtime_names_all_packages_that_are_built_for_each_other(version: str) -> None:
    names = {requirement.split("==")[0] for requirement in RUNTIMES[version].packages}

    assert {"torch", "torchvision", "torchaudio"} <= names


@pytest.mark.parametrize(
    "version", [version for version, runtime in RUNTIMES.items() if runtime.gpu_packages]
)
def test_packages_for_gpus_have_the_same_versions(version: str) -> None:
    runtime = RUNTIMES[version]

    assert {re.sub(r"\[.*\]", "", requirement) for requirement in runtime.gpu_packages} == set(
        runtime.packages
    )


def test_scale_tiers_have_known_machines() -> None:
    for tier in TIERS.values():
        for role in (tier.master, tier.worker, tier.parameter_server):
            assert (
                role is None
                or find_machine_type(role.machine_type)
                or role.machine_type in TPU_MACHINES
            )


def test_regions_include_all_of_the_old_service() -> None:
    old = (
        "asia-east1 asia-northeast1 asia-southeast1 australia-southeast1 europe-west1 europe-west2"
        " europe-west3"
    )
    old += (
        " europe-west4 northamerica-northeast1 us-central1 us-east1 us-east4 us-west1 us-west2"
        " us-west3"
    )
    old += " europe-north1 europe-west6 asia-east2 asia-south1 asia-northeast2 asia-northeast3"

    assert set(old.split()) <= set(REGION_ZONES)
    for region, zones in REGION_ZONES.items():
        assert all(zone.startswith(f"{region}-") for zone in zones)


def test_every_field_has_an_example() -> None:
    def check(model: type[WireModel], loc: FieldPath) -> None:
        for name, child in nested_models(model).items():
            assert example_at((*loc, name)) is not None, (*loc, name)
            if child is not None:
                check(child, (*loc, name))

    check(AiPlatformJob, ())


def test_training_input_has_all_fields_of_the_api() -> None:
    """Source: the discovery document of `ml` v1, schema GoogleCloudMlV1__TrainingInput."""
    names = (
        "scaleTier masterType workerType parameterServerType evaluatorType workerCount"
        " parameterServerCount"
    )
    names += (
        " evaluatorCount masterConfig workerConfig parameterServerConfig evaluatorConfig"
        " packageUris pythonModule"
    )
    names += (
        " args hyperparameters region jobDir runtimeVersion pythonVersion encryptionConfig"
        " scheduling network"
    )
    names += " serviceAccount useChiefInTfConfig enableWebAccess"

    assert set(nested_models(TrainingInput)) == set(names.split())
    assert nested_models(AiPlatformJob)[TRAINING_INPUT] is TrainingInput
