"""A job runs the packages that were stored when it was accepted, whatever is stored under their
names later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
import yaml

from tests.support.console_site import Site
from tests.support.jobs import a_spec, a_tuning_spec
from tests.support.memory_resources import MemoryResources
from tests.support.world import World
from trainmaster.cli.schedule import with_stored_packages
from trainmaster.console.pages.submission import new_form
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.model.task_group import Container
from trainmaster.errors import PermanentError
from trainmaster.flows import submit, upload
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.messaging import topics
from trainmaster.settings import settings
from trainmaster_local.memory.objects import MemoryObjects

DIGEST = "sha256:" + "a" * 64

TRAINER = "gs://bucket/trainer-0.1.tar.gz"
IMAGE = "us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest"
HELPER = "gs://bucket/helper-0.1.tar.gz"


@dataclass
class Installation:
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    world: World = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(objects=self.objects)

    @property
    def deps(self) -> CreationDeps:
        return self.world.deps

    def put(self, uri: str, content: bytes = b"code") -> int:
        return self.objects.write(uri, content, content_type="application/gzip")

    def submit(
        self,
        spec: dict[str, object],
        source: str = "gs://b/jobs/digits.yaml#1",
        job_id: str = "digits_1",
    ) -> None:
        submit.handle(json.dumps({"jobId": job_id, **spec}).encode(), source, self.deps)

    @property
    def package_uris(self) -> tuple[str, ...]:
        loaded = self.world.store.load("digits_1")
        assert loaded is not None
        return loaded.state.job.plan.program.package_uris

    @property
    def rejections(self) -> list[str]:
        return [
            problem for rejection in self.world.store.rejections() for problem in rejection.problems
        ]


@pytest.fixture
def installation() -> Installation:
    return Installation()


def test_accepted_job_names_the_generation_of_each_package(installation: Installation) -> None:
    trainer, helper = installation.put(TRAINER), installation.put(HELPER)
    installation.submit(a_spec(packageUris=[HELPER, TRAINER]))
    assert installation.package_uris == (f"{HELPER}#{helper}", f"{TRAINER}#{trainer}")


def test_package_that_is_overwritten_later_does_not_change_the_job(
    installation: Installation,
) -> None:
    generation = installation.put(TRAINER)
    installation.submit(a_spec())
    installation.put(TRAINER, b"attack")
    installation.submit(a_spec())  # redelivered
    assert installation.package_uris == (f"{TRAINER}#{generation}",)


def test_repeated_submission_whose_package_is_gone_is_not_rejected(
    installation: Installation,
) -> None:
    installation.put(TRAINER)
    installation.submit(a_spec())
    installation.objects.delete(TRAINER)
    installation.submit(a_spec())
    assert installation.rejections == []


def test_spec_is_stored_as_it_was_submitted(installation: Installation) -> None:
    installation.put(TRAINER)
    installation.submit(a_spec())
    loaded = installation.world.store.load("digits_1")
    assert loaded is not None
    assert json.loads(loaded.state.job.spec_json)["trainingInput"]["packageUris"] == [TRAINER]


def test_packages_of_every_role_are_pinned(installation: Installation) -> None:
    generations = {uri: installation.put(uri) for uri in (TRAINER, HELPER)}

    def pool(uri: str) -> dict[str, object]:
        package = {"executorImageUri": IMAGE, "packageUris": [uri], "pythonModule": "trainer.task"}
        return {
            "machineSpec": {"machineType": "n1-standard-4"},
            "replicaCount": 1,
            "pythonPackageSpec": package,
        }

    pools = {"workerPoolSpecs": [pool(TRAINER), pool(HELPER)]}
    installation.submit(
        {"displayName": "digits", "jobSpec": pools, "trainmaster": {"region": "us-central1"}}
    )
    loaded = installation.world.store.load("digits_1")
    assert loaded is not None
    plan = loaded.state.job.plan
    assert {
        uri for group in plan.groups for uri in plan.program_of(group.task_type).package_uris
    } == {f"{uri}#{generation}" for uri, generation in generations.items()}


def test_trials_run_the_packages_of_their_tuning_job(installation: Installation) -> None:
    generation = installation.put(TRAINER)
    installation.submit(a_tuning_spec())
    assert installation.package_uris == (f"{TRAINER}#{generation}",)


def test_generation_in_the_job_file_is_used_without_a_look_up(installation: Installation) -> None:
    installation.submit(a_spec(packageUris=[f"{TRAINER}#1732240000000000"]))
    assert installation.package_uris == (f"{TRAINER}#1732240000000000",)


def test_missing_package_is_rejected_by_its_field(installation: Installation) -> None:
    installation.put(TRAINER)
    with pytest.raises(PermanentError):
        installation.submit(a_spec(packageUris=[TRAINER, HELPER]))
    assert installation.rejections == [
        f"Field: training_input.package_uris[1] Error: names {HELPER}, which does not exist"
    ]
    assert installation.world.store.load("digits_1") is None


def test_package_that_may_not_be_read_is_rejected_with_the_role_that_is_missing(
    installation: Installation,
) -> None:
    installation.objects.forbidden_buckets.add("bucket")
    with pytest.raises(PermanentError):
        installation.submit(a_spec())
    (problem,) = installation.rejections
    assert problem.startswith(
        f"Field: training_input.package_uris[0] Error: names {TRAINER}, which this installation"
    )
    assert "worker_read_buckets" in problem
    assert "roles/storage.objectViewer" in problem


def test_missing_package_of_a_job_file_is_written_next_to_it(installation: Installation) -> None:
    uri = "gs://bucket/jobs/digits.json"
    generation = installation.objects.write(
        uri, json.dumps(a_spec()).encode(), content_type="application/json"
    )
    assert (
        upload.handle(
            UploadedObject("bucket", "jobs/digits.json", generation),
            installation.objects,
            installation.deps,
        )
        is None
    )
    report = installation.objects.read(f"{uri}.error.json", max_bytes=1 << 20)
    assert report is not None
    (problem,) = json.loads(report)["problems"]
    assert problem["field"] == "trainingInput.packageUris[0]"
    assert TRAINER in problem["problem"]
    assert not [
        message for message in installation.world.bus.drain() if message.topic == topics.SUBMIT
    ]


def test_form_of_a_second_job_names_the_packages_that_the_first_one_ran(
    installation: Installation,
) -> None:
    """A program of another job has replaced the package since."""
    accepted = installation.put(TRAINER)
    installation.submit(a_spec(packageUris=[TRAINER], args=[TRAINER]))
    installation.put(TRAINER, b"of an attacker")
    document = yaml.safe_load(
        new_form(Site(installation.world).console(), installation.world.job).text
    )
    assert document["trainingInput"]["packageUris"] == [f"{TRAINER}#{accepted}"]
    assert document["trainingInput"]["args"] == [TRAINER]
    installation.submit(document, "again", "digits_2")
    again = installation.world.store.load("digits_2")
    assert again is not None
    assert again.state.job.plan.program.package_uris == (f"{TRAINER}#{accepted}",)


def test_job_runs_the_image_that_its_tag_named_when_it_was_accepted(
    installation: Installation,
) -> None:
    image = "us-docker.pkg.dev/my-project/training/trainer:1"
    installation.world.resources = resources = MemoryResources()
    resources.digests[
        "projects/my-project/locations/us/repositories/training/packages/trainer/tags/1"
    ] = DIGEST
    spec = a_spec(masterConfig={"imageUri": image}, workerConfig={"imageUri": image})
    for name in ("packageUris", "pythonModule", "runtimeVersion", "pythonVersion"):
        spec["trainingInput"].pop(name, None)  # type: ignore[attr-defined]
    installation.submit(spec)
    job = installation.world.job
    assert job.plan.program.container == Container(f"{image}@{DIGEST}")
    form = yaml.safe_load(new_form(Site(installation.world).console(), job).text)["trainingInput"]
    assert (
        form["masterConfig"]["imageUri"] == form["workerConfig"]["imageUri"] == f"{image}@{DIGEST}"
    )
    installation.submit({"trainingInput": form}, "again", "digits_2")


def test_schedule_names_the_packages_that_were_stored_at_its_creation(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of other jobs may replace a package outside the folder `packages` before the next
    run.
    """
    monkeypatch.setenv("TRAINMASTER_BUCKET", "bucket")
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    settings.cache_clear()
    monkeypatch.setattr("trainmaster.wiring.objects.objects", lambda: installation.objects)
    own = "gs://bucket/packages/helper-0.1.tar.gz"
    accepted = installation.put(TRAINER)
    installation.put(own)
    stored = with_stored_packages({"jobId": "nightly_{time}", **a_spec(packageUris=[TRAINER, own])})
    settings.cache_clear()
    assert stored["trainingInput"]["packageUris"] == [f"{TRAINER}#{accepted}", own]  # type: ignore[index]
    with pytest.raises(PermanentError, match="--follow-packages"):
        with_stored_packages({"jobId": "nightly_{time}", **a_spec(packageUris=[HELPER])})
