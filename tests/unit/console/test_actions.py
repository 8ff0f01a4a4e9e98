"""Clone, resubmit, labels and delete: forms, problems by field, one effect for two clicks, and
refusals.
"""

from __future__ import annotations

import html
import json
import logging
import re

import pytest
import yaml
from werkzeug.test import TestResponse

from tests.support.captured_logs import CapturedLogs
from tests.support.console_site import READ_ONLY, Site
from tests.support.jobs import CHIEF
from tests.support.study import Study
from tests.unit.console.pages import between
from trainmaster.console.actions import Action, ActionDeniedError, Actions, all_denied
from trainmaster.core.model.job import JobState
from trainmaster.core.reporting.submission_words import describe_submission

ACTIONS = ("clone", "resubmit", "labels", "delete")


@pytest.fixture
def ended(site: Site) -> Site:
    """Return a site whose job has succeeded."""
    site.world.start_running()
    site.world.exit_program(CHIEF, 0)
    site.world.deliver()
    assert site.world.state == JobState.SUCCEEDED
    return site


def form_of(site: Site, path: str) -> dict[str, str]:
    """Return the fields of the page's form as the browser would send them."""
    page = site.text(path)
    form = between(page, 'method="post"', "</form>")
    fields = dict(re.findall(r'<input[^>]*name="(\w+)" value="([^"]*)"', form))
    fields |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>(.*?)</textarea>', form, re.DOTALL))
    assert fields, page
    return {name: html.unescape(value) for name, value in fields.items()}


def send(site: Site, path: str, fields: dict[str, str], **headers: str) -> TestResponse:
    return site.send(path, fields, **headers)


def submitted(site: Site, response: TestResponse) -> str:
    """Deliver the submission, and return the page that follows it."""
    assert response.status_code == 303, response.text
    site.world.deliver()
    return site.text(response.headers["Location"])


def test_resubmitted_job_has_the_same_spec_a_new_id_and_the_user_as_its_origin(ended: Site) -> None:
    fields = form_of(ended, "/jobs/digits_1/resubmit")
    assert fields["job_id"] == "digits_1_20261121_030000"
    page = submitted(ended, send(ended, "/jobs/digits_1/resubmit", fields))
    assert 'href="/jobs/digits_1_20261121_030000"' in page
    original = ended.world.job
    ended.world.job_id = fields["job_id"]
    again = ended.world.job
    assert again.plan == original.plan
    assert json.loads(again.spec_json) == {
        **json.loads(original.spec_json),
        "jobId": fields["job_id"],
    }
    assert describe_submission(again) == "in the console, by anna@example.com (unverified)"
    assert ended.world.ledger[0].event.job.submission.endswith("/anna@example.com")  # type: ignore[union-attr]


def test_id_of_a_resubmitted_job_does_not_grow(ended: Site) -> None:
    first = form_of(ended, "/jobs/digits_1/resubmit")
    submitted(ended, send(ended, "/jobs/digits_1/resubmit", first))
    ended.world.wait(3600)
    assert (
        form_of(ended, f"/jobs/{first['job_id']}/resubmit")["job_id"] == "digits_1_20261121_040000"
    )


def test_cloned_job_has_the_changed_spec(ended: Site) -> None:
    fields = form_of(ended, "/jobs/digits_1/clone")
    document = yaml.safe_load(fields["spec"])
    document["trainingInput"]["workerCount"] = 5
    fields |= {"job_id": "digits_large", "spec": yaml.safe_dump(document)}
    submitted(ended, send(ended, "/jobs/digits_1/clone", fields))
    ended.world.job_id = "digits_large"
    assert len(ended.world.job.plan.replica_ids) == 6


def test_clone_with_mistakes_shows_every_problem_by_field_and_keeps_the_text(ended: Site) -> None:
    fields = form_of(ended, "/jobs/digits_1/clone")
    text = fields["spec"].replace("n1-standard-4", "n9-huge").replace("us-central1", "nowhere")
    response = send(ended, "/jobs/digits_1/clone", {**fields, "spec": text, "job_id": "1-wrong"})
    assert response.status_code == 422
    problems = re.findall(r"<li>\s*<code>([^<]+)</code>", response.text)
    assert {
        "jobId",
        "trainingInput.masterType",
        "trainingInput.workerType",
        "trainingInput.region",
    } <= set(problems)
    assert text in html.unescape(response.text)
    assert ended.world.bus.size == 0


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", "a: b: c", "trainingInput: !!python/object:os.system {}", "x" * 70_000]
)
def test_clone_that_is_not_a_job_file_is_refused(ended: Site, text: str) -> None:
    fields = form_of(ended, "/jobs/digits_1/clone")
    response = send(ended, "/jobs/digits_1/clone", {**fields, "spec": text})
    assert response.status_code == 422
    assert 'id="problems"' in response.text
    assert ended.world.bus.size == 0


