"""`validateOnly`: the answer of a creation, without the creation."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from tests.integration.api.client import (
    CUSTOM_JOBS,
    JOBS,
    PIPELINES,
    PROJECT,
    TUNING_JOBS,
    UNPRIVILEGED,
    Api,
    an_app,
)
from tests.integration.api.test_custom_jobs import BODY
from tests.integration.api.test_submissions import TUNING
from tests.integration.api.test_training_pipelines import a_body
from tests.support.jobs import a_spec
from trainmaster.api.quotas import Bucket

DOCUMENT = {"jobId": "digits_1", **a_spec()}
SUBMIT = f"{JOBS}:submit"
FILE = {"document": json.dumps(DOCUMENT), "fileName": "digits.json"}
A_STUDY = {"displayName": "study", **TUNING, "maxTrialCount": 2, "parallelTrialCount": 1}
CREATIONS = [
    pytest.param(JOBS, DOCUMENT, id="jobs"),
    pytest.param(SUBMIT, FILE, id="submit"),
    pytest.param(CUSTOM_JOBS, BODY, id="customJobs"),
    pytest.param(TUNING_JOBS, A_STUDY, id="hyperparameterTuningJobs"),
    pytest.param(PIPELINES, a_body(), id="trainingPipelines"),
]


def stored_jobs(api: Api) -> list[str]:
    return [job.job_id for job in api.world.store.live_jobs().jobs]


@pytest.mark.parametrize("spelling", ["validateOnly", "validate_only"])
@pytest.mark.parametrize(("path", "body"), CREATIONS)
def test_job_is_returned_and_nothing_is_created(
    api: Api, path: str, body: object, spelling: str
) -> None:
    status, validated = api.send("POST", path, body, **{spelling: "true"})
    assert status == 200, validated
    assert validated.pop("trainmaster")["validateOnly"] is True
    assert stored_jobs(api) == []
    assert api.world.bus.take() is None
    created = api.send("POST", path, body, **{spelling: "false"})[1]
    assert len(stored_jobs(api)) == 1
    assert set(created) == set(validated)


def test_substitutions_are_listed(api: Api) -> None:
    document = {"jobId": "digits_1", **a_spec(runtimeVersion="1.15", pythonVersion="3.7")}
    _, validated = api.send("POST", JOBS, document, validateOnly="true")
    listed = validated["trainmaster"]["substitutions"]
    assert "trainingInput.runtimeVersion" in [note["field"] for note in listed]
    assert "trainmaster" not in api.send_ok("POST", JOBS, document)
    stored = api.world.store.load("digits_1")
    assert stored is not None
    assert listed == [asdict(note) for note in stored.state.job.plan.origin.substitutions]


def test_used_job_id_is_refused_as_by_a_creation(api: Api) -> None:
    api.create("digits_1")
    validated = api.send_refused("POST", JOBS, DOCUMENT, validateOnly="true")
    created = api.send_refused("POST", JOBS, DOCUMENT)
    assert validated == created
    assert validated["code"] == 409


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"jobId": "digits_1", **a_spec(scaleTier="HUGE")}, 400),
        ({"jobId": "9_digits", **a_spec()}, 400),
        ({**DOCUMENT, "validateOnly": True}, 400),
        (b"{", 400),
    ],
)
def test_error_is_that_of_the_creation(api: Api, body: object, code: int) -> None:
    validated = api.send_refused("POST", JOBS, body, validateOnly="true")
    assert validated == api.send_refused("POST", JOBS, body)
    assert validated["code"] == code


def test_caller_needs_the_permission_of_the_creation(api: Api) -> None:
    refused = api.send_refused("POST", JOBS, DOCUMENT, token=UNPRIVILEGED, validateOnly="true")
    assert refused["code"] == 403


@pytest.mark.parametrize("value", ["", "1", "yes", "True", "TRUE"])
def test_value_other_than_true_and_false_is_refused(api: Api, value: str) -> None:
    refused = api.send_refused("POST", JOBS, DOCUMENT, validateOnly=value)
    assert refused["message"] == (
        f"Field: validateOnly Error: is {value!r}, and must be true or false"
    )
    assert stored_jobs(api) == []


@pytest.mark.parametrize("values", [["true", "false"], ["false", "true"], ["true", "true"]])
def test_repeated_parameter_is_refused(api: Api, values: Any) -> None:
    refused = api.send_refused("POST", JOBS, DOCUMENT, validateOnly=values)
    assert refused["message"].startswith(f"Field: validateOnly Error: is '{','.join(values)}'")
    assert stored_jobs(api) == []


@pytest.mark.parametrize(
    "name", ["validateonly", "ValidateOnly", "validate-only", "dryRun", "dry_run", "check"]
)
def test_similar_parameter_never_creates_a_job(api: Api, name: str) -> None:
    refused = api.send_refused("POST", JOBS, DOCUMENT, **{name: "true"})
    assert refused["message"] == (
        f"Field: {name} Error: is no parameter: validateOnly=true checks a job without creating it"
    )
    assert stored_jobs(api) == []


def test_field_of_a_submission_that_does_not_exist_is_refused(api: Api) -> None:
    refused = api.send_refused("POST", SUBMIT, {**FILE, "validateOnly": True})
    assert refused["message"] == (
        "Field: validateOnly Error: is no field of this request: the fields are document, fileName,"
        " region, time; validateOnly is a query parameter"
    )
    assert stored_jobs(api) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{JOBS}/digits_1:cancel"),
        ("PATCH", f"{JOBS}/digits_1"),
        ("GET", f"{JOBS}/digits_1"),
        ("DELETE", f"{CUSTOM_JOBS}/digits_1"),
        ("POST", f"/v1/projects/{PROJECT}/locations/us-central1/persistentResources"),
    ],
)
def test_other_methods_refuse_it(api: Api, method: str, path: str) -> None:
    api.create("digits_1")
    before = api.get("digits_1")
    refused = api.send_refused(method, path, validateOnly="true")
    assert refused["message"] == (
        "Field: validateOnly Error: is a parameter of the methods that create a job, and of no"
        " other"
    )
    assert api.get("digits_1") == before


def test_validations_count_as_requests_and_not_as_creations(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(2, lambda: 0.0)
    api.http = an_app(api.world, api.access, monkeypatch, bucket).test_client()
    for _ in range(2):
        assert api.send("POST", JOBS, DOCUMENT, validateOnly="true")[0] == 200
    refused = api.send_refused("POST", JOBS, DOCUMENT, validateOnly="true")
    assert refused["code"] == 429
    assert "requests per minute" in refused["message"]
    assert api.send("POST", JOBS, DOCUMENT)[0] == 200
