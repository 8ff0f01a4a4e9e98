"""A machine type that no job can have is answered with the nearest one in shape, which works."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import yaml

from tests.unit.jobspec.bodies import custom
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob, Problem


def problem_of(document: Mapping[str, object]) -> Problem:
    with pytest.raises(InvalidJob) as caught:
        accept(document, default_job_id=None)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("c4a-standard-4", "c4-standard-4"),
        ("c4a-standard-72", "n1-standard-96"),
        ("n4a-highmem-64", "n1-highmem-64"),
        ("t2a-standard-4", "t2d-standard-4"),
        ("a4x-highgpu-4g", "a2-highgpu-4g"),
        ("a2-highgpu-3g", "a2-highgpu-4g"),
        ("a3-highgpu-16g", "a3-highgpu-8g"),
        ("g4-standard-24", "g4-standard-48"),
        ("n1-standard-5", "n1-standard-8"),
        ("n1-standard-128", "n1-standard-96"),
        ("n1-standrad-4", "n1-standard-4"),
        ("N1-STANDARD-4", "n1-standard-4"),
        ("c3-custom-8-16384", "n1-standard-8"),
        ("standard-gpu", "standard_gpu"),
        ("tpu7x-standard-4t", "ct6e-standard-4t"),
        ("p4d.24xlarge", "n1-standard-4"),
    ],
)
def test_machine_that_no_job_can_have_names_the_nearest_in_shape(name: str, nearest: str) -> None:
    problem = problem_of(custom(masterType=name))

    assert problem.example == f'masterType: "{nearest}"'


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("A100:8", {"masterType": "a2-highgpu-8g"}),
        ("8xA100", {"masterType": "a2-highgpu-8g"}),
        ("A100:3", {"masterType": "a2-highgpu-4g"}),
        ("a100", {"masterType": "a2-highgpu-1g"}),
        ("nvidia-l4", {"masterType": "g2-standard-4"}),
        ("A100-80GB:2", {"masterType": "a2-ultragpu-2g"}),
        (
            "nvidia-tesla-t4",
            {
                "masterType": "n1-standard-4",
                "masterConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 1}},
            },
        ),
        (
            "v5e-8",
            {
                "masterType": "cloud_tpu",
                "masterConfig": {"acceleratorConfig": {"type": "TPU_V5_LITEPOD", "count": 8}},
            },
        ),
    ],
)
def test_accelerator_as_machine_type_names_the_machine_that_has_it(
    name: str, example: dict[str, object]
) -> None:
    problem = problem_of(custom(masterType=name))

    assert "is an accelerator, and no machine type" in problem.problem
    assert yaml.safe_load(f"{{{problem.example}}}") == example
    region = "us-west4"  # has each of them
    accepted = accept(custom(region=region, **example), default_job_id=None)
    assert accepted.plan.groups[0].count == 1


def test_gpu_that_is_not_sold_on_demand_is_named_with_how_it_is_sold() -> None:
    problem = problem_of(custom(masterType="H100:1"))

    assert problem.example == 'masterType: "a3-highgpu-1g"'
    assert re.search(r"a3-highgpu-1g has 1 x NVIDIA_H100_80GB, and is sold .*only", problem.problem)


def test_accelerator_as_machine_type_of_vertex_is_answered_in_its_format() -> None:
    pool = {
        "machineSpec": {"machineType": "T4:2"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"},
    }
    document = {
        "displayName": "d",
        "jobSpec": {"workerPoolSpecs": [pool]},
        "trainmaster": {"region": "us-central1"},
    }

    problem = problem_of(document)

    assert problem.example == (
        'machineType: "n1-standard-4", acceleratorType: "NVIDIA_TESLA_T4", acceleratorCount: 2'
    )
