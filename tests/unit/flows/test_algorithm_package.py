"""A job of a built-in algorithm names the installation's package with its hash."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.world import World
from trainmaster.core.model.package_uri import with_hash
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster_local.memory.objects import MemoryObjects

HASH = "ab" * 32
PACKAGE = f"gs://stage/algorithms/{HASH}/trainmaster_algorithms-1.0-py3-none-any.whl"
JOB = {
    "jobId": "trees_1",
    "trainingInput": {
        "region": "us-central1",
        "jobDir": "gs://bucket/trees",
        "masterConfig": {"imageUri": "gcr.io/cloud-ml-algos/boosted_trees:latest"},
        "args": ["--training_data_path=gs://bucket/t.csv", "--preprocess"],
    },
}


@pytest.fixture
def world() -> World:
    objects = MemoryObjects()
    objects.write("gs://bucket/t.csv", b"", content_type="text/csv")
    return World(objects=objects, algorithms=PACKAGE)


def test_accepted_job_names_the_package_and_its_hash(world: World) -> None:
    submit.handle(json.dumps(JOB).encode(), "gs://b/jobs/trees.yaml#1", world.deps)

    loaded = world.store.load("trees_1")
    assert loaded is not None
    plan = loaded.state.job.plan
    assert plan.program.package_uris == (with_hash(PACKAGE, HASH),)
    assert [note.field for note in plan.origin.substitutions] == [
        "trainingInput.masterConfig.imageUri"
    ]


def test_installation_without_the_package_rejects_the_job(world: World) -> None:
    with pytest.raises(PermanentError):
        submit.handle(
            json.dumps(JOB).encode(), "gs://b/jobs/trees.yaml#1", replace(world.deps, algorithms="")
        )

    (rejection,) = world.store.rejections()
    assert "this installation has no package of built-in algorithms" in str(rejection.problems)
