"""Pages of the console on adapters in memory: content, filters, entity tags, sign-in and forged
requests.
"""

from __future__ import annotations

import html
import re
from http import HTTPStatus
from urllib.parse import urlencode

import pytest

from tests.support.console_site import ORIGIN, Site
from tests.support.jobs import CHIEF, WORKER_0, a_spec
from tests.support.kept_jobs import a_keeping_job
from tests.support.study import Study
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.transitions.change import Effect
from trainmaster.cost.report import CostSources
from trainmaster.ports.machine_sets import machine_set_of
from trainmaster_local.memory.bus import MemoryBus

PATHS = (
    "/jobs",
    "/jobs/digits_1",
    "/jobs/digits_1/logs",
    "/jobs/digits_1/replicas/worker-0",
    "/compare?job=digits_1",
    "/installation",
    "/help",
    "/reasons",
)
ADDRESSES = (
    *PATHS,
    "/jobs/digits_1/logs.txt",
    "/jobs/digits_1/resources",
    "/jobs.json",
    f"/submissions/digits_1/{'k' * 16}",
)
PARAMETERS = (
    "replica",
    "all",
    "replicas",
    "table",
    "gaps",
    "from",
    "to",
    "brush",
    "sort",
    "order",
    "at",
    "hours",
    "job",
    "task",
    "severity",
    "text",
    "before",
    "around",
    "follow",
    "gap",
    "state",
    "user",
    "label",
    "q",
    "size",
    "after",
)
"""Names of parameters of all pages."""
HOSTILE = (
    '"><script>alert(1)</script>',
    "javascript:alert(1)",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+14:00/digits_1",
    "9" * 20,
    "9" * 5_000,
    "\0%0d%0a",
)


def words(page: str) -> str:
    """Return the text of a page without its tags."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


@pytest.mark.parametrize(
    "path", [*PATHS, "/jobs/digits_1/cancel", "/jobs.json", "/jobs/digits_1.json"]
)
def test_page_of_a_running_job_has_all_security_headers(site: Site, path: str) -> None:
    site.world.start_running()
    response = site.get(path)
    assert response.status_code == 200
    assert response.headers["Content-Security-Policy"].startswith(
        "default-src 'none'; script-src 'self'"
    )
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "same-origin"
    assert response.headers["Cache-Control"] == "private, no-cache"


def test_every_answer_has_the_security_headers(site: Site) -> None:
    """Also answers to other sites' requests, errors, redirections, files and static files."""
    site.world.start_running()
    anonymous = site.app.test_client()
    (asset,) = re.findall(r'href="(/assets/console[^"]+)"', site.text("/jobs"))
    answers = [
        *(site.get(path) for path in (*ADDRESSES, "/", "/nowhere", "/compare", asset)),
        site.get("/jobs", Host="evil.example"),
        site.get("/jobs", If_None_Match=site.get("/jobs").headers["ETag"]),
        anonymous.get("/jobs", base_url=ORIGIN),
        anonymous.get("/?token=x", base_url=ORIGIN),
        site.send("/jobs/digits_1/cancel", {}),
        site.client.options("/jobs", base_url=ORIGIN),
    ]
    assert {answer.status_code for answer in answers} == {200, 302, 304, 400, 401, 403, 404}
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"].startswith("private, ")
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("path", PATHS)
def test_page_has_neither_inline_styles_nor_scripts_nor_other_origins(
    site: Site, path: str
) -> None:
    site.world.start_running()
    page = site.text(path)
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>", page)
    assert not re.findall(r'(?:src|<link[^>]*href)="https?:', page)


def test_page_without_a_session_is_401(site: Site) -> None:
    response = site.app.test_client().get("/jobs", base_url=ORIGIN)
    assert response.status_code == 401
    assert "trainmaster console" in response.text


def test_token_works_once_and_disappears_from_the_address(site: Site) -> None:
    fresh = Site()
    first = fresh.client.get(f"/?token={fresh.sign_in.token}", base_url=ORIGIN)
    assert (first.status_code, first.headers["Location"]) == (303, "/jobs")
    assert "HttpOnly" in first.headers["Set-Cookie"]
    assert "SameSite=Lax" in first.headers["Set-Cookie"]
    assert fresh.sign_in.token not in first.headers["Set-Cookie"]
    second = fresh.app.test_client().get(f"/?token={fresh.sign_in.token}", base_url=ORIGIN)
    assert second.status_code == 401


