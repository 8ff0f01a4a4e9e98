"""Uploaded job files: the submitted job, its id, and the problems written next to the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import yaml

from tests.support.jobs import a_spec, a_tuning_spec
from tests.support.study import STUDY, Study, run_whole_study
from tests.support.world import World
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.intake.named_resources import AllowedResources
from trainmaster.core.rules.admission_queue import RUN_HOURS
from trainmaster.errors import PermanentError
from trainmaster.flows import submit, upload
from trainmaster.flows.user_requests import delete_job
from trainmaster.messaging import google_events, topics
from trainmaster_local.memory.objects import MemoryObjects

PACKAGE = "gs://bucket/trainer-0.1.tar.gz"
NIGHTLY = "gs://bucket/jobs/nightly.yaml"
AT_THREE = datetime(2026, 11, 21, 3, 0, 0, 123000, UTC)
AT_FOUR = datetime(2026, 11, 21, 4, 0, 0, tzinfo=UTC)


@dataclass
class Bucket:
    """A bucket whose uploads are passed to the flow by `notify`.

    The published jobs are submitted.
    """

    world: World = field(default_factory=World)
    objects: MemoryObjects = field(default_factory=MemoryObjects)

    def __post_init__(self) -> None:
        self.objects.write(PACKAGE, b"", content_type="application/gzip")

    def put(self, name: str, document: object) -> int:
        data = document if isinstance(document, bytes) else yaml.safe_dump(document).encode()
        uri = f"gs://bucket/{name}"
        return self.objects.write(uri, data, content_type="text/yaml")

    def notify(
        self, name: str, generation: int, created_at: datetime | None = AT_THREE
    ) -> str | None:
        job_id = upload.handle(
            UploadedObject("bucket", name, generation, created_at), self.objects, self.world.deps
        )
        for message in self.world.bus.drain():
            if message.topic == topics.SUBMIT:
                submit.handle(message.data, message.attributes["source"], self.world.deps)
        return job_id

    def problems(self, uri: str) -> list[dict[str, str]]:
        """Return the problems that were written next to the file."""
        report = self.objects.read(f"{uri}.error.json", max_bytes=1 << 20)
        problems: list[dict[str, str]] = json.loads(report)["problems"] if report else []
        return problems

    @property
    def job_ids(self) -> list[str]:
        return sorted(job.job_id for job in self.world.store.recent_jobs(10))


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.mark.parametrize("name", ["jobId", "job_id"])
def test_time_in_the_job_id_is_when_the_file_was_stored(bucket: Bucket, name: str) -> None:
    document = {name: "nightly_{time:%Y%m%d_%H%M}", **a_spec()}
    first = bucket.put("jobs/nightly.yaml", document)
    assert bucket.notify("jobs/nightly.yaml", first) == "nightly_20261121_0300"
    bucket.world.wait(7200)
    assert bucket.notify("jobs/nightly.yaml", first) == "nightly_20261121_0300"
    assert bucket.job_ids == ["nightly_20261121_0300"]
    second = bucket.put("jobs/nightly.yaml", document)
    assert bucket.notify("jobs/nightly.yaml", second, AT_FOUR) == "nightly_20261121_0400"
    assert bucket.job_ids == ["nightly_20261121_0300", "nightly_20261121_0400"]
    assert bucket.problems(NIGHTLY) == []


def test_second_upload_with_the_same_resolved_job_id_is_rejected(bucket: Bucket) -> None:
    document = {"jobId": "nightly_{time:%Y%m%d}", **a_spec()}
    bucket.notify("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", document))
    bucket.notify("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", document), AT_FOUR)
    assert bucket.job_ids == ["nightly_20261121"]
    (problem,) = bucket.problems(NIGHTLY)
    assert (problem["field"], problem["problem"]) == ("jobId", "A job with this id already exists.")


def test_notification_without_a_time_is_enough_for_job_ids_without_a_time(bucket: Bucket) -> None:
    generation = bucket.put("jobs/nightly.yaml", {"jobId": "nightly_{time}", **a_spec()})
    assert bucket.notify("jobs/nightly.yaml", generation, None) is None
    assert [problem["field"] for problem in bucket.problems(NIGHTLY)] == ["jobId"]
    assert bucket.notify(
        "jobs/plain.yaml", bucket.put("jobs/plain.yaml", {"jobId": "plain", **a_spec()}), None
    )
    assert bucket.job_ids == ["plain"]


@pytest.mark.parametrize(
    "job_id", ["nightly_{time:../../%Y}", "{time:%Y}_nightly", "nightly_{time:%H:%M}", "n-{time}"]
)
def test_resolved_job_id_must_be_valid(bucket: Bucket, job_id: str) -> None:
    generation = bucket.put("jobs/nightly.yaml", {"jobId": job_id, **a_spec()})
    assert bucket.notify("jobs/nightly.yaml", generation) is None
    assert [problem["field"] for problem in bucket.problems(NIGHTLY)] == ["jobId"]
    assert bucket.job_ids == []


def test_repeated_notification_is_accepted_after_the_resumed_job_was_deleted() -> None:
    study = Study()
    run_whole_study(study)
    bucket = Bucket(world=study)
    spec = a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9)
    generation = bucket.put("jobs/nightly.yaml", {"jobId": "digits_2", **spec})
    assert bucket.notify("jobs/nightly.yaml", generation) == "digits_2"
    assert delete_job(STUDY, "request-1", study.deps, by="anna")
    assert bucket.notify("jobs/nightly.yaml", generation) == "digits_2"
    assert bucket.problems(NIGHTLY) == []


def test_file_without_job_id_gets_one_from_its_name_and_generation(bucket: Bucket) -> None:
    generation = bucket.put("jobs/digits.yaml", a_spec())
    assert bucket.notify("jobs/digits.yaml", generation) == f"digits_{generation}"
    assert bucket.notify("jobs/digits.yaml", generation) == f"digits_{generation}"
    assert bucket.job_ids == [f"digits_{generation}"]


@pytest.mark.parametrize(
    ("document", "job_id"),
    [
        ({"jobId": "digits_7", **a_spec(scaleTier="HUGE")}, "digits_7"),
        (a_spec(scaleTier="HUGE"), None),
        (b"jobId: [", None),
    ],
    ids=["job id", "no job id", "no YAML"],
)
def test_problems_are_stored_as_one_rejection_too(
    bucket: Bucket, document: object, job_id: str | None
) -> None:
    """The uploader who asks for the job, or looks at the console, finds them there."""
    generation = bucket.put("jobs/digits.yaml", document)
    bucket.notify("jobs/digits.yaml", generation)
    bucket.world.wait(60)
    bucket.notify("jobs/digits.yaml", generation)
    (rejection,) = bucket.world.store.rejections()
    assert (rejection.source, rejection.job_id) == (
        f"gs://bucket/jobs/digits.yaml#{generation}",
        job_id,
    )
    written = bucket.problems("gs://bucket/jobs/digits.yaml")
    assert len(rejection.problems) == len(written)
    assert written[0]["problem"] in rejection.problems[0]


def test_other_or_replaced_objects_are_ignored(bucket: Bucket) -> None:
    for name in ("jobs/out/model.bin", "jobs/", "packages/a.yaml", "jobs/digits.yaml.error.json"):
        assert bucket.notify(name, bucket.put(name, a_spec())) is None
        assert bucket.problems(f"gs://bucket/{name}") == []
    overwritten = bucket.put("jobs/digits.yaml", a_spec())
    bucket.put("jobs/digits.yaml", a_spec())
    assert bucket.notify("jobs/digits.yaml", overwritten) is None
    assert bucket.job_ids == []


@pytest.mark.parametrize(
    "name",
    [
        "jobs/.ipynb_checkpoints/digits-checkpoint.yaml",
        "jobs/._digits.yaml",
        "jobs/.digits.yaml.swp",
        "jobs/.#digits.yaml",
        "jobs/digits.yaml~",
        "jobs/#digits.yaml#",
        "jobs/~$digits.yaml",
        "jobs/__MACOSX/digits.yaml",
    ],
)
def test_hidden_copy_of_a_job_file_is_neither_a_job_nor_answered(bucket: Bucket, name: str) -> None:
    assert bucket.notify(name, bucket.put(name, a_spec())) is None
    assert bucket.problems(f"gs://bucket/{name}") == []


@pytest.mark.parametrize("name", ["jobs/digits.txt", "jobs/digits", "jobs/digits.yaml.bak"])
def test_file_with_another_ending_is_answered_next_to_it(bucket: Bucket, name: str) -> None:
    assert bucket.notify(name, bucket.put(name, a_spec())) is None
    (problem,) = bucket.problems(f"gs://bucket/{name}")
    assert (
        problem["problem"] == f"{name} is not a job file: its name must end in .yaml, .yml, .json"
    )
    assert bucket.job_ids == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"region": "us-central1"}, 1),
        ({"region": "us-east1"}, 0),
        ({"region": "us-east1", "network": "projects/my-project/global/networks/mine"}, 1),
    ],
)
def test_region_must_be_installed_unless_the_job_has_its_own_network(
    bucket: Bucket, changes: dict[str, object], expected: int
) -> None:
    bucket.world.regions = ("us-central1", "europe-west4")
    bucket.world.allowed = AllowedResources("my-project", ("network=projects/my-project/*",))
    bucket.notify("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", a_spec(**changes)))
    assert len(bucket.job_ids) == expected
    if not expected:
        (problem,) = bucket.problems(NIGHTLY)
        assert problem == {
            "field": "trainingInput.region",
            "problem": (
                "is us-east1, in which Trainmaster is not installed; Terraform's variable"
                " worker_regions adds regions"
            ),
            "example": "europe-west4 or us-central1",
        }


def test_job_over_a_limit_of_all_jobs_is_answered_next_to_the_file(bucket: Bucket) -> None:
    bucket.world.limits = {RUN_HOURS: 1}
    spec = a_spec(scheduling={"maxRunningTime": "7200s"})
    assert bucket.notify("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", spec)) is None
    (problem,) = bucket.problems(NIGHTLY)
    assert problem["field"] == "trainingInput"
    assert problem["problem"].startswith("The request for 2 run_hours exceeds the allowed maximum")
    (rejection,) = bucket.world.store.rejections()
    assert "exceeds the allowed maximum" in rejection.problems[0]


def test_job_that_was_stored_stays_accepted_under_a_lower_limit(bucket: Bucket) -> None:
    generation = bucket.put("jobs/nightly.yaml", a_spec())
    job_id = bucket.notify("jobs/nightly.yaml", generation)
    bucket.world.limits = {RUN_HOURS: 1}
    assert bucket.notify("jobs/nightly.yaml", generation) == job_id
    assert bucket.problems(NIGHTLY) == []


def test_file_with_the_longest_name_is_answered(bucket: Bucket) -> None:
    """An object's name has at most 1,024 bytes, and that of the answer is longer."""
    name = f"jobs/{'é' * 500}{'a' * 14}.yaml"
    assert len(name.encode()) == 1024
    bucket.notify(name, bucket.put(name, b"trainingInput: ["))
    answer = UploadedObject("bucket", name, 1).problems_uri
    assert len(answer.removeprefix("gs://bucket/").encode()) <= 1024
    assert bucket.objects.read(answer, max_bytes=1)
    bucket.notify(name, bucket.put(name, {"jobId": "right", **a_spec()}))
    report = json.loads(bucket.objects.read(answer, max_bytes=9999) or b"{}")
    assert "too long" in report["problems"][0]["problem"], "a message could not name the file"


