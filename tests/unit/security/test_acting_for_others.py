"""A job whose submitter is unknown uses no account, network, image, reservation, key or secret of
its own choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest
from pydantic import ValidationError

from tests.support.jobs import CHIEF, START, a_spec
from tests.support.world import World
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.intake.named_resources import AllowedResources, NamedResource, ResourceKind
from trainmaster.core.model import vm_names
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import RejectedError, TemporaryError
from trainmaster.flows import submit, upload
from trainmaster.flows.job_creation import rejections
from trainmaster.jobspec.accept import accept
from trainmaster.messaging import topics
from trainmaster.settings import Settings
from trainmaster_local.memory.objects import MemoryObjects

ACCOUNT: Final = "finance-prod@my-project.iam.gserviceaccount.com"
NETWORK: Final = "projects/123/global/networks/prod"
KEY: Final = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
IMAGE: Final = "projects/p/global/images/private"
POOLS: Final = [
    {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "gcr.io/p/i"},
    }
]


def in_training_input(**fields: object) -> dict[str, Any]:
    return a_spec(**fields)


def in_extension(**fields: object) -> dict[str, Any]:
    return {**a_spec(), "trainmaster": fields}


def in_pipeline(**fields: object) -> dict[str, Any]:
    return {
        "displayName": "digits",
        "trainingTaskDefinition": "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml",
        "trainingTaskInputs": {"workerPoolSpecs": POOLS, **fields},
        "trainmaster": {"region": "us-central1"},
    }


def in_trials(**fields: object) -> dict[str, Any]:
    learning_rate = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.1, "maxValue": 1}}
    return {
        "displayName": "digits",
        "studySpec": {
            "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
            "parameters": [learning_rate],
        },
        "maxTrialCount": 2,
        "parallelTrialCount": 1,
        "trialJobSpec": {"workerPoolSpecs": POOLS, **fields},
        "trainmaster": {"region": "us-central1"},
    }


def in_job_spec(**fields: object) -> dict[str, Any]:
    return {
        "displayName": "digits",
        "jobSpec": {"workerPoolSpecs": POOLS, **fields},
        "trainmaster": {"region": "us-central1"},
    }


JOBS: Final = {
    # What the job names → the job, the field, and the entry of the setting that permits it.
    "an account": (
        in_training_input(serviceAccount=ACCOUNT),
        "training_input.service_account",
        f"service_account={ACCOUNT}",
    ),
    "a network": (
        in_training_input(network=NETWORK),
        "training_input.network",
        f"network={NETWORK}",
    ),
    "a key": (
        in_training_input(encryptionConfig={"kmsKeyName": KEY}),
        "training_input.encryption_config.kms_key_name",
        f"kms_key={KEY}",
    ),
    "an image": (in_extension(image=IMAGE), "trainmaster.image", f"image={IMAGE}"),
    "a reservation": (
        in_extension(reservation="theirs"),
        "trainmaster.reservation",
        "reservation=projects/my-project/reservations/theirs",
    ),
    "a secret": (
        in_extension(secrets={"API_KEY": "api-key/versions/3"}),
        "trainmaster.secrets.API_KEY",
        "secret=projects/my-project/secrets/api-key",
    ),
    "an account in the other format": (
        in_job_spec(serviceAccount=ACCOUNT),
        "job_spec.service_account",
        f"service_account={ACCOUNT}",
    ),
    "a network in the other format": (
        in_job_spec(network=NETWORK),
        "job_spec.network",
        f"network={NETWORK}",
    ),
    "a key in the other format": (
        {**in_job_spec(), "encryptionSpec": {"kmsKeyName": KEY}},
        "encryption_spec.kms_key_name",
        f"kms_key={KEY}",
    ),
    "an account in a training pipeline": (
        in_pipeline(service_account=ACCOUNT),
        "training_task_inputs.service_account",
        f"service_account={ACCOUNT}",
    ),
    "a key in a training pipeline": (
        {**in_pipeline(), "encryptionSpec": {"kmsKeyName": KEY}},
        "encryption_spec.kms_key_name",
        f"kms_key={KEY}",
    ),
    "an account of trials": (
        in_trials(serviceAccount=ACCOUNT),
        "trial_job_spec.service_account",
        f"service_account={ACCOUNT}",
    ),
}


def publish(world: World, document: dict[str, Any]) -> str:
    """Submit the job in a message, whose sender nobody knows. Return the text of the refusal; empty
    if the job was accepted.
    """
    try:
        submit.handle(json.dumps({"jobId": "digits_1", **document}).encode(), None, world.deps)
    except RejectedError as error:
        return str(error)
    return ""


def upload_file(world: World, document: dict[str, Any]) -> str:
    """Submit the job as a file in the bucket. Return as `publish` does."""
    objects = MemoryObjects()
    objects.write(
        "gs://b/jobs/x.json", json.dumps(document).encode(), content_type="application/json"
    )
    job_id = upload.handle(UploadedObject("b", "jobs/x.json", 1), objects, world.deps)
    written = objects.read("gs://b/jobs/x.json.error.json", max_bytes=1 << 20)
    assert (job_id is None) == (written is not None)
    if written is None:
        return ""
    assert world.bus.drain() == [], "an uploaded file with problems must not be published"
    return " ".join(
        f"{problem['field']} {problem['problem']}" for problem in json.loads(written)["problems"]
    )


@pytest.fixture
def world() -> World:
    return World(allowed=AllowedResources("my-project"))


@pytest.mark.parametrize("submit_by", [publish, upload_file])
@pytest.mark.parametrize(("document", "field", "entry"), JOBS.values(), ids=JOBS)
def test_job_of_an_unknown_submitter_cannot_name_a_resource(
    world: World,
    document: dict[str, Any],
    field: str,
    entry: str,
    submit_by: Callable[[World, dict[str, Any]], str],
) -> None:
    refusal = submit_by(world, document)
    assert field.replace("_", "").lower() in refusal.replace("_", "").lower()
    assert f"add {entry} to the setting TRAINMASTER_ALLOWED_RESOURCES" in refusal
    assert "through the API" in refusal
    assert world.store.recent_jobs(5) == ()
    assert [message for message in world.bus.drain() if message.topic != topics.DEAD_LETTER] == []


@pytest.mark.parametrize("submit_by", [publish, upload_file])
@pytest.mark.parametrize(
    ("document", "entry"), [(document, entry) for document, _, entry in JOBS.values()], ids=JOBS
)
def test_administrator_may_open_a_resource_to_every_job(
    document: dict[str, Any], entry: str, submit_by: Callable[[World, dict[str, Any]], str]
) -> None:
    def refusal(permitted: str) -> str:
        return submit_by(World(allowed=AllowedResources("my-project", (permitted,))), document)

    pattern = f"{entry[:-1]}*"
    assert refusal(entry) == ""
    assert refusal(pattern) == ""
    assert refusal(f"{entry}-other") != ""


def test_foreign_manifest_cannot_name_an_account_in_an_annotation(world: World) -> None:
    """A manifest of Kubeflow from somebody else is converted when it is uploaded."""
    pod = {"containers": [{"name": "pytorch", "image": "gcr.io/p/i"}]}
    annotations = {"iam.gke.io/gcp-service-account": ACCOUNT, "trainmaster": "region: us-central1"}
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "digits", "annotations": annotations},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": pod}}}},
    }
    assert f"add service_account={ACCOUNT} to the setting" in upload_file(world, manifest)
    del annotations["iam.gke.io/gcp-service-account"]
    assert upload_file(World(), manifest) == "", "nothing else is wrong with it"


def test_every_problem_is_reported_at_once(world: World) -> None:
    refusal = publish(
        world, {**in_training_input(serviceAccount=ACCOUNT), "trainmaster": {"image": IMAGE}}
    )
    assert ACCOUNT in refusal
    assert IMAGE in refusal


def test_job_without_named_resources_needs_no_entry(world: World) -> None:
    assert publish(world, a_spec()) == ""
    assert accept({"jobId": "x", **a_spec()}, default_job_id=None).resources == ()


def test_every_kind_of_resource_is_found_in_a_job() -> None:
    found = [
        accept({"jobId": "x", **document}, default_job_id=None).resources
        for document, _, _ in JOBS.values()
    ]
    assert {resource.kind for resources in found for resource in resources} == set(ResourceKind)


@pytest.mark.parametrize(
    "entry", ["account=x", "secret", "secret=", "image=projects/*/global/images/x"]
)
def test_wrong_entry_of_the_setting_is_refused(entry: str) -> None:
    with pytest.raises(ValidationError, match="is not KIND=NAME"):
        Settings(project="my-project", allowed_resources=entry)  # type: ignore[arg-type]


def test_entry_for_one_kind_opens_no_other() -> None:
    resource = NamedResource(ResourceKind.SERVICE_ACCOUNT, "x@p.iam.gserviceaccount.com", "f")
    assert not AllowedResources("p", ("secret=x@p.iam.gserviceaccount.com",)).allow(resource)


def test_messages_have_a_quota_of_their_own_and_wait_above_it(world: World) -> None:
    """A flood of messages neither ends in rejections nor uses up the quota of the API."""
    deps = replace(world.deps, messages_per_minute=3)

    def send(number: int) -> None:
        data = json.dumps({"jobId": f"flood_{number}", **a_spec()}).encode()
        submit.handle(data, None, deps)

    for number in range(3):
        send(number)
    send(2)  # a redelivery is not a new job
    with pytest.raises(TemporaryError, match="3 jobs were created by messages within a minute"):
        send(3)
    assert world.store.count_created_since(START, through_api=True) == 0
    world.wait(61)
    send(3)
    assert len(world.store.recent_jobs(9)) == 4


def test_flood_of_messages_delays_the_jobs_of_others_and_never_ends_them(world: World) -> None:
    """Each message is delivered once a minute in random order, and would be a dead letter after 100
    deliveries. The quota delays a message for at most `submit.WAIT_MAX`.
    """
    per_minute = 2
    deps = replace(world.deps, messages_per_minute=per_minute)
    order = Random(1)  # noqa: S311 - not for secrets
    sent_at = world.now
    waiting = [f"flood_{number}" for number in range(60)] + ["honest_1", "honest_2"]
    sent_count = len(waiting)
    for minute in range(20):
        order.shuffle(waiting)
        for job_id in tuple(waiting):
            with suppress(TemporaryError):
                data = json.dumps({"jobId": job_id, **a_spec()}).encode()
                submit.handle(data, None, deps, sent_at)
                waiting.remove(job_id)
        if world.now - sent_at < submit.WAIT_MAX:
            assert len(waiting) == sent_count - per_minute * (minute + 1)
        world.wait(61)
    assert waiting == []


def test_refusal_with_endless_problems_is_stored_within_the_limits_of_the_database(
    world: World,
) -> None:
    spec = a_spec(args=[{} for _ in range(1_000)], **{"x" * 5000: 1})
    with pytest.raises(RejectedError):
        world.submit(spec)
    (rejection,) = world.store.rejections()
    assert len(rejection.problems) == rejections.PROBLEMS_KEPT
    assert max(map(len, rejection.problems)) <= rejections.PROBLEM_CHARS_KEPT


@pytest.mark.parametrize("source", ["api:", "api:4711"])
def test_message_cannot_pass_for_a_submission_through_the_api(world: World, source: str) -> None:
    with pytest.raises(RejectedError, match="cannot begin with api:"):
        world.submit(source=source)
    assert world.store.recent_jobs(5) == ()
    assert len(world.store.rejections()) == 1


def test_submission_with_the_source_of_a_schedule_cannot_be_taken_over_silently(
    world: World,
) -> None:
    """The attacker is first, with the predictable source and job id.

    The true submission is refused, not swallowed.
    """
    world.submit(a_spec(args=["--attacker"]), source="schedule:nightly")
    with pytest.raises(RejectedError, match="already exists"):
        world.submit(a_spec(args=["--nightly"]), source="schedule:nightly")
    # A redelivery is still the same job.
    world.submit(a_spec(args=["--attacker"]), source="schedule:nightly")
    (rejection,) = world.store.rejections()
    assert (rejection.job_id, rejection.source) == ("digits_1", "schedule:nightly")
    world.check()


def test_job_whose_vms_would_have_the_names_of_another_jobs_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 4 bits of hash in place of 64, a search finds such a job id at once."""
    monkeypatch.setattr(vm_names, "HASH_DIGITS", 1)
    vm_names.vm_name_with_prefix.cache_clear()
    try:
        world.submit()
        victim = vm_name(world.job_id, CHIEF)
        other = next(
            name
            for name in (f"Digits{'_' * count}1" for count in range(1, 99))
            if vm_name(name, CHIEF) == victim
        )
        with pytest.raises(RejectedError, match="gives its VMs the names of the VMs of digits_1"):
            World(job_id=other, store=world.store).submit()
        world.submit()  # the same submission again is still accepted
        assert len(world.store.recent_jobs(5)) == 1
    finally:
        vm_names.vm_name_with_prefix.cache_clear()
