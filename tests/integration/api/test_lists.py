"""Lists: pages, tokens and filters."""

from __future__ import annotations

import pytest

from shared.api import list_filter, paging
from shared.api.errors import ApiError
from tests.integration.api.client import JOBS, Api
from tests.support.world import World

JOB = {
    "jobId": "rnn_7",
    "state": "FAILED",
    "createTime": "2026-11-21T03:00:00Z",
    "labels": {"team": "vision", "my-key": "a"},
    "trainingInput": {"region": "us-central1", "workerCount": 3, "args": ["--a", "b"], "enableWebAccess": False},
}
FIELDS = (*JOB, "endTime", "displayName")


def several(api: Api, world: World, count: int) -> list[str]:
    """Ids of that many jobs, the youngest first."""
    ids = [f"job_{nth}" for nth in range(count)]
    for job_id in ids:
        world.wait(2)
        api.create(job_id)
    return ids[::-1]


def walk(api: Api, **query: str) -> list[list[str]]:
    found, token = [], ""
    while True:
        said = api.list(pageToken=token, **query)
        found.append([job["jobId"] for job in said.get("jobs", [])])
        token = said.get("nextPageToken", "")
        if not token:
            return found


def test_no_job_is_an_empty_answer(api: Api) -> None:
    assert api.list() == {}
    assert api.list(filter="state:FAILED") == {}


def test_pages_are_of_the_size_asked_for_and_together_every_job_once(api: Api, world: World) -> None:
    ids = several(api, world, 45)
    assert walk(api) == [ids[:20], ids[20:40], ids[40:]]
    assert walk(api, pageSize="0")[0] == ids[:20]
    assert walk(api, pageSize="15") == [ids[:15], ids[15:30], ids[30:]], "no empty page at the end"
    assert walk(api, pageSize="100") == walk(api, pageSize="5000") == [ids]


def test_jobs_made_meanwhile_do_not_move_the_pages(api: Api, world: World) -> None:
    ids = several(api, world, 6)
    first = api.list(pageSize="3")
    world.wait(2)
    api.create("younger")
    second = api.list(pageSize="3", pageToken=first["nextPageToken"])
    assert [job["jobId"] for job in second["jobs"]] == ids[3:]


def test_a_filter_that_finds_little_ends_its_page_early_with_a_way_to_go_on(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "JOBS_READ_MAX", 12)
    several(api, world, 40)
    found = walk(api, pageSize="5", filter="jobId=job_3")
    assert [job_id for page in found for job_id in page] == ["job_3"]
    assert len(found) == 4


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("page_size", {"pageSize": "-1"}),
        ("page_size", {"pageSize": "many"}),
        ("page_token", {"pageToken": "nonsense"}),
        ("page_token", {"pageToken": "WzEsMl0"}),
        ("page_token", {"pageToken": "WyIyMDI2LTExLTIxVDAzOjAwOjAwIiwgImEiXQ"}),
        ("page_token", {"pageToken": "é"}),
        ("filter", {"filter": "nonsense:1"}),
    ],
)
def test_a_parameter_that_cannot_be_read_is_named(api: Api, name: str, query: dict[str, str]) -> None:
    error = api.refused("GET", JOBS, **query)
    assert (error["code"], error["details"][0]["fieldViolations"][0]["field"]) == (400, name)


def test_the_discovery_documents_own_examples(api: Api, world: World) -> None:
    for job_id in ("census_1", "rnn_1", "rnn_2"):
        api.create(job_id)
    api.cancel("rnn_2")
    assert walk(api, filter="jobId:rnn* AND state:CANCELLED") == [["rnn_2"]]
    assert walk(api, filter="jobId:census*") == [["census_1"]]


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
def test_a_filter_that_holds(text: str) -> None:
    assert list_filter.parse_filter(text, FIELDS)(JOB)


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
def test_a_filter_that_does_not_hold(text: str) -> None:
    assert not list_filter.parse_filter(text, FIELDS)(JOB)


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
def test_a_filter_that_cannot_be_read_is_an_invalid_argument(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        list_filter.parse_filter(text, FIELDS)
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
