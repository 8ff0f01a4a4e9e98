"""Columns of the job list: progress, GPUs, owner and cost, and the orders of the list."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.console_browser import add_progress
from tests.support.console_site import Site
from tests.support.html_tables import Table, tables_of
from tests.support.job_lists import add_job, world_of_jobs
from tests.support.jobs import CHIEF, WORKER_0, a_spec
from tests.support.world import World
from tests.unit.console.pages import between
from tests.unit.cost.price_lists import price_list
from trainmaster.console.pages import job_counts, job_list
from trainmaster.console.pages.job_filters import Filters, read_filters
from trainmaster.console.pages.job_list import JobList, read_job_list
from trainmaster.console.pages.job_order import FIRST_ORDERS, JobOrder
from trainmaster.cost.report import CostSources
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows.user_requests import cancel_job
from trainmaster.ports.metrics import Label, Metric

T4 = {"acceleratorConfig": {"count": "2", "type": "NVIDIA_TESLA_T4"}}


def run_job(
    world: World, job_id: str, source: str = "", wait_s: float = 0.0, **fields: object
) -> None:
    """Let a job wait, and then run for ten minutes."""
    world.job_id = job_id
    world.submit(a_spec(**fields), source=source or f"gs://b/jobs/{job_id}.yaml#1")
    world.wait(wait_s)
    world.deliver()
    world.report_all_ready()
    world.wait(600)


@pytest.fixture
def site() -> Site:
    """Return a console of three jobs: one succeeded, one runs with GPUs, one waits."""
    world = World()
    run_job(world, "first_1", source="cli:4711/boris", wait_s=20)
    world.exit_program(CHIEF, 0, progress={"share": 1.0, "epoch": 3, "epochs": 3})
    run_job(world, "second_2", source="cli:4711/anna", wait_s=40, masterConfig=T4, workerConfig=T4)
    world.job_id = "third_3"
    world.submit(a_spec())
    site = Site(world, cost_sources=CostSources(price_list))
    progress = {"share": [0.1, 0.41], "metric/val_loss": [3.0, 2.5], "metric/acc": [0.1, 0.2]}
    add_progress(site, "second_2", progress)
    now = world.now.replace(second=0, microsecond=0)
    for replica, use in ((CHIEF, 0.9), (WORKER_0, 0.5)):
        site.metrics.add(
            Metric.GPU,
            str(replica),
            now - timedelta(minutes=3),
            [use] * 2,
            gpu="0",
            more={Label.JOB: "second_2"},
        )
    site.open()
    return site


def table(site: Site, query: str = "") -> Table:
    return tables_of(site.text(f"/jobs{query}"))[0]


def cells(table: Table, heading: str) -> list[str]:
    index = next(
        number
        for number, name in enumerate(table.headings)
        if name.rstrip(" ▲▼").startswith(heading)
    )
    return [row[index] for row in table.rows]


def test_list_shows_progress_gpus_and_owner(site: Site) -> None:
    """A cell that is sorted by a number begins with it; "41 %" has 0.410 before it."""
    shown = table(site)
    assert cells(shown, "Progress") == ["", "0.41041 %, val_loss 2.5", "1.000100 %"]
    assert cells(shown, "GPUs") == ["", "6 x T4in use 70%", ""]
    assert cells(shown, "Owner") == ["", "annaunverified", "borisunverified"]
    machines = "1 x n1-standard-4 (chief), 2 x n1-standard-4 (worker)"
    assert cells(shown, "Machines") == [f"{machines} us-central1-a"] * 3


def test_list_has_no_column_that_no_job_needs(site: Site) -> None:
    waiting = table(site, "?q=third")
    assert waiting.headings == ["State", "Job", "Created (UTC) ▼", "Waited", "Machines"]


def test_list_without_metrics_lacks_progress_and_nothing_else(site: Site) -> None:
    site.metrics.error = TemporaryError("503")
    assert cells(table(site), "Progress") == ["", "", "1.000100 %"], "the document has that"
    site.metrics.error = PermanentError("403")
    assert cells(table(site), "GPUs") == ["", "6 x T4", ""]


def test_list_reads_all_running_jobs_with_one_call_for_each_metric(site: Site) -> None:
    run_job(site.world, "fourth_4", masterConfig=T4)
    site.metrics.queries.clear()
    site.text("/jobs")
    assert [(query.metric, query.job_id) for query in site.metrics.queries] == [
        (Metric.PROGRESS, ""),
        (Metric.GPU, ""),
        (Metric.QUIET, ""),
    ]


def test_cost_of_all_jobs_is_above_the_list(site: Site) -> None:
    page = " ".join(site.text("/jobs").split())
    costs = [float(text.split()[0]) for text in cells(table(site), "Cost") if text]
    assert len(costs) == 2
    total = between(page, 'id="cost">', "</span>")
    assert total.startswith("They cost about <strong>")
    words = between(total, "<strong>", "</strong>")
    assert float(words.split()[0]) == pytest.approx(sum(costs), abs=0.011)
    assert "Those on this page cost about" in site.text("/jobs?size=2")
    site.cost_sources = CostSources()
    unpriced = Site(site.world)
    unpriced.open()
    assert 'id="cost"' not in unpriced.text("/jobs")
    assert "Cost, about" not in unpriced.text("/jobs")


ORDERS = {
    "state": ["third_3", "second_2", "first_1"],
    "job": ["first_1", "second_2", "third_3"],
    "owner": ["second_2", "first_1", "third_3"],
    "progress": ["first_1", "second_2", "third_3"],
    "created": ["third_3", "second_2", "first_1"],
    "waited": ["second_2", "first_1", "third_3"],
    "ran": ["first_1", "second_2", "third_3"],
    "gpus": ["second_2", "third_3", "first_1"],
    "cost": ["second_2", "first_1", "third_3"],
}
"""Column → the jobs in the order of the first click."""
JOBS_WITHOUT_VALUE = {"owner": 1, "progress": 1, "ran": 1, "cost": 1, "gpus": 2}
"""Column → number of jobs whose cell is empty."""


def listed(site: Site, address: str) -> JobList:
    return read_job_list(site.console(), read_filters(parse_qs(urlsplit(address).query)))


def names(page: JobList) -> list[str]:
    return [row.job.job_id for row in page.rows]


@pytest.mark.parametrize("column", FIRST_ORDERS)
def test_first_click_sorts_by_the_column_and_the_second_reverses(site: Site, column: str) -> None:
    clicked = JobOrder("zone").next(column)
    first = names(listed(site, Filters(order=clicked).query()))
    assert first == ORDERS[column]
    second = names(listed(site, Filters(order=clicked.next(column)).query()))
    with_value = first[: len(first) - JOBS_WITHOUT_VALUE.get(column, 0)]
    assert second == with_value[::-1] + first[len(with_value) :], "jobs without a value are last"


def test_pages_of_another_order_have_each_job_once_and_keep_filters() -> None:
    site = Site(world_of_jobs(23))
    page = listed(site, "/jobs?q=digits&sort=job&order=asc&size=5")
    seen = names(page)
    while page.next_page:
        page = listed(site, page.next_page)
        seen += names(page)
    assert seen == [f"digits_{number:04d}" for number in range(1, 24)]
    assert "start=" not in page.filters.toggle_query(page.rows[0].job.state)


def test_other_order_names_the_number_of_jobs_that_were_sorted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (job_counts, job_list):
        monkeypatch.setattr(module, "JOBS_READ_MAX", 20)
    site = Site(world_of_jobs(30))
    site.open()
    page = site.text("/jobs?sort=job")
    assert "20 jobs of the 20 newest jobs; older jobs were not counted." in " ".join(page.split())
    assert 'data-poll="60"' in page


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sort=colour", "sort: must be one of state, job, owner"),
        ("sort=job&order=up", "order: must be one of asc, desc"),
        ("sort=job&start=-1", "start: must be a whole number"),
    ],
)
def test_wrong_order_is_named(site: Site, query: str, problem: str) -> None:
    response = site.get(f"/jobs?{query}")
    assert response.status_code == 400
    assert problem in response.text


def test_several_jobs_are_cancelled_after_a_page_that_names_them() -> None:
    world = World()
    for number in (1, 2, 3):
        add_job(world, number)
    cancel_job("digits_0003", "anna", world.deps)
    site = Site(world)
    site.open()
    query = "/cancel?job=digits_0001&job=digits_0002&job=digits_0003&job=digits_0001"
    page = site.text(query)
    assert "Cancel 2 jobs?" in page
    assert "Ended already, and not cancelled: digits_0003." in page
    form = {"token": site.form_token(query), "job": ["digits_0001", "digits_0002"]}
    response = site.client.post(
        "/cancel",
        base_url="http://127.0.0.1:8080",
        data=form,
        headers={"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"},
    )
    assert (response.status_code, response.headers["Location"]) == (303, "/jobs")
    for job_id in ("digits_0001", "digits_0002"):
        loaded = world.store.load(job_id)
        assert loaded is not None
        job = loaded.state.job
        assert job.state == "CANCELLED"
        assert "anna@example.com" in repr(world.store.ledger(job_id)[-1].event)


def test_cancellation_of_several_needs_a_form_permission_and_a_selection() -> None:
    site = Site(world_of_jobs(3), is_read_only=True)
    site.open()
    assert site.post("/cancel", token="").status_code == 403
    page = site.text("/cancel?job=digits_0001")
    assert "This console is read-only" in page
    assert "<form" not in page
    assert '<button disabled aria-describedby="denied">Cancel the selected' in site.text("/jobs")
    for query in ("", "?job=" + "&job=".join(f"j{number}" for number in range(101))):
        response = site.get(f"/cancel{query}")
        assert response.status_code == 400
        assert "1 to 100 jobs can be cancelled at once; " in response.text
    assert site.get("/cancel?job=none").status_code == 404


def test_job_of_a_folder_shows_its_command_folder_and_commit() -> None:
    world = World()
    packed = {"folder": "<b>digits", "commit": "4f2a9c0d5b6e7f8091a2b3c4d5e6f708192a3b4c"}
    spec = a_spec(pythonModule="trainmaster_folder", args=["torchrun", "train.py", "--name", "a b"])
    world.submit({**spec, "trainmaster": {"packedFrom": {**packed, "changed": True}}})
    site = Site(world)
    site.open()
    command = "<code>torchrun train.py --name &#39;a b&#39;</code>"
    folder = "&lt;b&gt;digits at 4f2a9c0d5b6e, with changes"
    page = " ".join(site.text(f"/jobs/{world.job_id}").split())
    assert f'{command}<span class="sub">folder {folder}</span>' in page
    assert f"{command} · {folder}</span>" in " ".join(site.text("/jobs").split())
