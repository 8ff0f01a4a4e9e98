"""The Logging emulator: what may be written, in which order it is read, and what a filter lets through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.logging.cloud import LOG, Cloud, an_entry

JOB = 'resource.labels.job_id="digits_1"'
BASE = f'(resource.type="ml_job" OR resource.type="cloudml_job") AND {JOB}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ["a", "b", "c"]),
        (BASE, ["a", "b", "c"]),
        (f'{BASE} AND timestamp>="2026-11-21T03:00:02Z"', ["b", "c"]),
        (f'{BASE} AND timestamp>"2026-11-21T03:00:02Z" AND timestamp<"2026-11-21T05:00:09.000000+02:00"', ["c"]),
        (f'{BASE} AND timestamp<"2026-11-21T03:00:02.000000000Z"', ["a"]),
        ('((timestamp="2026-11-21T03:00:02Z" AND insertId>"i1") OR timestamp>"2026-11-21T03:00:02Z")', ["b", "c"]),
        ('((timestamp="2026-11-21T03:00:02Z" AND insertId>"i2") OR timestamp>"2026-11-21T03:00:02Z")', ["c"]),
        ('(resource.labels.task_name="ps-replica-0" OR labels.task_name="ps-replica-0")', ["c"]),
        ('labels."ml.googleapis.com/task_name"="worker-replica-0"', ["b"]),
        ("severity>=WARNING", ["b"]),
        ("severity=(INFO OR ERROR)", ["a", "b"]),
        ('textPayload:"B"', ["b"]),
        ("jsonPayload.step>=3 jsonPayload.step<4", ["c"]),
        ("jsonPayload.message=C", ["c"]),
        ("jsonPayload:*", ["c"]),
        (f"NOT severity=ERROR AND {JOB}", ["a", "c"]),
        ("-severity=ERROR", ["a", "c"]),
        ("textPayload=a OR textPayload=b AND severity=ERROR", ["b"]),  # OR first
        (f'logName="{LOG}"', ["a", "b", "c"]),
        ('resource.labels.job_id="nobody"', []),
    ],
)
def test_a_filter_lets_through_what_it_says(cloud: Cloud, text: str, found: list[str]) -> None:
    ps = {"type": "ml_job", "labels": {"job_id": "digits_1", "task_name": "ps-replica-0"}}
    cloud.write(
        an_entry("a", 1, insertId="i1", severity="INFO"),
        an_entry("b", 2, insertId="i2", severity="ERROR", labels={"ml.googleapis.com/task_name": "worker-replica-0"}),
        {"timestamp": "2026-11-21T03:00:03Z", "resource": ps, "jsonPayload": {"message": "c", "step": 3.5}},
    )
    assert cloud.messages(text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('resource.type!="ml_job"', "no operator '!='"),
        ('textPayload=~"a.*"', "no operator '=~'"),
        ('"some text"', "without a field"),
        ("some text", "without a field"),
        ('severity="LOUD"', "Unknown severity"),
        ('nonsense.field="x"', "Unknown field 'nonsense.field'"),
        ('timestamp>"yesterday"', "no RFC 3339 time"),
        ('(resource.type="ml_job"', "expected ')'"),
        ('resource.type="ml_job" OR', "without a field"),
        ('resource.type=("a" OR "b" AND "c")', "joined by OR, or by AND"),
        ('jsonPayload.step>"three"', "with numbers only"),
        ("resource.type=a" * 2000, "longer than 20000"),
    ],
)
def test_a_filter_that_is_not_understood_is_refused_and_names_why(cloud: Cloud, text: str, said: str) -> None:
    status, body = cloud.post("list", {"resourceNames": ["projects/my-project"], "filter": text})
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert said in body["error"]["message"]


def test_entries_come_in_the_order_of_their_time_and_insert_id_page_by_page(cloud: Cloud) -> None:
    for nth in (5, 3, 9, 1, 7):
        cloud.write(an_entry(f"late {nth}", 10, insertId=f"i{nth}"), an_entry(f"early {nth}", nth, insertId="x"))
    expected = [f"early {nth}" for nth in (1, 3, 5, 7, 9)] + [f"late {nth}" for nth in (1, 3, 5, 7, 9)]
    assert cloud.messages() == expected
    assert [each["textPayload"] for each in cloud.read(pageSize=3)] == expected
    assert [each["textPayload"] for each in cloud.read(pageSize=3, orderBy="timestamp desc")] == expected[::-1]


def test_a_page_token_of_another_filter_is_refused(cloud: Cloud) -> None:
    cloud.write(an_entry("a", 1), an_entry("b", 2))
    request = {"resourceNames": ["projects/my-project"], "pageSize": 1}
    token = cloud.post("list", request)[1]["nextPageToken"]
    for wrong in ({"filter": JOB, "pageToken": token}, {"pageToken": "nonsense"}):
        assert cloud.post("list", {**request, **wrong})[0] == 400


def test_a_write_that_is_repeated_is_one_entry(cloud: Cloud) -> None:
    for _ in range(3):
        cloud.write(an_entry("once", 1, insertId="i1"))
    cloud.write(an_entry("another time", 2, insertId="i1"))
    assert cloud.messages() == ["once", "another time"]


def test_what_an_entry_leaves_out_is_the_requests(cloud: Cloud) -> None:
    cloud.write(
        {"textPayload": "hello", "labels": {"b": "2"}},
        resource={"type": "global", "labels": {}},
        labels={"a": "1", "b": "1"},
    )
    (found,) = cloud.read()
    assert found["resource"]["type"] == "global"
    assert found["labels"] == {"a": "1", "b": "2"}
    assert found["timestamp"] == found["receiveTimestamp"]
    assert found["insertId"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"resource": None}, "needs a resource"),
        ({"logName": "trainmaster"}, "projects/PROJECT/logs/LOG"),
        ({"jsonPayload": {}}, "one payload"),
        ({"severity": "LOUD"}, "severity"),
        ({"labels": {"n": 1}}, "labels"),
        ({"timestamp": "2036-11-21T03:00:00Z"}, "in the future"),
        ({"textPayload": "x" * 260_000}, "exceeds maximum size"),
        ({"resource": {"type": "cloudml_job", "labels": {}}}, "cannot be written"),
    ],
)
def test_one_wrong_entry_spoils_the_write_unless_partial_success_is_asked_for(
    tmp_path: Path, entry: dict[str, Any], said: str
) -> None:
    cloud = Cloud(tmp_path, refused=frozenset({"cloudml_job"}))
    request = {"logName": LOG, "entries": [an_entry("good", 1), an_entry("bad", 2, **entry)]}
    status, body = cloud.post("write", request)
    assert (status, cloud.read()) == (400, [])
    assert said in body["error"]["message"]
    status, body = cloud.post("write", {**request, "partialSuccess": True})
    assert status == 400
    assert list(body["error"]["details"][0]["logEntryErrors"]) == ["1"]
    assert cloud.messages() == ["good"]
    cloud.entries.close()


def test_entries_are_there_again_after_a_restart(tmp_path: Path) -> None:
    first = Cloud(tmp_path)
    first.write(an_entry("kept", 1))
    first.entries.close()
    again = Cloud(tmp_path)
    assert again.messages() == ["kept"]
    again.entries.close()


def test_what_is_no_json_is_refused_as_google_refuses_it(cloud: Cloud) -> None:
    answer = cloud._client.post("/v2/entries:write", data='{"entries": [{"jsonPayload": {"loss": NaN}}]}')
    assert answer.status_code == 400
