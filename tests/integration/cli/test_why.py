"""`trainmaster why`: how it explains a job that gets no capacity."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.jobs import WORKER_0, a_spec
from tests.support.world import World
from trainmaster.cli.main import app
from trainmaster.core.events import CancelRequested, LabelsChanged
from trainmaster.core.model.job import Label
from trainmaster.core.reporting.explain import CAPACITY_ERRORS_SHOWN, READY_SHOWN
from trainmaster.core.rules.messages import JOB_EXISTS
from trainmaster.errors import PermanentError, RejectedError
from trainmaster.flows.commit.record import record
from trainmaster.ports import Rejection

A, B, C, F = (f"us-central1-{letter}" for letter in "abcf")


@pytest.fixture(autouse=True)
def _no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds of these tests have neither Cloud Monitoring nor Cloud Logging."""
    monkeypatch.setattr("trainmaster.cli.why.read_metrics", lambda *_: None)
    monkeypatch.setattr("trainmaster.cli.why.losses_in_log", lambda _: ())


GOOGLE = "does not have enough resources available"
"""Part of Compute Engine's message about a stockout."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr("trainmaster.cli.why.open_store", lambda: world.store)
    monkeypatch.setattr(
        "trainmaster.cli.why.settings", lambda: SimpleNamespace(limits=world.limits)
    )
    return world


def why(world: World, *options: str) -> str:
    result = CliRunner().invoke(app, ["why", world.job_id, *options])
    assert result.exit_code == 0, result.output
    return result.output


def provision_without_capacity(world: World, times: int) -> None:
    for _ in range(times):
        world.provision()
        world.wait(60)


def test_why_lists_each_zone_with_googles_message_and_the_next_zone(world: World) -> None:
    world.fleet.stockout_zones = {A, B}
    world.submit()
    world.deliver()
    explanation = why(world)
    lines = [line for line in explanation.splitlines() if "No capacity" in line]
    assert len(lines) == 2
    assert (
        f"for 1 x n1-standard-4 (chief) in {A} (ZONE_RESOURCE_POOL_EXHAUSTED: {A} {GOOGLE}):"
        f" trying {B}" in lines[0]
    )
    assert f"trying {C} next.  [rule 11]" in lines[1]
    assert f"VMs are requested in {C}, after 2 capacity errors so far" in explanation


def test_why_of_a_failed_job_ends_with_what_to_do(world: World) -> None:
    world.start_running()
    assert "What to do" not in why(world)
    error = {
        "type": "ImportError",
        "message": "no module named x",
        "frame": "task.py:3 in <module>",
    }
    world.exit_program(WORKER_0, 1, error=error, tail="ImportError: no module named x")
    world.deliver()
    last = why(world).splitlines()[-1]
    assert last.startswith("What to do: Read the replica's log. Add the missing package")
    assert last.endswith("`trainmaster why --reason install_failed`")


def test_replay_names_the_fields_of_a_wrong_policy_as_its_file_does(
    world: World, tmp_path: Path
) -> None:
    world.start_running()
    file = tmp_path / "policy.yaml"
    file.write_text("exitPolicy: {exitPolicy: {preset: service}}")
    result = CliRunner().invoke(app, ["replay", world.job_id, "--policy", str(file)])
    assert "trainmaster.exitPolicy.exitPolicy: is not a known name. Example: one of preset" in str(
        result.exception
    )


def test_replay_as_json_says_whether_the_states_are_equal_and_what_a_policy_would_change(
    world: World, tmp_path: Path
) -> None:
    world.start_running()
    world.exit_program(WORKER_0, 1)
    world.deliver()
    file = tmp_path / "policy.yaml"
    file.write_text("{preset: service}")

    def replayed(*options: str) -> Any:
        return json.loads(
            CliRunner().invoke(app, ["replay", world.job_id, *options, "--format", "json"]).stdout
        )

    assert (replayed()["equal"], replayed()["differences"]) == (True, [])
    (change,) = replayed("--policy", str(file))
    assert change["decided"] != change["wouldBe"]


def test_why_says_how_many_lines_the_log_refused(world: World) -> None:
    world.start_running()
    refused = "HTTP 403:\nPERMISSION_DENIED"
    world.exit_program(WORKER_0, 1, unlogged_lines=12, log_problem=refused)
    world.deliver()
    explanation = why(world)
    assert "When worker 0 exited, Cloud Logging had not accepted the last 12 lines" in explanation
    assert " of its log: HTTP 403: PERMISSION_DENIED. They may have arrived since." in explanation
    (gap,) = json.loads(why(world, "--format", "json"))["losses"]
    assert gap in explanation


def test_why_explains_a_reason_without_a_job_or_an_installation() -> None:
    result = CliRunner().invoke(app, ["why", "--reason", "install_failed"])
    assert result.exit_code == 0
    assert result.output.startswith("install_failed: A package could not be installed")


def test_why_of_a_cancelled_job_ends_with_the_reason_after_labels_were_changed(
    world: World,
) -> None:
    world.start_running()
    record(CancelRequested(world.job_id, "me", world.now), world.deps)
    world.wait(60)
    labels = (Label("team", "vision"),)
    record(LabelsChanged(world.job_id, labels, "1", world.now, "me"), world.deps)
    assert why(world).splitlines()[-1].endswith("`trainmaster why --reason cancelled_by_user`")


def test_why_of_a_queued_job_says_what_it_waits_for(world: World) -> None:
    world.limits = {"vcpus": 12}  # what one job uses: a chief and two workers of four each
    world.submit()
    world.deliver()
    world.job_id = "digits_2"
    world.submit(source="gs://b/jobs/digits.yaml#2")
    world.deliver()
    explanation = why(world)
    assert (
        "Next: Position 1 in the admission queue: it needs 12 vcpus, and 12 of 12 are in use"
        in explanation
    )
    assert "Every replica runs" not in explanation


def test_why_of_next_job_names_the_zones_with_their_chances(world: World) -> None:
    world.fleet.stockout_zones = {A}
    world.submit()
    world.deliver()
    world.wait(3600)
    world.job_id = "digits_2"
    world.submit(source="gs://b/jobs/digits.yaml#2")
    world.deliver()
    # An hour ago, A failed once and B had capacity. Nothing is known of C and F.
    order = (
        f"Zones in this order: {B} (chance 82%), {C} (chance 50%), {F} (chance 50%), {A} (chance"
        " 18%)."
    )
    assert order in " ".join(why(world).split())


def test_why_of_long_provisioning_omits_capacity_errors_in_the_middle(world: World) -> None:
    world.fleet.stockout_zones = {A, B, C, F}
    world.submit()
    provision_without_capacity(world, 6)
    errors = 6 * 4  # one in each zone
    assert world.job.placement.round == errors
    explanation = why(world)
    shown = CAPACITY_ERRORS_SHOWN + 1  # the first ones and the last one
    assert explanation.count("No capacity") == shown
    assert f"{errors - shown} similar decisions are omitted" in explanation
    assert why(world, "--all").count("No capacity") == errors


def test_why_of_a_large_job_omits_reports_of_ready_replicas_in_the_middle(world: World) -> None:
    world.submit(a_spec(workerCount=29))
    world.deliver()
    world.report_all_ready()
    explanation = why(world)
    replicas = 30  # the chief and 29 workers
    shown = READY_SHOWN + 1  # the first ones and the last one
    assert explanation.count(" is ready on ") == shown
    assert f"{replicas - shown} similar decisions are omitted" in explanation
    assert why(world, "worker-20").count(" is ready on ") == 1
    assert why(world, "--all").count(" is ready on ") == replicas


@pytest.mark.parametrize(
    ("scheduling", "until"),
    [
        ({"maxWaitTime": "3600s"}, "2026-11-21 04:00:00 (maxWaitTime)"),
        ({}, "2026-11-28 03:00:00 (no maxWaitTime is set)"),
    ],
)
def test_why_shows_when_provisioning_ends(
    world: World, scheduling: dict[str, str], until: str
) -> None:
    world.fleet.stockout_zones = {A, B, C, F}
    world.submit(a_spec(scheduling=scheduling))
    provision_without_capacity(world, 1)
    explanation = why(world)
    assert f"Requests end at {until}" in explanation
    assert (
        f"the next request is at {world.job.placement.next_at:%H:%M:%S}, or within a minute after"
        in explanation
    )


def test_why_of_running_job_mentions_no_requests(world: World) -> None:
    world.start_running()
    assert "requested" not in why(world)


def test_second_submission_of_a_used_id_is_reported_where_its_uploader_looks(world: World) -> None:
    """Both files are uploaded within seconds: neither job exists when their ids are checked."""
    world.submit(source="gs://b/jobs/first.yaml#1")
    world.wait(3)
    with pytest.raises(RejectedError):
        world.submit(a_spec(args=["--epochs", "7"]), source="gs://b/jobs/second.yaml#2")
    sentence = (
        "Another submission of this job id: gs://b/jobs/second.yaml#2 was refused at 2026-11-21"
        f" 03:00 UTC: {JOB_EXISTS}"
    )
    assert sentence in " ".join(why(world).split())
    (refused,) = json.loads(why(world, "--format", "json"))["refusedSubmissions"]
    assert refused["source"] == "gs://b/jobs/second.yaml#2"
    assert refused["time"] == "2026-11-21T03:00:03Z"


def test_refused_submission_without_a_job_is_reported_by_its_id(world: World) -> None:
    with pytest.raises(RejectedError):
        world.submit(a_spec(scaleTier="HUGE"))
    result = CliRunner().invoke(app, ["why", world.job_id])
    assert isinstance(result.exception, PermanentError)
    assert str(result.exception).startswith(
        f"there is no job {world.job_id}: gs://b/jobs/digits.yaml#1 was refused at 2026-11-21 03:00"
        " UTC: Field: "
    )


@pytest.mark.parametrize(
    "asked", ["digits", "digits.yaml", "jobs/digits.yaml", "gs://b/jobs/digits.yaml"]
)
def test_refused_file_that_names_no_job_is_found_by_its_name(world: World, asked: str) -> None:
    source = "gs://b/jobs/digits.yaml#7"
    world.store.reject(Rejection("key", source, None, ("Field: job Error: no YAML.",), world.now))
    result = CliRunner().invoke(app, ["why", asked])
    assert isinstance(result.exception, PermanentError)
    assert str(result.exception).startswith(
        f"there is no job {asked}: {source} was refused at 2026-11-21 03:00 UTC: Field: job"
    )


def test_refused_message_that_names_no_job_is_found_by_no_name(world: World) -> None:
    world.store.reject(Rejection("key", "message:5ac1", None, ("no JSON",), world.now))
    result = CliRunner().invoke(app, ["why", "message"])
    assert str(result.exception).startswith("there is no job message. ")


def test_why_of_another_job_reports_no_refused_submission(world: World) -> None:
    world.submit()
    world.job_id, own = "other", world.job_id
    with pytest.raises(RejectedError):
        world.submit(a_spec(scaleTier="HUGE"))
    world.job_id = own
    assert "Another submission" not in why(world)
    assert "refusedSubmissions" not in json.loads(why(world, "--format", "json"))
