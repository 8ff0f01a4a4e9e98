"""Which jobs find the buckets below /gcs, and what an installation answers that cannot give it to
them.

In that folder, programs read and write objects of Cloud Storage as files. The program gcsfuse makes
it, whose address is a setting of the installation. Custom jobs of Vertex AI expect the folder;
training jobs of AI Platform never had it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.world import World
from trainmaster.core.model.plan import GcsFolder
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob

GCSFUSE = f"gs://stage/tools/{'ab' * 32}/gcsfuse"
TRAINER = {"imageUri": "gcr.io/p/trainer:1"}


def custom_job(**changes: Any) -> dict[str, Any]:
    """Return a custom job of Vertex AI. `changes`: fields of its container, or `gcs` and `env`."""
    extension: dict[str, Any] = {
        "region": "us-central1",
        **{key: changes.pop(key) for key in ("gcs", "env") if key in changes},
    }
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {**TRAINER, **changes},
    }
    return {
        "displayName": "job_1",
        "jobSpec": {"workerPoolSpecs": [pool]},
        "trainmaster": extension,
    }


def training_input(**changes: Any) -> dict[str, Any]:
    """Return a job in AI Platform's format. `changes`: fields of its input, or `gcs` and `env`."""
    extension = {key: changes.pop(key) for key in ("gcs", "env") if key in changes}
    body = {"region": "us-central1", "masterConfig": TRAINER, **changes}
    return {"jobId": "job_1", "trainingInput": body, "trainmaster": extension}


@pytest.mark.parametrize(
    ("document", "folder"),
    [
        (custom_job(), GcsFolder.IF_POSSIBLE),
        (custom_job(gcs=False), GcsFolder.OFF),
        (custom_job(gcs=True), GcsFolder.REQUIRED),
        (custom_job(args=["--data=/gcs/bucket/rows.csv"]), GcsFolder.REQUIRED),
        (custom_job(command=["sh", "-c", "ls /gcs/bucket"]), GcsFolder.REQUIRED),
        (custom_job(env={"DATA": "/gcs/bucket"}), GcsFolder.REQUIRED),
        (training_input(), GcsFolder.OFF),
        (training_input(gcs=True), GcsFolder.REQUIRED),
        (training_input(args=["/gcs/bucket/rows.csv"]), GcsFolder.REQUIRED),
    ],
)
def test_custom_job_and_job_that_names_the_folder_get_it(
    document: dict[str, Any], folder: GcsFolder
) -> None:
    assert accept(document, default_job_id=None).plan.access.gcs is folder


@pytest.mark.parametrize(
    "document",
    [custom_job(gcs=False, args=["/gcs/b/x"]), training_input(gcs=False, args=["/gcs/b"])],
)
def test_job_that_names_the_folder_and_declines_it_is_refused_with_the_text(
    document: dict[str, Any],
) -> None:
    with pytest.raises(InvalidJob, match=r"trainmaster\.gcs.*/gcs/b"):
        accept(document, default_job_id=None)


@pytest.mark.parametrize(("gcsfuse", "in_containers"), [("", True), (GCSFUSE, False)])
def test_installation_without_it_refuses_who_needs_it_and_notes_it_for_others(
    gcsfuse: str, in_containers: bool
) -> None:
    world = World()
    deps = replace(world.deps, gcsfuse=gcsfuse, gcs_in_containers=in_containers)
    with pytest.raises(PermanentError):
        submit.handle(
            json.dumps({**custom_job(gcs=True), "displayName": "job_2"}).encode(), "source-2", deps
        )
    (rejection,) = world.store.rejections()
    assert "trainmaster.gcs" in str(rejection.problems)

    submit.handle(json.dumps(custom_job()).encode(), "source-1", deps)
    loaded = world.store.load("job_1")
    assert loaded is not None
    plan = loaded.state.job.plan
    assert plan.access.gcs is GcsFolder.OFF
    assert [note.field for note in plan.origin.substitutions] == ["trainmaster.gcs"]


def test_installation_with_it_keeps_the_plan() -> None:
    world = World()
    submit.handle(
        json.dumps(custom_job()).encode(), "source-1", replace(world.deps, gcsfuse=GCSFUSE)
    )
    loaded = world.store.load("job_1")
    assert loaded is not None
    assert (loaded.state.job.plan.access.gcs, loaded.state.job.plan.origin.substitutions) == (
        GcsFolder.IF_POSSIBLE,
        (),
    )