def test_repeated_notification_is_accepted_after_the_package_was_deleted(bucket: Bucket) -> None:
    generation = bucket.put("jobs/nightly.yaml", a_spec())
    job_id = bucket.notify("jobs/nightly.yaml", generation)
    bucket.objects.delete(PACKAGE)
    assert bucket.notify("jobs/nightly.yaml", generation) == job_id


def test_submission_that_was_stored_stays_accepted_after_its_region_was_uninstalled(
    bucket: Bucket,
) -> None:
    generation = bucket.put("jobs/nightly.yaml", a_spec())
    job_id = bucket.notify("jobs/nightly.yaml", generation)
    bucket.world.regions = ("europe-west4",)
    assert bucket.notify("jobs/nightly.yaml", generation) == job_id
    assert bucket.problems(NIGHTLY) == []


def test_ending_may_be_in_upper_case(bucket: Bucket) -> None:
    bucket.notify(
        "jobs/digits.YAML", bucket.put("jobs/digits.YAML", {"jobId": "digits_7", **a_spec()})
    )
    assert bucket.job_ids == ["digits_7"]


def test_report_of_problems_is_deleted_when_a_valid_file_is_uploaded(bucket: Bucket) -> None:
    bucket.notify("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", b"trainingInput: ["))
    assert bucket.problems(NIGHTLY)
    bucket.notify(
        "jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", {"jobId": "right", **a_spec()})
    )
    assert (bucket.problems(NIGHTLY), bucket.job_ids) == ([], ["right"])


ATTRIBUTES = {"bucketId": "bucket", "objectId": "jobs/a.yaml", "objectGeneration": "17"}


def test_notification_is_decoded_with_the_creation_time_of_the_object() -> None:
    resource = {
        "kind": "storage#object",
        "name": "jobs/a.yaml",
        "timeCreated": "2026-11-21T03:00:00.123Z",
    }
    uploaded = google_events.decode_upload(ATTRIBUTES, json.dumps(resource).encode())
    assert uploaded == UploadedObject("bucket", "jobs/a.yaml", 17, AT_THREE)
    assert google_events.decode_upload(ATTRIBUTES, b"") == UploadedObject(
        "bucket", "jobs/a.yaml", 17
    )


@pytest.mark.parametrize(
    "data", [b'{"timeCreated": "yesterday"}', b'{"timeCreated": "2026-11-21T03:00:00"}']
)
def test_notification_with_an_invalid_time_is_a_permanent_error(data: bytes) -> None:
    with pytest.raises(PermanentError):
        google_events.decode_upload(ATTRIBUTES, data)
