"""Wrong job files and messages: the sender gets an answer, and no job is created."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml

from tests.e2e.conftest import Lab
from trainmaster.messaging import topics

pytestmark = pytest.mark.e2e

WRONG = """
trainingInput:
  scaleTier: CUSTOM
  masterTyp: n1-standard-4
  workerCount: many
  packageUris: [http://example.com/p.tar.gz]
  pythonModule: trainer task
  region: mars-north1
"""


def wait_for_error_file(lab: Lab, uri: str) -> dict[str, object]:
    found: list[bytes] = []

    def has_answer() -> bool:
        data = lab.objects.read(f"{uri}.error.json", max_bytes=1 << 20)
        found.extend([data] if data else [])
        return bool(found)

    lab.until(has_answer, 20)
    decoded = json.loads(found[0])
    assert isinstance(decoded, dict)
    return decoded


def only_problem(error_file: dict[str, object]) -> dict[str, str]:
    """Return the only problem."""
    problems = error_file["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 1, problems
    found: dict[str, str] = problems[0]
    return found


def test_wrong_job_file_gets_an_error_file_with_all_problems(lab: Lab) -> None:
    uri = f"gs://{lab.bucket}/jobs/wrong.yaml"
    before = {job.job_id for job in lab.store.recent_jobs(100)}
    lab.objects.write(uri, WRONG.encode(), content_type="text/yaml")
    error_file = wait_for_error_file(lab, uri)
    assert error_file["created"] is False
    problems = error_file["problems"]
    assert isinstance(problems, list)
    fields = {problem["field"] for problem in problems}
    for name in ("masterTyp", "workerCount", "packageUris", "pythonModule", "region"):
        assert any(field.startswith(f"trainingInput.{name}") for field in fields), (name, fields)
    assert all(problem["problem"] and problem["example"] for problem in problems)
    assert {job.job_id for job in lab.store.recent_jobs(100)} == before


def test_unreadable_job_file_gets_the_line_of_the_error(lab: Lab) -> None:
    uri = f"gs://{lab.bucket}/jobs/broken.yaml"
    lab.objects.write(uri, b"trainingInput: [\n", content_type="text/yaml")
    assert "line 2" in only_problem(wait_for_error_file(lab, uri))["problem"]


def test_job_file_with_a_missing_package_gets_an_error_file(lab: Lab) -> None:
    uri = f"gs://{lab.bucket}/jobs/missing_package.yaml"
    spec = lab.scripted_spec(
        workers=0, packageUris=[f"gs://{lab.bucket}/packages/nowhere-1.0.tar.gz"]
    )
    lab.objects.write(uri, yaml.safe_dump(spec).encode(), content_type="text/yaml")
    problem = only_problem(wait_for_error_file(lab, uri))
    assert problem["field"] == "trainingInput.packageUris[0]"
    assert "nowhere-1.0.tar.gz, which does not exist" in problem["problem"]


def test_corrected_job_file_removes_its_error_file_and_reserves_the_job_id(lab: Lab) -> None:
    uri = f"gs://{lab.bucket}/jobs/corrected.yaml"
    lab.objects.write(uri, b"{}", content_type="text/yaml")
    wait_for_error_file(lab, uri)
    spec = {"jobId": "corrected_1", **lab.scripted_spec(workers=0)}
    lab.objects.write(uri, yaml.safe_dump(spec).encode(), content_type="text/yaml")
    lab.until(lambda: lab.objects.read(f"{uri}.error.json", max_bytes=10) is None, 20)
    lab.until(lambda: lab.store.load("corrected_1"), 20)
    second = f"gs://{lab.bucket}/jobs/second.yaml"
    lab.objects.write(second, yaml.safe_dump(spec).encode(), content_type="text/yaml")
    problem = only_problem(wait_for_error_file(lab, second))
    assert (problem["field"], problem["problem"]) == ("jobId", "A job with this id already exists.")
    lab.cancel("corrected_1")


def test_wrong_message_is_rejected_with_its_reason_and_is_no_dead_letter(lab: Lab) -> None:
    body = json.dumps({"jobId": "no_such_thing", "trainingInput": {"scaleTier": "HUGE"}}).encode()
    lab.stack.pubsub.publish(topics.SUBMIT, body)
    source = f"message:{hashlib.sha256(body).hexdigest()}"
    lab.until(lambda: bool(lab.store.rejections(1, source)), 20)
    (rejection,) = lab.store.rejections(2, source)
    assert any("scale_tier" in problem for problem in rejection.problems)
    assert lab.store.load("no_such_thing") is None
    letters = lab.stack.pubsub.pull(topics.DEAD_LETTER)
    assert not [letter for letter in letters if letter["data"] == body]


@pytest.mark.heavy(
    fact="a job that is published twice runs once", quick="`sim`, `unit/flows/test_upload.py`"
)
def test_job_published_twice_to_submit_runs_once(lab: Lab) -> None:
    body = json.dumps({"jobId": "published_1", **lab.scripted_spec(workers=0, steps=1)}).encode()
    for _ in range(2):
        lab.stack.pubsub.publish(topics.SUBMIT, body)
    lab.until(lambda: lab.store.load("published_1"), 20)
    lab.wait_for_success("published_1")