def test_wrong_token_is_401_and_leaves_the_right_one_valid() -> None:
    fresh = Site()
    assert fresh.client.get("/?token=wrong", base_url=ORIGIN).status_code == 401
    fresh.open()


def test_foreign_host_is_403_even_with_a_session(site: Site) -> None:
    site.world.start_running()
    cookie = site.client.get_cookie(site.sign_in.cookie, domain="127.0.0.1")
    assert cookie is not None
    response = site.app.test_client().get(
        "/jobs",
        base_url="http://attacker.example:8080",
        headers={"Cookie": f"{cookie.key}={cookie.value}"},
    )
    assert response.status_code == 403
    assert site.app.test_client().get("/jobs", base_url="http://localhost:8080").status_code == 401


def test_list_shows_every_job_with_state_program_and_machines(site: Site) -> None:
    site.world.start_running()
    page = words(site.text("/jobs"))
    assert "digits_1 python -m trainer.task" in page
    assert "RUNNING" in page
    assert "1 x n1-standard-4 (chief), 2 x n1-standard-4 (worker)" in page


def test_empty_list_says_why_and_how_to_submit(site: Site) -> None:
    page = site.text("/jobs")
    assert "There are no jobs in the project my-project yet" in page
    assert "trainmaster submit --folder . -- python train.py" in page
    assert "None of the 0 jobs" in site.text("/jobs?state=FAILED")


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


def three_jobs(site: Site) -> None:
    for number, labels in ((1, {"team": "vision"}), (2, {"team": "speech"}), (3, {})):
        site.world.job_id = f"digits_{number}"
        spec = {**a_spec(), "labels": labels} if labels else a_spec()
        site.world.wait(10)
        site.world.submit(spec, source=f"gs://b/jobs/{number}.yaml#1")
    site.world.deliver()


def job_rows(page: str) -> list[str]:
    return re.findall(r'<tr id="job-([^"]+)"', page)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["digits_3", "digits_2", "digits_1"]),
        ("?label=team", ["digits_2", "digits_1"]),
        ("?label=team%3Dspeech", ["digits_2"]),
        ("?q=IGITS_3", ["digits_3"]),
        ("?state=RUNNING", []),
        ("?state=PREPARING&state=QUEUED", ["digits_3", "digits_2", "digits_1"]),
        ("?user=anna", []),
        ("?label=team&q=1", ["digits_1"]),
    ],
)
def test_list_filters_apply_together(site: Site, query: str, expected: list[str]) -> None:
    three_jobs(site)
    assert job_rows(site.text(f"/jobs{query}")) == expected


def test_list_pages_reach_every_job_once(site: Site) -> None:
    three_jobs(site)
    path, seen = "/jobs?size=1&label=team", list[str]()
    for _ in range(5):
        page = site.text(path)
        seen += job_rows(page)
        match = re.search(r'<a href="([^"]+)" rel="next"', page)
        if match is None:
            break
        path = html.unescape(match[1])
    assert seen == ["digits_2", "digits_1"]


@pytest.mark.parametrize(
    "query",
    ["state=WRONG", "size=0", "size=x", "after=yesterday", "after=2026-11-21T03:00:00Z/a/b"],
)
def test_list_with_a_wrong_parameter_is_400_and_names_it(site: Site, query: str) -> None:
    response = site.get(f"/jobs?{query}")
    assert response.status_code == 400
    assert f"{query.partition('=')[0]}: must be" in response.text


def test_unknown_job_is_404(site: Site) -> None:
    response = site.get("/jobs/unknown_1")
    assert response.status_code == 404
    assert "<p>There is no job unknown_1" in response.text


@pytest.mark.parametrize("job_id", ["..", "__x__", "a.b", "x" * 2000])
def test_invalid_job_id_is_never_looked_up(
    site: Site, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.world.store, "load", lambda *_: pytest.fail("looked up"))
    for path in (f"/jobs/{job_id}/logs", f"/jobs/{job_id}/cancel"):
        assert site.get(path).status_code in (302, 308, 404)


