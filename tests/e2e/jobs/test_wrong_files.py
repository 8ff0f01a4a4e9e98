"""What is no job gets its answer where its sender looks, and nothing half-made is left."""

from __future__ import annotations

import json

import pytest
import yaml

from shared.messaging import topics
from tests.e2e.conftest import Lab

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


def answer(lab: Lab, uri: str) -> dict[str, object]:
    found: list[bytes] = []

    def has_answer() -> bool:
        data = lab.objects.read(f"{uri}.error.json", max_bytes=1 << 20)
        found.extend([data] if data else [])
        return bool(found)

    lab.until(has_answer, 20)
    decoded = json.loads(found[0])
    assert isinstance(decoded, dict)
    return decoded


def problem_of(said: dict[str, object]) -> dict[str, str]:
    """The only one."""
    problems = said["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 1, problems
    found: dict[str, str] = problems[0]
    return found


def test_a_wrong_file_is_answered_beside_it_with_every_problem_at_once(lab: Lab) -> None:
    uri = f"gs://{lab.bucket}/jobs/wrong.yaml"
    before = {job.job_id for job in lab.store.recent_jobs(100)}
    lab.objects.write(uri, WRONG.encode(), content_type="text/yaml")
    said = answer(lab, uri)
    assert said["created"] is False
    problems = said["problems"]
    assert isinstance(problems, list)
    fields = {problem["field"] for problem in problems}
    for name in ("masterTyp", "workerCount", "packageUris", "pythonModule", "region"):
        assert any(field.startswith(f"trainingInput.{name}") for field in fields), (name, fields)
    assert all(problem["problem"] and problem["example"] for problem in problems)
    assert {job.job_id for job in lab.store.recent_jobs(100)} == before


def test_a_file_that_cannot_be_read_says_where(lab: Lab) -> None:
    uri = f"gs://{lab.bucket}/jobs/broken.yaml"
    lab.objects.write(uri, b"trainingInput: [\n", content_type="text/yaml")
    assert "line 2" in problem_of(answer(lab, uri))["problem"]


def test_the_answer_goes_when_the_file_is_put_right_and_its_job_id_is_used_from_then_on(lab: Lab) -> None:
    uri = f"gs://{lab.bucket}/jobs/mended.yaml"
    lab.objects.write(uri, b"{}", content_type="text/yaml")
    answer(lab, uri)
    spec = {"jobId": "mended_1", **lab.scripted_spec(workers=0, steps=1)}
    lab.objects.write(uri, yaml.safe_dump(spec).encode(), content_type="text/yaml")
    lab.until(lambda: lab.objects.read(f"{uri}.error.json", max_bytes=10) is None, 20)
    lab.until(lambda: lab.store.load("mended_1"), 20)
    second = f"gs://{lab.bucket}/jobs/second.yaml"
    lab.objects.write(second, yaml.safe_dump(spec).encode(), content_type="text/yaml")
    problem = problem_of(answer(lab, second))
    assert (problem["field"], problem["problem"]) == ("jobId", "A job with this id already exists.")
    lab.ended_well("mended_1")


def test_a_wrong_message_is_recorded_and_kept_with_its_reason_and_never_tried_for_ever(lab: Lab) -> None:
    body = json.dumps({"jobId": "no_such_thing", "trainingInput": {"scaleTier": "HUGE"}}).encode()
    lab.stack.pubsub.publish(topics.SUBMIT, body)
    letters: list[dict[str, object]] = []

    def is_kept() -> bool:
        letters.extend(each for each in lab.stack.pubsub.pull(topics.DEAD_LETTER) if each["data"] == body)
        return bool(letters)

    lab.until(is_kept, 20)
    attributes = letters[0]["attributes"]
    assert isinstance(attributes, dict)
    assert attributes["function"] == "submit"
    assert "Field: training_input.scale_tier" in attributes["reason"]
    rejection = next(each for each in lab.store.rejections() if each.job_id == "no_such_thing")
    assert any("scale_tier" in problem for problem in rejection.problems)
    assert lab.store.load("no_such_thing") is None


def test_a_job_published_to_submit_runs(lab: Lab) -> None:
    body = json.dumps({"jobId": "published_1", **lab.scripted_spec(workers=0, steps=1)}).encode()
    for _ in range(2):
        lab.stack.pubsub.publish(topics.SUBMIT, body)
    lab.until(lambda: lab.store.load("published_1"), 20)
    lab.ended_well("published_1")
