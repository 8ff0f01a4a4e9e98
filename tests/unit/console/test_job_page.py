"""The pages of one job: what they show in each of its states, and how a user cancels it."""

from __future__ import annotations

import re

import pytest

from tests.support.console_site import Site
from tests.support.jobs import CHIEF, WORKER_0
from tests.support.kept_jobs import a_keeping_job
from tests.support.study import Study
from tests.support.world import World
from tests.unit.console.pages import between, failed_job, job_rows, three_jobs, words
from trainmaster.core.model.job import JobState
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.transitions.change import Effect
from trainmaster.cost.report import CostSources
from trainmaster.ports.machine_sets import machine_set_of
from trainmaster_local.memory.bus import MemoryBus


def test_unknown_job_is_404(site: Site) -> None:
    response = site.get("/jobs/unknown_1")
    assert response.status_code == 404
    assert "<p>There is no job unknown_1" in response.text


def test_unknown_id_that_is_similar_to_a_job_names_it(site: Site) -> None:
    site.world.start_running()
    for wrong in ("Digits_1", "digits1", "digits-1"):
        page = site.get(f"/jobs/{wrong}").text
        assert f"<p>There is no job {wrong}; did you mean digits_1?</p>" in page


def test_job_without_a_log_may_print_only_while_it_lives(site: Site) -> None:
    site.world.start_running()
    assert "The job has printed nothing yet." in site.text("/jobs/digits_1")
    site.world.exit_program(CHIEF, 0)
    site.world.deliver()
    assert "The job has printed nothing." in site.text("/jobs/digits_1")


def test_pages_of_a_trial_link_to_its_tuning_job() -> None:
    study = Study()
    study.start_tuning()
    site = Site(study)
    site.open()
    above = '<p class="crumbs"><a href="/jobs">Jobs</a> / <a href="/jobs/digits_1">digits_1</a>'
    trial = "/jobs/digits_1-trial-1"
    assert f"{above}</p>" in site.text(trial)
    for path in (f"{trial}/logs", f"{trial}/resources", f"{trial}/replicas/chief-0"):
        assert f'{above} / <a href="{trial}">digits_1-trial-1</a></p>' in site.text(path)


def test_failed_job_shows_rule_replica_error_and_output_without_reading_logs(site: Site) -> None:
    world = failed_job(site)
    page = site.text("/jobs/digits_1")
    section = words(between(page, 'id="failure"', "</section>"))
    assert "The replica worker 0 exited with a non-zero status of 1." in section
    assert "worker 0, incarnation 1" in section
    assert f"rule {int(world.ledger[-1].decision.rule)}" in section
    assert "ImportError: <b>no</b> module named x" in section
    assert "What to do: Read the replica's log." in section
    assert site.queries == []


def test_links_of_decisions_lead_to_their_reasons(site: Site) -> None:
    failed_job(site)
    page, reasons = site.text("/jobs/digits_1?all=1"), site.text("/reasons")
    linked = set(re.findall(r'href="/reasons#([^"]+)"', page))
    assert "install_failed" in linked
    assert all(f'<dt id="{reason}">' in reasons for reason in linked)
    assert "in `" not in reasons
    assert "](" not in reasons


def test_waiting_job_shows_what_why_says(site: Site) -> None:
    site.world.submit()
    site.world.deliver()
    page = words(site.text("/jobs/digits_1"))
    sentences = next_steps(site.world.job, site.world.replicas)
    assert sentences
    assert all(sentence in page for sentence in sentences)


def test_job_in_the_admission_queue_shows_its_position_and_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(World(limits={"vcpus": 12}))
    site.open()
    three_jobs(site)
    with monkeypatch.context() as patch:  # each poll would else read all live jobs
        patch.delattr(type(site.world.store), "live_jobs")
        page = words(site.text("/jobs/digits_3"))
        assert "Position 2 in the admission queue: it needs 12 vcpus, and" in page
        assert "Position 2 in the admission queue" in words(site.text("/jobs"))
    installation = words(site.text("/installation"))
    assert "vcpus 12 12" in installation
    assert "digits_2 : it needs 12 vcpus" in installation
    assert "not confirmed yet" not in installation