def failed_job(site: Site) -> World:
    world = site.world
    world.start_running()
    world.wait(30)
    error = {
        "type": "ImportError",
        "message": "no module named x",
        "frame": "task.py:3 in <module>",
    }
    world.exit_program(
        WORKER_0, 1, error=error, tail="Traceback\nImportError: <b>no</b> module named x"
    )
    world.deliver()
    assert world.state == JobState.FAILED
    return world


def test_failed_job_shows_rule_replica_error_and_output_without_reading_logs(site: Site) -> None:
    world = failed_job(site)
    page = site.text("/jobs/digits_1")
    section = words(page.partition('id="failure"')[2].partition("</section>")[0])
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


def test_text_of_programs_is_never_markup(site: Site) -> None:
    failed_job(site)
    assert "<b>no</b>" not in site.text("/jobs/digits_1")
    attack = "<script>alert(1)</script> \x1b[31mred \u202eesrever"
    site.entries = [
        {
            "timestamp": "2026-11-21T03:00:05.000000001Z",
            "insertId": "a",
            "severity": "INFO",
            "textPayload": attack,
        }
    ]
    page = site.text("/jobs/digits_1/logs")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; red esrever" in page


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize(
    "turn",
    [
        0,
        *(
            pytest.param(
                turn,
                marks=pytest.mark.heavy(
                    fact="a hostile address of the console is harmless",
                    quick="the same test with one of seven values for each parameter",
                ),
            )
            for turn in range(1, len(HOSTILE))
        ),
    ],
)
def test_parameter_of_an_address_is_never_markup_and_never_an_internal_error(
    site: Site, path: str, turn: int
) -> None:
    """The attack: a link to the console that somebody else has made.

    In each turn, a parameter gets another value.
    """
    site.world.start_running()
    for number, name in enumerate(PARAMETERS, start=turn + ADDRESSES.index(path)):
        value = HOSTILE[number % len(HOSTILE)]
        response = site.get(f"{path}{'&' if '?' in path else '?'}{urlencode({name: value})}")
        assert response.status_code in (
            HTTPStatus.OK,
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.NOT_FOUND,
        ), name
        assert "<script>alert" not in response.text or response.mimetype != "text/html", name
        assert not re.search(r"(href|action|src)=.?javascript:", response.text), name


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
    hours = 3 * 1200 / 3600
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
    assert (
        f'href="#decision-{world.ledger[-1].key}"'
        in page.partition("<svg")[2].partition("</svg>")[0]
    )


def test_machine_time_of_the_page_equals_the_usage(site: Site) -> None:
    world = failed_job(site)
    page = words(site.text("/jobs/digits_1"))
    assert world.job.ended_at is not None
    assert world.job.started_at is not None
    hours = 3 * (world.job.ended_at - world.job.started_at).total_seconds() / 3600
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


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        ("", {}),
        ("0" * 64, {}),
        (None, {"Origin": "http://attacker.example"}),
        (None, {"Origin": "null"}),
        (None, {"Sec_Fetch_Site": "cross-site"}),
        (None, {"Sec_Fetch_Site": "same-site"}),
    ],
)
def test_forged_cancellation_is_403_and_changes_nothing(
    site: Site, token: str | None, headers: dict[str, str]
) -> None:
    site.world.start_running()
    before = site.world.ledger
    assert site.post("/jobs/digits_1/cancel", token, **headers).status_code == 403
    assert site.world.ledger == before


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


def test_static_files_are_immutable_and_nothing_else_is_served(site: Site) -> None:
    page = site.text("/jobs")
    for address in re.findall(r'(?:href|src)="(/assets/[^"]+)"', page):
        response = site.get(address)
        assert response.status_code == 200
        assert "immutable" in response.headers["Cache-Control"]
    for name in ("vendor/VENDOR.toml", "vendor", "vendor/no.css", "no.toml"):
        assert site.get(f"/assets/{name}").status_code == 404
    assert site.get("/assets/../web.py").status_code in (400, 404)
    assert site.get("/assets/%2e%2e/web.py").status_code in (400, 404)
