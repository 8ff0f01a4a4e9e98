"""The resources that a job names are checked at submission, before any VM is paid for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.jobs import a_spec
from tests.support.memory_resources import MemoryResources
from tests.support.world import World
from trainmaster.core.intake.bucket_places import BucketPlace
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.intake.named_resources import AllowedResources
from trainmaster.core.intake.registry_images import parse_registry_image
from trainmaster.core.model.origin import Substitution
from trainmaster.errors import PermanentError
from trainmaster.flows import upload
from trainmaster.messaging import topics
from trainmaster_local.memory.objects import MemoryObjects

IMAGE = "us-docker.pkg.dev/my-project/training/trainer:1"
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
SECRET = "projects/my-project/secrets/key/versions/3"


@pytest.fixture
def objects() -> MemoryObjects:
    objects = MemoryObjects()
    objects.write("gs://bucket/trainer-0.1.tar.gz", b"code", content_type="application/gzip")
    return objects


@pytest.fixture
def resources() -> MemoryResources:
    return MemoryResources()


@pytest.fixture
def world(objects: MemoryObjects, resources: MemoryResources) -> World:
    allowed = AllowedResources("my-project", ("service_account=*", "secret=*"))
    return World(objects=objects, resources=resources, allowed=allowed)


def container_job(**training_input: object) -> dict[str, object]:
    spec: dict[str, Any] = a_spec(masterConfig={"imageUri": IMAGE}, **training_input)
    for field in (
        "packageUris",
        "pythonModule",
        "args",
        "runtimeVersion",
        "workerType",
        "workerCount",
    ):
        del spec["trainingInput"][field]
    return spec


def rejections(world: World) -> list[str]:
    return [problem for rejection in world.store.rejections() for problem in rejection.problems]


def notes(world: World) -> tuple[Substitution, ...]:
    return tuple(
        note for note in world.job.plan.origin.substitutions if note.requested == note.replacement
    )


def test_job_whose_resources_exist_has_no_note(world: World) -> None:
    world.submit(a_spec(serviceAccount=ACCOUNT))
    assert rejections(world) == []
    assert notes(world) == ()


def test_missing_bucket_of_the_job_directory_is_refused_by_its_field(
    world: World, objects: MemoryObjects
) -> None:
    objects.missing_buckets.add("models")
    with pytest.raises(PermanentError):
        world.submit(a_spec(jobDir="gs://models/digits"))
    assert rejections(world) == [
        "Field: training_input.job_dir Error: names the bucket models, which does not exist",
    ]
    assert world.store.load("digits_1") is None


def test_missing_package_and_bucket_are_refused_together(
    world: World, objects: MemoryObjects
) -> None:
    objects.missing_buckets.add("models")
    with pytest.raises(PermanentError):
        world.submit(
            a_spec(jobDir="gs://models/digits", packageUris=["gs://bucket/other-0.1.tar.gz"])
        )
    assert [problem.partition(" Error")[0] for problem in rejections(world)] == [
        "Field: training_input.package_uris[0]",
        "Field: training_input.job_dir",
    ]


@pytest.mark.parametrize(
    ("missing", "field"),
    [
        (ACCOUNT, "training_input.service_account"),
        (SECRET, "trainmaster.secrets.API_KEY"),
        (
            "projects/my-project/locations/us/repositories/training/packages/trainer/tags/1",
            "training_input.master_config.image_uri",
        ),
    ],
)
def test_missing_resource_is_refused_by_its_field(
    world: World, resources: MemoryResources, missing: str, field: str
) -> None:
    resources.missing.add(missing)
    job = container_job(serviceAccount=ACCOUNT) | {"trainmaster": {"secrets": {"API_KEY": SECRET}}}
    with pytest.raises(PermanentError):
        world.submit(job)
    (problem,) = rejections(world)
    assert problem.startswith(f"Field: {field} Error: names ")
    assert "does not exist" in problem


def test_value_of_a_secret_in_place_of_its_name_is_printed_nowhere(
    world: World, resources: MemoryResources
) -> None:
    value = "abcd1234secretvalue"
    job = a_spec() | {"trainmaster": {"secrets": {"API_KEY": value}}}
    resources.hidden.add(value)
    world.submit(job)
    (note,) = notes(world)
    assert note.field == "trainmaster.secrets.API_KEY"
    assert value not in note.text
    resources.hidden.clear()
    resources.missing.add(value)
    with pytest.raises(PermanentError) as refused:
        world.submit({**job, "jobId": "digits_2"})
    (problem,) = rejections(world)
    assert "names a secret version that does not exist" in problem
    assert value not in f"{problem} {refused.value}"


def test_resource_that_may_not_be_seen_is_noted_and_not_refused(
    world: World, resources: MemoryResources
) -> None:
    resources.hidden.add(ACCOUNT)
    world.submit(a_spec(serviceAccount=ACCOUNT))
    (note,) = notes(world)
    assert (note.field, note.requested) == ("trainingInput.serviceAccount", ACCOUNT)
    assert "may not see it" in note.reason


def test_bucket_that_may_not_be_seen_is_noted_and_not_refused(
    world: World, objects: MemoryObjects
) -> None:
    objects.forbidden_buckets.add("theirs")
    world.submit(a_spec(jobDir="gs://theirs/digits"))
    (note,) = notes(world)
    assert note.field == "trainingInput.jobDir"


def test_bucket_in_another_region_is_noted(world: World, objects: MemoryObjects) -> None:
    objects.places["bucket"] = BucketPlace("EUROPE-WEST4")
    world.submit()
    (note,) = notes(world)
    assert note.field == "trainingInput.jobDir"
    assert "EUROPE-WEST4" in note.reason
    assert "us-central1" in note.reason


def test_repeated_submission_is_accepted_after_its_bucket_was_deleted(
    world: World, objects: MemoryObjects
) -> None:
    world.submit()
    objects.missing_buckets.add("bucket")
    world.submit()
    assert rejections(world) == []


def test_missing_bucket_of_an_uploaded_file_is_written_next_to_it(
    world: World, objects: MemoryObjects
) -> None:
    objects.missing_buckets.add("models")
    uri = "gs://bucket/jobs/digits.json"
    job = a_spec(jobDir="gs://models/digits")
    generation = objects.write(uri, json.dumps(job).encode(), content_type="application/json")
    assert (
        upload.handle(UploadedObject("bucket", "jobs/digits.json", generation), objects, world.deps)
        is None
    )
    report = objects.read(f"{uri}.error.json", max_bytes=1 << 20)
    assert report is not None
    (problem,) = json.loads(report)["problems"]
    assert problem["field"] == "trainingInput.jobDir"
    assert not [message for message in world.bus.drain() if message.topic == topics.SUBMIT]


@pytest.mark.parametrize(
    ("place", "region", "serves"),
    [
        (BucketPlace("US-CENTRAL1"), "us-central1", True),
        (BucketPlace("US-CENTRAL1"), "us-east1", False),
        (BucketPlace("NAM4"), "us-east1", True),
        (BucketPlace("NAM4"), "us-west1", False),
        (BucketPlace("US", ("US-EAST1", "US-WEST1")), "us-west1", True),
        (BucketPlace("US", ("US-EAST1", "US-WEST1")), "us-central1", False),
        (BucketPlace("US"), "us-west4", True),
        (BucketPlace("EU"), "europe-west4", True),
        (BucketPlace("EU"), "europe-west2", False),
        (BucketPlace("ASIA"), "us-central1", False),
    ],
)
def test_bucket_serves_the_regions_of_its_location(
    place: BucketPlace, region: str, serves: bool
) -> None:
    assert place.serves(region) is serves


@pytest.mark.parametrize(
    ("image", "resource"),
    [
        (IMAGE, "projects/my-project/locations/us/repositories/training/packages/trainer/tags/1"),
        (
            "europe-west4-docker.pkg.dev/p/r/team/trainer",
            "projects/p/locations/europe-west4/repositories/r/packages/team%2Ftrainer/tags/latest",
        ),
        (
            f"us-docker.pkg.dev/p/r/t:1@sha256:{'0' * 64}",
            f"projects/p/locations/us/repositories/r/packages/t/versions/sha256:{'0' * 64}",
        ),
        ("gcr.io/p/t:2", "projects/p/locations/us/repositories/gcr.io/packages/t/tags/2"),
        (
            "eu.gcr.io/p/a/t",
            "projects/p/locations/europe/repositories/eu.gcr.io/packages/a%2Ft/tags/latest",
        ),
        ("docker.io/library/python:3.12", None),
        ("python", None),
        ("localhost:5000/trainer:1", None),
    ],
)
def test_image_in_googles_registries_has_a_resource_name(image: str, resource: str | None) -> None:
    parsed = parse_registry_image(image)
    assert (parsed.resource if parsed else None) == resource
