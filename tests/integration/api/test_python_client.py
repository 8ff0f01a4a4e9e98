"""Google's Python client with its bundled discovery documents, and requests of programs that use
it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import google.auth
import pytest
from flask import Flask
from google.oauth2.credentials import Credentials
from googleapiclient import discovery
from googleapiclient.errors import HttpError

from tests.integration.api.client import OWNER, PROJECT, UNPRIVILEGED, VIEWER, an_app
from tests.integration.api.served import serving
from tests.support.jobs import CHIEF, a_spec
from tests.support.pages import read_page
from tests.support.world import World
from trainmaster_emulators.checkout import ROOT
from trainmaster_local.memory.access import MemoryAccess

PARENT = f"projects/{PROJECT}"


@pytest.fixture
def endpoint(world: World, access: MemoryAccess, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    app: Flask = an_app(world, access, monkeypatch)
    with serving(app) as address:
        yield address


def build(api: str, endpoint: str, token: str = OWNER) -> Any:
    return discovery.build(
        api,
        "v1",
        credentials=Credentials(token=token),
        client_options={"api_endpoint": endpoint},
        static_discovery=True,
        cache_discovery=False,
    )


@pytest.fixture
def jobs(endpoint: str) -> Iterator[Any]:
    client = build("ml", endpoint)
    yield client.projects().jobs()
    client.close()


def status_of(request: Any) -> tuple[int, str]:
    with pytest.raises(HttpError) as caught:
        request.execute()
    error = caught.value
    return error.status_code, error.reason


def test_python_client_creates_polls_and_cancels_a_job(jobs: Any, world: World) -> None:
    created = jobs.create(parent=PARENT, body={"jobId": "digits_1", **a_spec()}).execute()
    assert created["state"] == "QUEUED"
    world.deliver()
    world.report_all_ready()
    name = f"{PARENT}/jobs/digits_1"
    body = {"labels": {"a": "b"}, "etag": created["etag"]}
    assert jobs.patch(name=name, body=body, updateMask="labels,etag").execute()["labels"] == {
        "a": "b"
    }
    assert status_of(jobs.patch(name=name, body=body, updateMask="labels,etag"))[0] == 409
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    assert jobs.get(name=name).execute()["state"] == "SUCCEEDED"
    assert jobs.cancel(name=name, body={}).execute() == {}
    assert jobs.testIamPermissions(
        resource=name, body={"permissions": ["ml.jobs.cancel"]}
    ).execute() == {"permissions": ["ml.jobs.cancel"]}
    assert jobs.getIamPolicy(resource=name).execute() == {"etag": "ACAB"}


def test_python_client_reads_all_pages(jobs: Any) -> None:
    for number in range(5):
        jobs.create(parent=PARENT, body={"jobId": f"job_{number}", **a_spec()}).execute()
    request, pages = jobs.list(parent=PARENT, pageSize=2), []
    while request is not None:
        page = request.execute()
        pages.append([job["jobId"] for job in page["jobs"]])
        request = jobs.list_next(request, page)
    assert pages == [["job_4", "job_3"], ["job_2", "job_1"], ["job_0"]]
    assert jobs.list(parent=PARENT, filter="jobId:census*").execute() == {}


def test_long_filter_sent_as_post_is_accepted(jobs: Any) -> None:
    for number in range(3):
        jobs.create(parent=PARENT, body={"jobId": f"job_{number}", **a_spec()}).execute()
    filter_text = " OR ".join(
        ["jobId=job_1", *[f'jobId="no such job {number}"' for number in range(65)]]
    )
    request = jobs.list(parent=PARENT, filter=filter_text)
    assert len(request.uri) > 2048
    assert [job["jobId"] for job in request.execute()["jobs"]] == ["job_1"]


def test_airflow_accepts_conflict_with_equal_training_input_as_its_job(
    jobs: Any, world: World
) -> None:
    """Source: Airflow's MLEngine hook, which on 409 gets the job, compares it, and then polls."""
    body = {"jobId": "z_digits", **a_spec(scaleTier="CUSTOM")}
    jobs.create(parent=PARENT, body=body).execute()
    assert status_of(jobs.create(parent=PARENT, body=body)) == (
        409,
        "Field: job.job_id Error: A job with this id already exists.",
    )
    existing = jobs.get(name=f"{PARENT}/jobs/z_digits").execute()
    assert existing["trainingInput"] == body["trainingInput"]
    assert status_of(jobs.get(name=f"{PARENT}/jobs/unknown"))[0] == 404
    assert status_of(jobs.cancel(name=f"{PARENT}/jobs/unknown", body={}))[0] == 404


