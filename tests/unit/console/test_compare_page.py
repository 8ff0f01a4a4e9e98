"""Jobs side by side, on a page of the console."""

from __future__ import annotations

import html
import re

import pytest

from tests.support.console_browser import add_progress, compared_world
from tests.support.console_site import Site
from tests.support.study import Study
from tests.unit.console.pages import between
from trainmaster.errors import TemporaryError
from trainmaster.ports import Loaded
from trainmaster_local.memory.store import MemoryStore

BOTH = "/compare?job=digits_1&job=digits_2"


@pytest.fixture
def site() -> Site:
    """The console of an installation with two jobs.

    `digits_1` (two workers, 5 epochs) has failed. `digits_2` (three workers, 9 epochs, and a name
    that looks like markup) runs.
    """
    site = Site(compared_world())
    site.open()
    return site


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of all rows outside of charts, by the headings of their rows."""
    return {
        html.unescape(name): list(
            map(html.unescape, re.findall(r'<td class="wide"[^>]*>([^<]*)</td>', cells))
        )
        for name, cells in re.findall(
            r'<tr[^>]*>\s*<th scope="row">([^<]*)</th>(.*?)</tr>', page, re.DOTALL
        )
    }


def test_page_shows_facts_and_only_the_fields_that_differ(site: Site) -> None:
    page = site.text(BOTH)
    shown = rows(page)
    assert shown["state"] == ["FAILED", "RUNNING"]
    assert shown["ran"] == ["10 min 1 s", "9 min 51 s"]
    assert {name: values for name, values in shown.items() if name.startswith("trainingInput")} == {
        "trainingInput.args --epochs": ["5", "9"],
        "trainingInput.args --name": ["-", "<b>"],
        "trainingInput.workerCount": ["2", "3"],
    }
    assert "<b>" not in page
    assert site.queries == []


def test_curves_of_jobs_begin_together_and_share_their_charts(site: Site) -> None:
    add_progress(site, "digits_2", {"metric/loss": [3.0, 2.0, 1.0]})
    add_progress(site, "digits_1", {"metric/loss": [2.5, 1.5], "step": [20.0, 40.0]})
    page = site.text(BOTH)
    assert re.findall(r"<h3[^>]*>([^<]*)<", page) == ["loss", "Step"]
    assert 'data-start="1970-01-01T00:00:00+00:00"' in page
    chart = between(page, "loss</h3>", "</section>")
    table = re.findall(r'<tr><th scope="row"><time [^>]*>([^<]*)</time></th>(.*?)</tr>', chart)
    assert [(at, re.findall(r">([^<]+)<", cells)) for at, cells in table] == [
        ("3 min 0 s", ["-", "1"]),
        ("2 min 0 s", ["1.5", "2"]),
        ("1 min 0 s", ["2.5", "3"]),
    ]
    assert re.findall(r"<polyline[^>]*><title>([^<]*)</title>", chart) == ["digits_1", "digits_2"]
    assert len(site.metrics.queries) == 4, "two for each job"


def test_tuning_job_and_job_without_machines_are_compared(site: Site) -> None:
    study = Study()
    study.start_tuning(maxTrials=4, maxParallelTrials=2)
    study.report_ready(1)
    study.complete_trial(1, 0.75)
    study.job_id = "queued"
    study.submit(source="gs://b/jobs/queued.yaml#1")
    site = Site(study)
    site.open()
    shown = rows(
        site.text("/compare?job=digits_1&job=queued&job=digits_1-trial-1&job=digits_1-trial-2")
    )
    assert shown["best accuracy"] == ["0.75 (trial 1)", "-", "-", "-"]
    assert shown["ran"][1] == "-"
    assert shown["hyperparameters.layers"][:2] == ["-", "-"]
    assert all(value.isdecimal() for value in shown["hyperparameters.layers"][2:])


def test_poll_reads_the_documents_of_the_jobs_and_is_304(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = site.get(BOTH).headers["ETag"]
    read: list[str] = []
    load = MemoryStore.load

    def load_and_count(
        store: MemoryStore, job_id: str, replica: str | None = None
    ) -> Loaded | None:
        read.append(job_id)
        return load(store, job_id, replica)

    monkeypatch.setattr(MemoryStore, "load", load_and_count)
    assert site.get(BOTH, If_None_Match=etag).status_code == 304
    assert sorted(read) == ["digits_1", "digits_2"]


def test_page_is_complete_where_metrics_cannot_be_read(site: Site) -> None:
    site.metrics.error = TemporaryError("503: later")
    page = site.text(BOTH)
    assert page.count("503: later.") == 1
    assert rows(page)["attempts"] == ["1", "1"]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("", 400, "1 to 6 jobs can be compared; 0 are named"),
        ("?job=", 400, "0 are named"),
        ("?" + "&".join(f"job=digits_{number}" for number in range(7)), 400, "7 are named"),
        ("?job=digits_1&job=digits_9", 404, "There is no job digits_9"),
        ("?job=digits_1&job=../x", 404, "There is no job ../x"),
        ("?job=digits_1&job=digits_1&job=", 200, "What differs"),
    ],
)
def test_wrong_choice_of_jobs_is_named(site: Site, query: str, status: int, words: str) -> None:
    response = site.get(f"/compare{query}")
    assert (response.status_code, words in response.text) == (status, True)


def test_list_and_page_of_a_job_lead_to_the_comparison(site: Site) -> None:
    assert '<input type="checkbox" name="job" value="digits_2"' in site.text("/jobs")
    assert 'href="/compare?job=digits_2"' in site.text("/jobs/digits_2")
    assert "Another job" in site.text("/compare?job=digits_2")
