"""The responses of `projects.jobs`, in one process, with the real flows."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.api.client import JOBS, OWNER, Api, quota_error
from tests.support.jobs import CHIEF, a_spec
from tests.support.world import World
from trainmaster.core.model.job import Label
from trainmaster.core.reporting.submission_words import describe_submission
from trainmaster.errors import TemporaryError

GCLOUD = (
    "gcloud/528.0.0 command/gcloud.ai-platform.jobs.submit.training invocation-id/{}"
    " environment/None"
)


def test_created_job_is_stored_before_the_response_and_shown_as_the_service_did(
    api: Api, world: World
) -> None:
    created = api.create()
    assert world.job.job_id == "digits_1"
    assert created == {
        "jobId": "digits_1",
        "trainingInput": a_spec()["trainingInput"],
        "trainingOutput": {},
        "createTime": "2026-11-21T03:00:00Z",
        "state": "QUEUED",
        "jobPosition": "0",
        "etag": created["etag"],
    }
    assert api.get() == created
    world.deliver()
    world.report_all_ready()
    running = api.get()
    assert (running["state"], running["startTime"]) == ("RUNNING", "2026-11-21T03:00:03Z")
    world.wait(3600)
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    ended = api.get()
    assert (ended["state"], ended["endTime"]) == ("SUCCEEDED", "2026-11-21T04:00:04Z")
    assert ended["trainingOutput"] == {"consumedMLUnits": 1.16}
    world.check()


@pytest.mark.parametrize(
    "given",
    [
        {"workerCount": 2, "args": ["--a", "1.0"]},
        {"workerCount": "2", "scaleTier": "custom", "use_chief_in_tf_config": "True"},
        {"workerCount": "2", "scheduling": {"maxRunningTime": "7200s"}, "enableWebAccess": False},
    ],
)
def test_training_input_is_returned_as_submitted(api: Api, given: dict[str, object]) -> None:
    sent = a_spec(**given)["trainingInput"]
    assert api.create(**given)["trainingInput"] == sent
    assert api.get()["trainingInput"] == sent


def test_snake_case_names_are_accepted_and_returned_in_camel_case(api: Api) -> None:
    """Source: TFX sends `job_id` and `training_input`."""
    training = a_spec()["trainingInput"]
    body = {"job_id": "tfx_1", "training_input": training, "labels": {"tfx_py_version": "3-7"}}
    created = api.send_ok("POST", JOBS, body)
    assert (created["jobId"], created["trainingInput"]) == ("tfx_1", training)
    assert created["labels"] == {"tfx_py_version": "3-7"}


def test_second_create_of_same_id_is_a_conflict_whatever_its_body(api: Api) -> None:
    api.create()
    for body in ({"jobId": "digits_1", **a_spec()}, {"jobId": "digits_1", **a_spec(workerCount=1)}):
        error = api.send_refused("POST", JOBS, body)
        assert error == {
            "code": 409,
            "message": "Field: job.job_id Error: A job with this id already exists.",
            "status": "ALREADY_EXISTS",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [
                        {"field": "job.job_id", "description": "A job with this id already exists."}
                    ],
                }
            ],
        }


def test_create_repeated_by_gclouds_transport_returns_the_same_job(api: Api, world: World) -> None:
    body = {"jobId": "digits_1", **a_spec()}
    first = api.send_ok("POST", JOBS, body, agent=GCLOUD.format("aaaaaaaa1111"))
    world.deliver()
    again = api.send_ok("POST", JOBS, body, agent=GCLOUD.format("aaaaaaaa1111"))
    assert (again["createTime"], again["state"]) == (
        first["createTime"],
        "PREPARING",
    ), "as it stands now"
    assert len(world.store.recent_jobs(5)) == 1
    assert api.send_refused("POST", JOBS, body, agent=GCLOUD.format("bbbbbbbb2222"))["code"] == 409
    other = {"jobId": "digits_1", **a_spec(workerCount=1)}
    assert api.send_refused("POST", JOBS, other, agent=GCLOUD.format("aaaaaaaa1111"))["code"] == 409


def test_stored_job_is_returned_even_if_publishing_to_provision_failed(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TemporaryError("Pub/Sub is not there")

    with monkeypatch.context() as patch:
        patch.setattr(world.bus, "publish", broken)
        api.create()
    world.sweep()
    world.deliver()
    assert world.state == "PREPARING", "the sweep publishes the missing message"


def test_create_that_cannot_be_stored_is_unavailable_and_stores_nothing(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TemporaryError("Firestore is not there")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "commit", broken)
        error = api.send_refused("POST", JOBS, {"jobId": "digits_1", **a_spec()})
    assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
    assert world.store.recent_jobs(5) == ()
    assert world.bus.drain() == []
    api.create()


def test_wrong_job_is_refused_with_every_field_and_nothing_is_stored(
    api: Api, world: World
) -> None:
    body = {
        "jobId": "bad-name!",
        "trainingInput": {"scaleTier": "CUSTOM", "region": "nowhere", "bogusField": 1},
    }
    error = api.send_refused("POST", JOBS, body)
    (detail,) = error["details"]
    fields = [violation["field"] for violation in detail["fieldViolations"]]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert {"job.job_id", "training_input.region", "training_input.bogus_field"} <= set(fields)
    assert error["message"].splitlines()[0].startswith("Field: ")
    assert len(error["message"].splitlines()) == len(fields)
    assert world.store.recent_jobs(5) == ()
    assert world.store.rejections() == (), "the client has the error, so no rejection is stored"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"jobId": 1}', b"\xff", b'{"a": {"a": ' * 50]
)
def test_body_that_is_not_a_job_is_an_invalid_argument(api: Api, body: bytes) -> None:
    error = api.send_refused("POST", JOBS, body)
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")


def test_job_id_of_a_schedule_gets_the_time_of_the_schedule(api: Api) -> None:
    """Cloud Scheduler calls again after a failure: the second call meets the job of the first."""
    data = json.dumps({"jobId": "nightly_{time:%Y%m%d_%H%M}", **a_spec()})
    headers = {
        "Authorization": f"Bearer {OWNER}",
        "X-CloudScheduler-ScheduleTime": "2026-11-22T03:00:00.123456Z",
    }
    answers = [api.http.post(JOBS, data=data, headers=headers).status_code for _ in range(2)]
    assert answers == [200, 409]
    assert api.get("nightly_20261122_0300")["jobId"] == "nightly_20261122_0300"


def test_job_id_without_a_usable_time_of_the_schedule_gets_the_time_of_the_request(
    api: Api,
) -> None:
    data = json.dumps({"jobId": "nightly_{time:%Y%m%d_%H%M}", **a_spec()})
    statuses = []
    for unusable in ("0001-01-01T00:00:00+14:00", "soon", ""):
        headers = {
            "Authorization": f"Bearer {OWNER}",
            "X-CloudScheduler-ScheduleTime": unusable,
        }
        statuses.append(api.http.post(JOBS, data=data, headers=headers).status_code)
    assert statuses == [200, 409, 409], "all within one minute"
    assert api.get("nightly_20261121_0300")["jobId"] == "nightly_20261121_0300"


def test_endless_body_is_read_only_to_the_limit(api: Api) -> None:
    size = 5 << 20
    stream = io.BytesIO(b"x" * size)
    headers = {"Authorization": f"Bearer {OWNER}", "Content-Length": str(size)}
    answer = api.http.post(JOBS, input_stream=stream, headers=headers)
    assert answer.status_code == 400
    assert "more than 1048576" in answer.get_json()["error"]["message"]
    assert stream.tell() < 2 << 20


def test_cancel_ends_the_job_and_deletes_its_vms(api: Api, world: World) -> None:
    api.create()
    world.deliver()
    assert world.vms
    assert api.cancel() == {}
    assert (world.state, api.get()["errorMessage"]) == ("CANCELLED", "Job is cancelled by the user")
    world.deliver()
    world.deliver()
    assert not world.vms
    assert api.cancel() == {}, "of a job that has ended: nothing, and no error"
    world.check()


@pytest.mark.parametrize(
    ("emails", "by"), [({OWNER: "anna@example.com"}, "anna@example.com"), ({}, "a user of the API")]
)
def test_ledger_names_who_cancelled_if_the_token_identifies_them(
    api: Api, world: World, emails: dict[str, str], by: str
) -> None:
    api.access.emails = emails
    api.create()
    api.cancel()
    assert world.ledger[-1].decision.text == f"Cancelled by {by}."
    assert "anna" not in str(api.get()), "the service had no field for it"


@pytest.mark.parametrize(
    ("emails", "by"), [({OWNER: "anna@example.com"}, "anna@example.com"), ({}, "a user of the API")]
)
def test_ledger_names_who_changed_the_labels(
    api: Api, world: World, emails: dict[str, str], by: str
) -> None:
    api.access.emails = emails
    api.create()
    api.label({"team": "vision"})
    assert (
        world.ledger[-1].decision.text == f"The job's labels are now: team=vision; changed by {by}."
    )
    world.check()


def test_job_stores_who_created_it(api: Api, world: World) -> None:
    api.access.emails = {OWNER: "anna@example.com"}
    created = api.create()
    assert world.job.submitted_by == "anna@example.com"
    assert describe_submission(world.job) == "through the API, by anna@example.com"
    assert "anna" not in str(created), "the service had no field for it"
    world.check()


def test_unknown_caller_email_does_not_fail_the_request(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> str:
        raise TemporaryError("UserInfo answers 503")

    monkeypatch.setattr(api.access, "email", broken)
    api.create()
    api.cancel()
    assert (world.state, world.ledger[-1].decision.text) == (
        "CANCELLED",
        "Cancelled by a user of the API.",
    )


def test_cancel_of_succeeded_job_changes_nothing(api: Api, world: World) -> None:
    api.create()
    world.deliver()
    world.report_all_ready()
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    ended = api.get()
    assert api.cancel() == {}
    assert api.get() == ended
    world.check()


@pytest.mark.parametrize(
    ("command", "hides_fresh_end"),
    [
        ("ai-platform.jobs.stream-logs", True),
        ("beta.ai-platform.jobs.stream-logs", True),
        ("ml-engine.jobs.submit.training", True),
        ("ai-platform.jobs.describe", False),
        ("ai-platform.jobs.list", False),
    ],
)
def test_gcloud_that_streams_a_log_sees_the_end_when_the_last_lines_are_readable(
    api: Api, world: World, command: str, hides_fresh_end: bool
) -> None:
    agent = (
        f"google-cloud-sdk gcloud/528.0.0 command/gcloud.{command} invocation-id/0123456789abcdef"
        " environment/None"
    )
    api.create()
    assert "endTime" not in api.send_ok("GET", f"{JOBS}/digits_1", agent=agent)
    api.cancel()
    # It is hidden for 75 seconds.
    for passed_s, is_hidden in ((0, hides_fresh_end), (74, hides_fresh_end), (1, False)):
        world.now += timedelta(seconds=passed_s)
        view = api.send_ok("GET", f"{JOBS}/digits_1", agent=agent)
        assert view["state"] == "CANCELLED"
        assert ("endTime" not in view) is is_hidden
        assert "endTime" in api.get()


def test_patch_replaces_all_labels_of_running_and_ended_job(api: Api, world: World) -> None:
    api.create()
    first = api.get()
    changed = api.label({"team": "vision", "stage": "a"})
    assert changed["labels"] == {"team": "vision", "stage": "a"}
    assert changed["etag"] != first["etag"]
    api.cancel()
    assert "labels" not in api.label({})
    assert api.label({"b": "2"})["labels"] == {"b": "2"}
    assert world.job.labels == (Label("b", "2"),)
    world.check()


def test_patch_with_outdated_etag_is_aborted(api: Api, world: World) -> None:
    api.create()
    read = api.get()["etag"]
    mine = api.label({"a": "mine"}, mask="labels,etag", etag=read)
    theirs = {"labels": {"a": "theirs"}, "etag": read}
    error = api.send_refused("PATCH", f"{JOBS}/digits_1", theirs, updateMask="labels,etag")
    assert (error["code"], error["status"]) == (409, "ABORTED")
    assert api.get() == mine
    api.label({"a": "theirs"}, mask="labels")
    assert api.get()["labels"] == {"a": "theirs"}
    world.check()


def test_of_two_concurrent_patches_with_one_etag_only_one_succeeds(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.create()
    read = api.get()["etag"]
    commit = world.store.commit

    def overtaken(*args: Any) -> None:
        monkeypatch.setattr(world.store, "commit", commit)
        api.label({"a": "first"}, mask="labels,etag", etag=read)
        commit(*args)

    monkeypatch.setattr(world.store, "commit", overtaken)
    body = {"labels": {"a": "second"}, "etag": read}
    error = api.send_refused("PATCH", f"{JOBS}/digits_1", body, updateMask="labels,etag")
    assert error["status"] == "ABORTED"
    assert world.job.labels == (Label("a", "first"),)
    world.check()


@pytest.mark.parametrize(
    ("mask", "body", "field"),
    [
        ("", {"labels": {}}, "update_mask"),
        ("state", {"state": "SUCCEEDED"}, "update_mask"),
        ("labels,trainingInput", {"labels": {}}, "update_mask"),
        ("labels,etag", {"labels": {}}, "job.etag"),
        ("labels", {"labels": {"Team": "x"}}, "job.labels.Team"),
        ("labels", {"labels": {"team": "Vision!"}}, "job.labels.team"),
        ("labels", {"labels": {"team": 3}}, "job.labels.team"),
        ("labels", {"labels": "team"}, "job.labels"),
    ],
)
def test_wrong_patch_is_refused_at_its_field(api: Api, mask: str, body: object, field: str) -> None:
    before = api.create()
    error = api.send_refused("PATCH", f"{JOBS}/digits_1", body, updateMask=mask)
    (violation,) = error["details"][0]["fieldViolations"]
    assert (error["code"], violation["field"]) == (400, field)
    assert api.get() == before


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "unknown", {}),
        ("POST", "unknown:cancel", {}),
        ("PATCH", "unknown", {"updateMask": "labels"}),
        ("GET", "unknown:getIamPolicy", {}),
        ("GET", "no%20body", {}),
        ("GET", "n" * 2000, {}),
    ],
)
def test_unknown_job_is_not_found(api: Api, method: str, path: str, query: dict[str, str]) -> None:
    error = api.send_refused(
        method, f"{JOBS}/{path}", {"labels": {}} if method != "GET" else None, **query
    )
    assert (error["code"], error["status"]) == (404, "NOT_FOUND")


def test_creations_over_quota_are_refused_until_the_minute_is_over(api: Api, world: World) -> None:
    for number in range(60):
        api.create(f"job_{number}")
    error = api.send_refused("POST", JOBS, {"jobId": "job_60", **a_spec()})
    sentence = "The request exceeds the allowed maximum of 60 jobs created per minute."
    assert error == quota_error(sentence, limit=60, retry_s=1)
    world.wait(61)
    api.create("job_60")
