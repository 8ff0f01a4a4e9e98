"""Lists: pages, tokens and filters."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.integration.api.client import JOBS, Api
from tests.support.world import World
from trainmaster.api import list_filter, paging
from trainmaster.api.errors import ApiError
from trainmaster.core.model.job import Job

JOB = {
    "jobId": "rnn_7",
    "state": "FAILED",
    "createTime": "2026-11-21T03:00:00Z",
    "labels": {"team": "vision", "my-key": "a"},
    "trainingInput": {
        "region": "us-central1",
        "workerCount": 3,
        "args": ["--a", "b"],
        "enableWebAccess": False,
    },
}
FIELDS = frozenset((*JOB, "endTime", "displayName"))


def create_jobs(api: Api, world: World, count: int) -> list[str]:
    """Create jobs and return their ids, the newest first."""
    ids = [f"job_{number}" for number in range(count)]
    for job_id in ids:
        world.wait(2)
        api.create(job_id)
    return ids[::-1]


class Unprintable(dict[str, object]):
    def __str__(self) -> str:
        return pytest.fail("written as text")


def a_token(position: list[object]) -> str:
    """Return the page token of a position, as the API writes it: a time and a job id."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def read_all_pages(api: Api, **query: str) -> list[list[str]]:
    pages, token = [], ""
    while True:
        page = api.list(pageToken=token, **query)
        pages.append([job["jobId"] for job in page.get("jobs", [])])
        token = page.get("nextPageToken", "")
        if not token:
            return pages


def test_list_without_jobs_is_an_empty_object(api: Api) -> None:
    assert api.list() == {}
    assert api.list(filter="state:FAILED") == {}


def test_pages_have_requested_size_and_contain_every_job_once(api: Api, world: World) -> None:
    ids = create_jobs(api, world, 45)
    assert read_all_pages(api) == [ids[:20], ids[20:40], ids[40:]]
    assert read_all_pages(api, pageSize="0")[0] == ids[:20]
    assert read_all_pages(api, pageSize="15") == [ids[:15], ids[15:30], ids[30:]], (
        "no empty page at the end"
    )
    assert read_all_pages(api, pageSize="100") == read_all_pages(api, pageSize="5000") == [ids]


def test_jobs_created_between_pages_do_not_shift_them(api: Api, world: World) -> None:
    ids = create_jobs(api, world, 6)
    first = api.list(pageSize="3")
    world.wait(2)
    api.create("younger")
    second = api.list(pageSize="3", pageToken=first["nextPageToken"])
    assert [job["jobId"] for job in second["jobs"]] == ids[3:]


def test_page_with_rare_matches_ends_early_with_a_token(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "JOBS_READ_MAX", 12)
    create_jobs(api, world, 40)
    pages = read_all_pages(api, pageSize="5", filter="jobId:*b_3")
    assert [job_id for page in pages for job_id in page] == ["job_3"]
    assert len(pages) == 4


def test_page_whose_filter_takes_long_ends_early_with_a_token(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_jobs(api, world, 12)
    read = world.store.recent_jobs

    def read_slowly(*args: Any) -> tuple[Job, ...]:
        world.wait(paging.PAGE_S_MAX)
        return read(*args)

    monkeypatch.setattr(world.store, "recent_jobs", read_slowly)
    pages = read_all_pages(api, pageSize="2", filter="jobId:*b_3")
    assert [job_id for page in pages for job_id in page] == ["job_3"]
    assert [len(page) for page in pages] == [0, 0, 1, 0, 0], "each has read three jobs"


def test_order_is_compared_with_short_texts_only() -> None:
    """A job's whole specification may have 64 KiB, and a filter two hundred comparisons."""
    condition = list_filter.parse_filter("trainingInput>1", frozenset(("trainingInput",)))
    monstrous = Unprintable(args=["9"])
    assert not condition.holds({"trainingInput": monstrous})
    assert not condition.holds({"trainingInput": "0" * 10_000 + "9"})
    assert condition.holds({"trainingInput": 2})
    assert condition.holds({"trainingInput": "2026-11-21T03:00:00.123456789+14:00"})


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("page_size", {"pageSize": "-1"}),
        ("page_size", {"pageSize": "many"}),
        ("page_token", {"pageToken": "nonsense"}),
        ("page_token", {"pageToken": a_token([1, 2])}),
        ("page_token", {"pageToken": a_token(["2026-11-21T03:00:00", "a"])}),  # no time zone
        ("page_token", {"pageToken": "é"}),
        ("filter", {"filter": "nonsense:1"}),
    ],
)
def test_wrong_list_parameter_is_refused_by_its_name(
    api: Api, name: str, query: dict[str, str]
) -> None:
    error = api.send_refused("GET", JOBS, **query)
    assert (error["code"], error["details"][0]["fieldViolations"][0]["field"]) == (400, name)