def test_job_with_unconfirmed_effects_needs_attention(site: Site) -> None:
    site.world.submit()
    assert "Effects not confirmed yet, which the sweep checks every minute: digits_1" in words(
        site.text("/installation")
    )


def test_notification_is_no_effect_that_the_page_of_an_ended_job_waits_for() -> None:
    site = Site(World(notifications=MemoryBus()))
    site.open()
    world = failed_job(site)
    assert any(Effect.NOTIFY in entry.effects for entry in world.ledger)
    page = words(site.text("/jobs/digits_1?all=1"))
    assert "notify" not in page
    assert "not confirmed yet" not in page


def test_job_that_keeps_its_machines_shows_their_time_and_waits_for_nothing() -> None:
    world = a_keeping_job()
    sources = CostSources(machine_set=lambda job: machine_set_of(job, world.store))
    site = Site(world, cost_sources=sources)
    site.open()
    world.wait(1200)
    page = words(site.text("/jobs/first"))
    hours = len(world.replicas) * 1200 / 3600
    assert f"kept {hours:.2f} yes" in page
    assert f"paid {hours:.2f}" in page, "the job ran for seconds"
    assert "not confirmed yet" not in page
    assert "provision until its machines are released" in page


def test_job_page_lists_the_decisions_in_order_with_rules(site: Site) -> None:
    world = failed_job(site)
    page = site.text("/jobs/digits_1?all=1")
    assert re.findall(r'<tr id="decision-([^"]+)"', page) == [entry.key for entry in world.ledger]
    assert all(entry.decision.text in words(page) for entry in world.ledger)
    assert "not rule" in page


def test_job_page_of_one_replica_shows_its_decisions_only(site: Site) -> None:
    failed_job(site)
    keys = re.findall(r'<tr id="decision-([^"]+)"', site.text("/jobs/digits_1?replica=chief-0"))
    assert any("chief-0" in key for key in keys)
    assert not any("worker" in key for key in keys)
    assert site.get("/jobs/digits_1?replica=worker-9").status_code == 404


def test_timeline_has_a_lane_per_replica_and_a_mark_that_leads_to_the_decision(site: Site) -> None:
    world = failed_job(site)
    page = site.text("/jobs/digits_1")
    assert re.findall(r'class="lane-name"[^>]*>([^<]+)<', page) == [
        "job",
        "chief 0",
        "worker 0",
        "worker 1",
    ]
    drawing = between(page, "<svg", "</svg>")
    assert f'href="#decision-{world.ledger[-1].key}"' in drawing


def test_machine_time_of_the_page_equals_the_usage(site: Site) -> None:
    world = failed_job(site)
    page = words(site.text("/jobs/digits_1"))
    assert world.job.ended_at is not None
    assert world.job.started_at is not None
    hours = len(world.replicas) * (world.job.ended_at - world.job.started_at).total_seconds() / 3600
    assert f"Used: {hours:.2f} machine-hours" in page


def test_replica_page_shows_tf_config_and_rank(site: Site) -> None:
    site.world.start_running()
    page = words(site.text("/jobs/digits_1/replicas/worker-1"))
    assert '"type": "worker"' in page
    assert '"index": 1' in page
    assert re.search(r"RANK 2\b", page)
    assert re.search(r"WORLD_SIZE 3\b", page)


def test_tuning_job_shows_trials_and_plots() -> None:
    study = Study()
    site = Site(study)
    site.open()
    study.start_tuning()
    study.report_ready(1)
    study.complete_trial(1, 0.75)
    page = site.text("/jobs/digits_1")
    assert "Best trial" in page
    assert f"{study.tuning.metric_tag} = 0.75 at step 100" in words(page)
    assert 'href="/jobs/digits_1-trial-1"' in page
    assert page.count('class="trial-line ') >= len(study.tuning.trials)
    assert job_rows(site.text("/jobs")) == ["digits_1"]
    assert site.get("/jobs/digits_1-trial-1").status_code == 200