def test_used_id_is_refused_before_the_job_is_published(ended: Site) -> None:
    fields = form_of(ended, "/jobs/digits_1/resubmit")
    response = send(ended, "/jobs/digits_1/resubmit", {**fields, "job_id": "digits_1"})
    assert response.status_code == 422
    assert "digits_1 exists" in response.text
    assert ended.world.bus.size == 0


def test_two_clicks_submit_one_job(ended: Site) -> None:
    fields = form_of(ended, "/jobs/digits_1/resubmit")
    locations = {
        send(ended, "/jobs/digits_1/resubmit", fields).headers["Location"] for _ in range(2)
    }
    ended.world.deliver()
    third = send(ended, "/jobs/digits_1/resubmit", fields).headers["Location"]
    ended.world.deliver()
    assert locations == {third}
    assert ended.world.store.rejections() == ()
    assert len(ended.world.store.recent_jobs(10)) == 2


def test_page_of_a_refused_submission_shows_why(ended: Site) -> None:
    fields = form_of(ended, "/jobs/digits_1/clone")
    text = fields["spec"] + "trainmaster:\n  reservation: another-teams\n"
    page = submitted(ended, send(ended, "/jobs/digits_1/clone", {**fields, "spec": text}))
    assert "The job was refused" in page
    assert "names a reservation" in page
    assert "data-poll" not in page


def test_page_of_a_submission_polls_until_it_is_stored_or_late(ended: Site) -> None:
    fields = form_of(ended, "/jobs/digits_1/resubmit")
    location = send(ended, "/jobs/digits_1/resubmit", fields).headers["Location"]
    assert "data-poll=" in ended.text(location)
    ended.world.wait(61)
    late = ended.text(location)
    assert "trainmaster doctor" in late
    assert "data-poll" not in late
    assert ended.get(f"{location.partition('?')[0]}?at=now").status_code == 400


def test_trial_can_neither_be_cloned_nor_deleted() -> None:
    study = Study()
    site = Site(study)
    site.open()
    study.start_tuning()
    page = site.text("/jobs/digits_1-trial-1")
    assert "/clone" not in page
    assert site.get("/jobs/digits_1-trial-1/clone").status_code == 404
    assert site.get("/jobs/digits_1-trial-1/resubmit").status_code == 404


def test_labels_are_replaced_once_and_only_in_the_version_that_was_seen(site: Site) -> None:
    site.world.start_running()
    first, second = (form_of(site, "/jobs/digits_1/labels") for _ in range(2))
    for _ in range(2):
        assert (
            send(
                site, "/jobs/digits_1/labels", {**first, "labels": "team=vision\nphase=2"}
            ).status_code
            == 303
        )
    assert {label.key: label.value for label in site.world.job.labels} == {
        "team": "vision",
        "phase": "2",
    }
    (entry,) = [entry for entry in site.world.ledger if entry.key.startswith("labels-")]
    text = "The job's labels are now: phase=2, team=vision; changed by anna@example.com."
    assert (entry.event.by, entry.decision.text) == ("anna@example.com", text)  # type: ignore[union-attr]
    assert form_of(site, "/jobs/digits_1/labels")["labels"] == "phase=2\nteam=vision"
    response = send(site, "/jobs/digits_1/labels", {**second, "labels": "team=speech"})
    assert response.status_code == 409
    assert "Another user has changed the labels" in response.text
    assert {label.value for label in site.world.job.labels} == {"vision", "2"}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("Team=vision", "labels.Team"),
        ("vision", "labels.vision"),
        ("a=1\na=2", "labels.a"),
        ("a=B!", "labels.a"),
    ],
)
def test_wrong_labels_are_refused_by_field(site: Site, text: str, field: str) -> None:
    site.world.start_running()
    fields = form_of(site, "/jobs/digits_1/labels")
    response = send(site, "/jobs/digits_1/labels", {**fields, "labels": text})
    assert response.status_code == 422
    assert f"<code>{field}</code>" in response.text
    assert site.world.job.labels == ()