def test_tfx_and_fmltc_requests_are_accepted_and_their_polls_end(jobs: Any, world: World) -> None:
    """Source: TFX's training client (names in snake_case); fmltc (elapsed time, units, message)."""
    training = a_spec()["trainingInput"]
    jobs.create(
        parent=PARENT,
        body={
            "job_id": "tfx_20261121030000",
            "training_input": training,
            "labels": {"tfx_version": "1-16"},
        },
    ).execute()
    world.job_id = "tfx_20261121030000"
    world.deliver()
    world.report_all_ready()
    world.wait(1800)
    world.send("replica-exit", CHIEF, cause="process", exit_status=2)
    world.deliver()
    ended = jobs.get(name=f"{PARENT}/jobs/tfx_20261121030000").execute()
    assert ended["state"] == "FAILED"
    assert ended["errorMessage"].startswith(
        "The replica chief 0 exited with a non-zero status of 2."
    )
    assert ended["startTime"] < ended["endTime"]
    assert ended["trainingOutput"]["consumedMLUnits"] == 0.58


def test_python_client_gets_403_without_permission(endpoint: str) -> None:
    for token in (UNPRIVILEGED, VIEWER):
        client = build("ml", endpoint, token)
        body = {"jobId": "digits_1", **a_spec()}
        assert status_of(client.projects().jobs().create(parent=PARENT, body=body))[0] == 403
        client.close()


def test_python_client_reads_config_and_locations(endpoint: str) -> None:
    client = build("ml", endpoint)
    assert "serviceAccount" in client.projects().getConfig(name=PARENT).execute()
    locations = client.projects().locations()
    assert {"name": f"{PARENT}/locations/us-central1", "capabilities": [{"type": "TRAINING"}]} in (
        locations.list(parent=PARENT).execute()["locations"]
    )
    client.close()


def test_python_client_manages_vertex_custom_jobs(endpoint: str, world: World) -> None:
    client = build("aiplatform", endpoint)
    jobs = client.projects().locations().customJobs()
    parent = f"{PARENT}/locations/us-central1"
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": "1",
        "containerSpec": {"imageUri": "gcr.io/p/i:1"},
    }
    created = jobs.create(
        parent=parent, body={"displayName": "x", "jobSpec": {"workerPoolSpecs": [pool]}}
    ).execute()
    assert jobs.get(name=created["name"]).execute() == created
    assert status_of(jobs.delete(name=created["name"]))[0] == 400
    assert jobs.cancel(name=created["name"], body={}).execute() == {}
    assert jobs.delete(name=created["name"]).execute()["done"]
    assert jobs.list(parent=parent).execute() == {}
    client.close()


def test_client_as_the_page_on_migrating_builds_it_calls_this_api(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = read_page(ROOT / "docs" / "migrating.md")
    (expression,) = re.findall(r"`(discovery\.build\(.*?\))`", page)
    monkeypatch.setenv("TRAINMASTER_API_ENDPOINT", endpoint)
    monkeypatch.setattr(google.auth, "default", lambda **_: (Credentials(token=OWNER), PROJECT))
    client = eval(expression, {"discovery": discovery, "os": os})  # noqa: S307
    jobs = client.projects().jobs()
    assert jobs.list(parent=PARENT).uri.startswith(f"{endpoint}/")
    assert jobs.list(parent=PARENT).execute() == {}
    client.close()