def test_sorted_trials_are_named_by_the_header_of_their_column() -> None:
    study = Study()
    site = Site(study)
    site.open()
    study.start_tuning()
    parameter = study.tuning.parameters[0].name
    for column, header in (
        ("value", study.tuning.metric_tag),
        (f"parameter:{parameter}", parameter),
    ):
        page = words(site.text(f"/jobs/digits_1?sort={column}"))
        assert f"Sorted by {header}." in page
        assert f"Trials, sorted by {header} " in page


def test_tuning_page_shows_values_of_running_trials_and_those_stopped_early() -> None:
    study = Study()
    site = Site(study)
    site.open()
    study.start_tuning(enableTrialEarlyStopping=True)
    study.report_ready(1, 2)
    study.write_metric(1, 0.25, -0.5)
    study.write_metric(2, 0.125)
    study.wait(60)
    study.sweep()
    study.deliver()
    page = site.text("/jobs/digits_1")
    rows = [
        words(row).split()[:4]
        for row in re.findall(r'<tr id="trial-\d+">.*?</tr>', page, re.DOTALL)
    ]
    assert ["1", "STOPPED", "-0.5", "200"] in rows
    assert ["2", "RUNNING", "0.125", "100"] in rows
    assert "Trial 1 is stopped early: -0.5 is negative." in words(page)


def test_poll_of_an_unchanged_page_is_304_and_reads_little(site: Site) -> None:
    site.world.start_running()
    first = site.get("/jobs/digits_1")
    again = site.get("/jobs/digits_1", If_None_Match=first.headers["ETag"])
    assert (again.status_code, again.data) == (304, b"")
    site.world.kill(WORKER_0)
    changed = site.get("/jobs/digits_1", If_None_Match=first.headers["ETag"])
    assert changed.status_code == 200


def test_page_of_an_ended_job_does_not_poll(site: Site) -> None:
    site.world.start_running()
    assert "data-poll=" in site.text("/jobs/digits_1")
    site.world.exit_program(CHIEF, 0)
    site.world.deliver()
    assert "data-poll=" not in site.text("/jobs/digits_1")


def test_cancel_records_the_user_and_happens_once(site: Site) -> None:
    site.world.start_running()
    token = site.form_token("/jobs/digits_1/cancel")
    for _ in range(2):
        response = site.post("/jobs/digits_1/cancel", token)
        assert (response.status_code, response.headers["Location"]) == (303, "/jobs/digits_1")
    assert site.world.state == JobState.CANCELLED
    assert [entry.key for entry in site.world.ledger].count("cancel") == 1
    assert "anna@example.com" in repr(site.world.ledger[-1].event)


def test_read_only_console_shows_no_form_and_refuses_cancellations() -> None:
    site = Site(is_read_only=True)
    site.open()
    site.world.start_running()
    assert "read-only" in site.text("/jobs/digits_1")
    page = site.text("/jobs/digits_1/cancel")
    assert "<form" not in page
    response = site.post("/jobs/digits_1/cancel", "x")
    assert response.status_code == 403
    assert site.world.state == JobState.RUNNING


def test_log_page_filters_by_job_replica_severity_and_text(site: Site) -> None:
    site.world.start_running()
    site.text("/jobs/digits_1/logs?task=worker-replica-1&severity=ERROR&text=a%22b")
    (query,) = site.queries
    assert 'labels."ml.googleapis.com/job_id"="digits_1"' in query
    assert 'labels."ml.googleapis.com/task_name"="worker-replica-1"' in query
    assert "severity>=ERROR" in query
    assert 'jsonPayload.message:"a\\"b"' in query
    assert site.get('/jobs/digits_1/logs?task=x"%20OR%20"').status_code == 400
    assert site.get("/jobs/digits_1/logs?before=now").status_code == 400
