"""A manifest of Kubeflow that is uploaded or published becomes a job, which shows what was
substituted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.world import World
from tests.unit.flows.test_upload import AT_THREE, Bucket
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.presentation.job_view import job_view

FOLDER = Path(__file__).parents[1] / "jobspec" / "manifests"
TRAINJOB = (FOLDER / "trainjob-with-runtime.yaml").read_bytes()
MULTISLICE = (FOLDER / "jobset-v6e-multislice.yaml").read_bytes()


def without_secret(manifest: bytes) -> bytes:
    """Return the manifest without its secret, which an unknown submitter may not name."""
    documents = list(yaml.safe_load_all(manifest))
    documents[1]["metadata"]["annotations"] = {"trainmaster": "region: europe-west4"}
    documents[1]["spec"]["trainer"]["env"] = []
    return yaml.safe_dump_all(documents).encode()


def test_uploaded_manifest_becomes_a_job_with_its_substitutions() -> None:
    bucket = Bucket()
    generation = bucket.put("jobs/train.yaml", without_secret(TRAINJOB))
    assert bucket.notify("jobs/train.yaml", generation) == "jax_digits"
    assert bucket.notify("jobs/train.yaml", generation) == "jax_digits", (
        "the same notification again"
    )
    bucket.world.job_id = "jax_digits"
    job = bucket.world.job
    assert (job.plan.where.region, job.plan.limits.max_running_s) == ("europe-west4", 3600)
    view = job_view(job, project="my-project")
    fields = {item["field"] for item in view["trainmaster"]["substitutions"]}
    assert {"spec.activeDeadlineSeconds", "spec.successPolicy"} <= fields


def test_generated_name_ends_in_the_time_of_the_upload() -> None:
    bucket = Bucket()
    for _ in range(2):
        generation = bucket.put("jobs/slices.yaml", MULTISLICE)
        assert bucket.notify("jobs/slices.yaml", generation, AT_THREE) in (
            "multislice_20261121_030000",
            None,
        )
    assert bucket.job_ids == ["multislice_20261121_030000"]


def test_problems_of_an_uploaded_manifest_name_its_own_fields() -> None:
    bucket = Bucket()
    manifest = (FOLDER / "refused" / "elastic-echo.yaml").read_bytes()
    assert bucket.notify("jobs/echo.yaml", bucket.put("jobs/echo.yaml", manifest)) is None
    assert [item["field"] for item in bucket.problems("gs://bucket/jobs/echo.yaml")] == [
        "spec.elasticPolicy"
    ]


def test_published_manifest_is_submitted_and_its_secret_needs_a_known_submitter() -> None:
    world = World()
    items = {"apiVersion": "v1", "kind": "List", "items": list(yaml.safe_load_all(TRAINJOB))}
    with pytest.raises(PermanentError, match="names a secret"):
        submit.handle(json.dumps(items).encode(), None, world.deps)
    items["items"] = list(yaml.safe_load_all(without_secret(TRAINJOB)))
    submit.handle(json.dumps(items).encode(), None, world.deps)
    world.job_id = "jax_digits"
    assert world.job.plan.groups[0].machine_type == "g2-standard-24"
