"""A job file was uploaded: what is submitted, under which id, and what is answered beside the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import yaml

from shared.core.intake.job_files import Uploaded
from shared.errors import PermanentError
from shared.flows import delete, submit, upload
from shared.memory.objects import MemoryObjects
from shared.messaging import google_events, topics
from tests.support.jobs import a_spec, a_tuning_spec
from tests.support.study import STUDY, Study, a_whole_study
from tests.support.world import World

NIGHTLY = "gs://bucket/jobs/nightly.yaml"
AT_THREE = datetime(2026, 11, 21, 3, 0, 0, 123000, UTC)
AT_FOUR = datetime(2026, 11, 21, 4, 0, 0, tzinfo=UTC)


@dataclass
class Bucket:
    """What is uploaded is told to the flow as often as the test says; what that publishes is submitted."""

    world: World = field(default_factory=World)
    objects: MemoryObjects = field(default_factory=MemoryObjects)

    def put(self, name: str, document: object) -> int:
        data = document if isinstance(document, bytes) else yaml.safe_dump(document).encode()
        uri = f"gs://bucket/{name}"
        self.objects.write(uri, data, content_type="text/yaml")
        return self.objects.generation(uri)

    def tell(self, name: str, generation: int, created_at: datetime | None = AT_THREE) -> str | None:
        job_id = upload.handle(Uploaded("bucket", name, generation, created_at), self.objects, self.world.deps)
        for message in self.world.bus.drain():
            if message.topic == topics.SUBMIT:
                submit.handle(message.data, message.attributes["source"], self.world.deps)
        return job_id

    def answer(self, uri: str) -> list[dict[str, str]]:
        said = self.objects.read(f"{uri}.error.json", max_bytes=1 << 20)
        problems: list[dict[str, str]] = json.loads(said)["problems"] if said else []
        return problems

    @property
    def job_ids(self) -> list[str]:
        return sorted(job.job_id for job in self.world.store.recent_jobs(10))


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.mark.parametrize("name", ["jobId", "job_id"])
def test_a_time_in_the_job_id_is_when_the_file_was_stored_and_one_upload_told_twice_is_one_job(
    bucket: Bucket, name: str
) -> None:
    document = {name: "nightly_{time:%Y%m%d_%H%M}", **a_spec()}
    first = bucket.put("jobs/nightly.yaml", document)
    assert bucket.tell("jobs/nightly.yaml", first) == "nightly_20261121_0300"
    bucket.world.wait(7200)
    assert bucket.tell("jobs/nightly.yaml", first) == "nightly_20261121_0300"
    assert bucket.job_ids == ["nightly_20261121_0300"]
    second = bucket.put("jobs/nightly.yaml", document)
    assert bucket.tell("jobs/nightly.yaml", second, AT_FOUR) == "nightly_20261121_0400"
    assert bucket.job_ids == ["nightly_20261121_0300", "nightly_20261121_0400"]
    assert bucket.answer(NIGHTLY) == []


def test_another_upload_within_the_same_time_of_its_template_is_refused_beside_the_file(bucket: Bucket) -> None:
    document = {"jobId": "nightly_{time:%Y%m%d}", **a_spec()}
    bucket.tell("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", document))
    bucket.tell("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", document), AT_FOUR)
    assert bucket.job_ids == ["nightly_20261121"]
    (problem,) = bucket.answer(NIGHTLY)
    assert (problem["field"], problem["problem"]) == ("jobId", "A job with this id already exists.")


def test_a_notification_that_tells_no_time_makes_no_job_of_a_template_and_any_of_another_file(bucket: Bucket) -> None:
    generation = bucket.put("jobs/nightly.yaml", {"jobId": "nightly_{time}", **a_spec()})
    assert bucket.tell("jobs/nightly.yaml", generation, None) is None
    assert [each["field"] for each in bucket.answer(NIGHTLY)] == ["jobId"]
    assert bucket.tell("jobs/plain.yaml", bucket.put("jobs/plain.yaml", {"jobId": "plain", **a_spec()}), None)
    assert bucket.job_ids == ["plain"]


@pytest.mark.parametrize("job_id", ["nightly_{time:../../%Y}", "{time:%Y}_nightly", "nightly_{time:%H:%M}", "n-{time}"])
def test_what_a_template_makes_of_a_job_id_must_be_one(bucket: Bucket, job_id: str) -> None:
    generation = bucket.put("jobs/nightly.yaml", {"jobId": job_id, **a_spec()})
    assert bucket.tell("jobs/nightly.yaml", generation) is None
    assert [each["field"] for each in bucket.answer(NIGHTLY)] == ["jobId"]
    assert bucket.job_ids == []


def test_a_file_told_twice_is_right_twice_though_what_its_job_continues_was_deleted_meanwhile() -> None:
    study = Study()
    a_whole_study(study)
    bucket = Bucket(world=study)
    spec = a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9)
    generation = bucket.put("jobs/nightly.yaml", {"jobId": "digits_2", **spec})
    assert bucket.tell("jobs/nightly.yaml", generation) == "digits_2"
    assert delete.handle(STUDY, "request-1", study.deps)
    assert bucket.tell("jobs/nightly.yaml", generation) == "digits_2"
    assert bucket.answer(NIGHTLY) == []


def test_without_an_id_the_files_name_and_generation_are_one(bucket: Bucket) -> None:
    generation = bucket.put("jobs/digits.yaml", a_spec())
    assert bucket.tell("jobs/digits.yaml", generation) == f"digits_{generation}"
    assert bucket.tell("jobs/digits.yaml", generation) == f"digits_{generation}"
    assert bucket.job_ids == [f"digits_{generation}"]


def test_what_is_no_job_file_or_is_gone_is_left_alone(bucket: Bucket) -> None:
    for name in ("jobs/notes.txt", "packages/a.yaml", "jobs/digits.yaml.error.json"):
        assert bucket.tell(name, bucket.put(name, a_spec())) is None
    overwritten = bucket.put("jobs/digits.yaml", a_spec())
    bucket.put("jobs/digits.yaml", a_spec())
    assert bucket.tell("jobs/digits.yaml", overwritten) is None
    assert bucket.job_ids == []


def test_the_answer_to_a_wrong_file_goes_when_a_right_one_comes(bucket: Bucket) -> None:
    bucket.tell("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", b"trainingInput: ["))
    assert bucket.answer(NIGHTLY)
    bucket.tell("jobs/nightly.yaml", bucket.put("jobs/nightly.yaml", {"jobId": "right", **a_spec()}))
    assert (bucket.answer(NIGHTLY), bucket.job_ids) == ([], ["right"])


ATTRIBUTES = {"bucketId": "bucket", "objectId": "jobs/a.yaml", "objectGeneration": "17"}


def test_a_notification_is_read_with_the_time_in_its_objects_resource() -> None:
    resource = {"kind": "storage#object", "name": "jobs/a.yaml", "timeCreated": "2026-11-21T03:00:00.123Z"}
    told = google_events.decode_upload(ATTRIBUTES, json.dumps(resource).encode())
    assert told == Uploaded("bucket", "jobs/a.yaml", 17, AT_THREE)
    assert google_events.decode_upload(ATTRIBUTES, b"") == Uploaded("bucket", "jobs/a.yaml", 17)


@pytest.mark.parametrize("data", [b'{"timeCreated": "yesterday"}', b'{"timeCreated": "2026-11-21T03:00:00"}'])
def test_a_time_that_is_none_can_never_succeed(data: bytes) -> None:
    with pytest.raises(PermanentError):
        google_events.decode_upload(ATTRIBUTES, data)