@pytest.mark.parametrize(
    ("time", "job_id"),
    [
        ("0001-01-01T00:00:00+14:00", "job_1"),
        ("9999-12-31T23:59:59-14:00", "job_1"),
        ("2026-11-21T03:00:00+00:00", "__job__"),
        ("2026-11-21T03:00:00+00:00", "a" * 2_000),
        ("2026-11-21T03:00:00+00:00", f"tuning-trial-{'9' * 2_000}"),
    ],
)
def test_forged_page_token_that_the_store_cannot_have_is_refused(
    api: Api, time: str, job_id: str
) -> None:
    error = api.send_refused("GET", JOBS, pageToken=a_token([time, job_id]))
    assert (error["code"], error["message"]) == (
        400,
        "Field: page_token Error: must be a nextPageToken of an earlier response",
    )


def test_filter_examples_of_ml_discovery_document_are_accepted(api: Api, world: World) -> None:
    for job_id in ("census_1", "rnn_1", "rnn_2"):
        api.create(job_id)
    api.cancel("rnn_2")
    assert read_all_pages(api, filter="jobId:rnn* AND state:CANCELLED") == [["rnn_2"]]
    assert read_all_pages(api, filter="jobId:census*") == [["census_1"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "jobId:rnn*",
        "job_id = rnn_7",
        'jobId="RNN_7"',
        "jobId:*_7 AND state:FAILED",
        "jobId:*_7 state:failed",
        "state!=SUCCEEDED",
        "NOT state=SUCCEEDED",
        "-state:SUCCEEDED",
        "state:RUNNING OR state:FAILED",
        "state:RUNNING OR state:FAILED AND jobId:rnn*",
        "(state:RUNNING AND jobId:x) OR labels.team=vision",
        "NOT (state:RUNNING OR jobId:x)",
        "labels.team=vision",
        "labels.team:*",
        "labels.my-key=a",
        "NOT labels.other:*",
        "labels.other!=a",
        'createTime>"2026-11-20T00:00:00Z"',
        "create_time>=2026-11-21T03:00:00Z",
        "createTime<'2026-11-21T05:00:00+01:30'",
        "createTime>=2026-11-21",
        "trainingInput.region:us-*",
        "training_input.worker_count>2",
        "trainingInput.args:b",
        "trainingInput.enableWebAccess=false",
    ],
)
def test_filter_accepts_matching_job(text: str) -> None:
    assert list_filter.parse_filter(text, FIELDS).holds(JOB)


@pytest.mark.parametrize(
    "text",
    [
        "jobId:rnn",
        "jobId:[r]nn*",
        "jobId:rn?_7",
        "jobId:rnn* AND state:RUNNING",
        "state:RUNNING OR jobId:x",
        "state:FAILED AND jobId:x OR jobId:y",
        "-state:FAILED",
        "labels.team!=vision",
        "labels.Team=vision",
        "displayName:*",
        "endTime>2020-01-01T00:00:00Z",
        "createTime>2026-11-21T03:00:00Z",
        "trainingInput.workerCount<3",
        "trainingInput.region.x=1",
    ],
)
def test_filter_rejects_job_that_does_not_match(text: str) -> None:
    assert not list_filter.parse_filter(text, FIELDS).holds(JOB)


def test_filters_over_the_same_fields_share_a_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """To build one takes as long as a hundred filters."""
    list_filter.parse_filter("state:x", FIELDS)
    monkeypatch.delattr("lark.Lark.__init__")
    assert not list_filter.parse_filter("state:none", FIELDS).holds(JOB)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "nonsense=1",
        "state",
        "state=",
        "state:FAILED AND",
        "AND state:FAILED",
        "(state:FAILED",
        "state:FAILED)",
        "()",
        "NOT",
        "state:FAILED OR",
        "createTime>yesterday",
        "state:FAILED; DROP TABLE jobs",
        '"state"',
        "state:x " * 1000,
        "(" * 50 + "state:x" + ")" * 50,
        "\0",
    ],
)
def test_filter_with_wrong_syntax_is_an_invalid_argument(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        list_filter.parse_filter(text, FIELDS)
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