def test_ended_job_is_deleted_once(ended: Site, caplog: CapturedLogs) -> None:
    caplog.set_level(logging.INFO, "trainmaster.console.actions")
    fields = form_of(ended, "/jobs/digits_1/delete")
    for _ in range(2):
        response = send(ended, "/jobs/digits_1/delete", fields)
        assert (response.status_code, response.headers["Location"]) == (303, "/jobs")
    assert ended.world.job.deleted_at is not None
    (entry,) = [entry for entry in ended.world.ledger if entry.key.startswith("delete-")]
    assert entry.decision.text.startswith("Deleted by anna@example.com;")
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name == "trainmaster.console.actions"
    ]
    assert set(lines) == {"anna@example.com deleted digits_1"}, (
        "the log outlives the ledger of a deleted job"
    )
    assert ended.get("/jobs/digits_1").status_code == 404


def test_running_job_cannot_be_deleted(site: Site) -> None:
    site.world.start_running()
    assert "/jobs/digits_1/delete" not in site.text("/jobs/digits_1")
    assert "<form" not in site.text("/jobs/digits_1/delete")
    fields = form_of(site, "/jobs/digits_1/labels")
    response = send(site, "/jobs/digits_1/delete", fields)
    assert response.status_code == 400
    assert "cancel it first" in response.text
    assert site.world.job.deleted_at is None


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "change",
    [{"token": ""}, {"Origin": "http://attacker.example"}, {"Sec_Fetch_Site": "cross-site"}],
    ids=lambda change: next(iter(change)),
)
def test_forged_action_is_403_and_changes_nothing(
    ended: Site, action: str, change: dict[str, str]
) -> None:
    before, jobs = ended.world.ledger, ended.world.store.recent_jobs(10)
    fields = form_of(ended, f"/jobs/digits_1/{action}")
    token = change.get("token", fields["token"])
    headers = {name: value for name, value in change.items() if name != "token"}
    response = ended.send(f"/jobs/digits_1/{action}", {**fields, "token": token}, **headers)
    assert response.status_code == 403
    assert (ended.world.ledger, ended.world.store.recent_jobs(10), ended.world.bus.size) == (
        before,
        jobs,
        0,
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_form_without_its_key_is_refused(ended: Site, action: str) -> None:
    fields = form_of(ended, f"/jobs/digits_1/{action}")
    response = send(ended, f"/jobs/digits_1/{action}", {**fields, "key": "../x"})
    assert response.status_code == 400
    assert "key: must be" in response.text


def test_read_only_console_disables_buttons_and_says_what_is_missing() -> None:
    site = Site(is_read_only=True)
    site.open()
    site.world.start_running()
    page = site.text("/jobs/digits_1")
    actions = between(page, 'id="actions"', "</p>")
    assert actions.count("<button disabled") == 4
    assert "href" not in actions
    assert READ_ONLY in actions
    before = site.world.ledger
    fields = form_of(site, "/jobs/digits_1/labels")
    for action in ("cancel", *ACTIONS):
        response = send(site, f"/jobs/digits_1/{action}", {**fields, "spec": "", "job_id": "x_1"})
        assert response.status_code in (403, 422), action
    resubmission = {**fields, "job_id": "digits_2"}
    assert send(site, "/jobs/digits_1/resubmit", resubmission).status_code == 403
    assert (site.world.ledger, site.world.bus.size) == (before, 0)


def test_button_of_one_denied_action_is_disabled_and_the_others_are_not(site: Site) -> None:
    site.world.start_running()
    denied = {Action.SUBMIT: "You lack pubsub.topics.publish on trainmaster-submit."}
    site.app.config["CONSOLE"] = site.console_with(Actions(lambda: site.world.deps, lambda: denied))
    actions = between(site.text("/jobs/digits_1"), 'id="actions"', "</p>")
    assert re.findall(r"<button disabled[^>]*>(\w+)", actions) == ["Clone", "Resubmit"]
    assert "You lack pubsub.topics.publish on trainmaster-submit." in actions
    assert "/jobs/digits_1/cancel" in actions


def test_denied_actions_raise_before_anything_is_loaded() -> None:
    actions = Actions(lambda: pytest.fail("used"), lambda: all_denied("no"))
    for act in (
        lambda: actions.cancel("digits_1", user="anna"),
        lambda: actions.submit({}, source="console:1/anna"),
        lambda: actions.change_labels("digits_1", {}, key="request-1", seen=1, user="anna"),
        lambda: actions.delete("digits_1", key="request-1", user="anna"),
    ):
        with pytest.raises(ActionDeniedError, match="no"):
            act()
