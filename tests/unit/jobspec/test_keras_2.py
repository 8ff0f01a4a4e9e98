"""A job for a runtime that had Keras 2 keeps it, and its description names the substitution."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.jobspec.bodies import job
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Variable
from trainmaster.jobspec.accept import accept

NAME: Final = "TF_USE_LEGACY_KERAS"
KEPT: Final = [Variable(NAME, "1")]


def keras_of(plan: Plan) -> tuple[list[Variable], list[str]]:
    """Return the variable in the program, and the fields of its substitutions."""
    variables = [variable for variable in plan.program.environment if variable.name == NAME]
    return variables, [item.field for item in plan.origin.substitutions if NAME in item.replacement]


def vertex(image: str, **env: str) -> dict[str, Any]:
    package = {
        "executorImageUri": image,
        "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "pythonPackageSpec": package,
    }
    return {
        "displayName": "a",
        "jobSpec": {"workerPoolSpecs": [pool]},
        "trainmaster": {"region": "us-central1"},
    }


@pytest.mark.parametrize(
    ("document", "variables", "field"),
    [
        (job(runtimeVersion="1.15"), KEPT, "trainingInput.runtimeVersion"),
        (job(runtimeVersion="2.11"), KEPT, "trainingInput.runtimeVersion"),
        (job(runtimeVersion="2.21"), [], None),
        (job(runtimeVersion="scikit-learn-1.9"), [], None),
        (
            {**job(runtimeVersion="2.11"), "trainmaster": {"env": {NAME: "0"}}},
            [Variable(NAME, "0")],
            None,
        ),
        (
            {**job(runtimeVersion="2.11"), "trainmaster": {"secrets": {NAME: "s"}}},
            [Variable(NAME, secret="s")],
            None,
        ),
        (
            vertex("us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-15.py310:latest"),
            KEPT,
            "executorImageUri",
        ),
        (vertex("gcr.io/cloud-aiplatform/training/tf2-cpu.2-8:latest"), KEPT, "executorImageUri"),
        (vertex("us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest"), [], None),
        (vertex("us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.1-13.py310:latest"), [], None),
        (
            vertex("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310", **{NAME: "0"}),
            [Variable(NAME, "0")],
            None,
        ),
    ],
)
def test_runtime_that_had_keras_2_keeps_it_unless_the_job_decides(
    document: dict[str, Any], variables: list[Variable], field: str | None
) -> None:
    found, fields = keras_of(accept(document, default_job_id="a").plan)
    assert found == variables
    assert [name.endswith(field or "") for name in fields] == [True] * (1 if field else 0)


def test_keras_2_is_kept_on_a_tpu_whose_runtime_has_it() -> None:
    plan = accept(
        job(runtimeVersion="2.11", scaleTier="BASIC_TPU", region="us-central1"), default_job_id=None
    ).plan
    assert keras_of(plan)[0] == KEPT
    assert {"tensorflow-tpu==2.20.*", "tf_keras==2.20.*"} <= set(plan.image.packages)
