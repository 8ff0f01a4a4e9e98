"""The Logging emulator: checks of a write, order of a list, and filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.logging.cloud import LOG, Cloud, an_entry

JOB = 'resource.labels.job_id="digits_1"'
BASE = f'(resource.type="ml_job" OR resource.type="cloudml_job") AND {JOB}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["a", "b", "c"]),
        (BASE, ["a", "b", "c"]),
        (f'{BASE} AND timestamp>="2026-11-21T03:00:02Z"', ["b", "c"]),
        (
            (
                f'{BASE} AND timestamp>"2026-11-21T03:00:02Z" AND'
                ' timestamp<"2026-11-21T05:00:09.000000+02:00"'
            ),
            ["c"],
        ),
        (f'{BASE} AND timestamp<"2026-11-21T03:00:02.000000000Z"', ["a"]),
        (
            (
                '((timestamp="2026-11-21T03:00:02Z" AND insertId>"i1") OR'
                ' timestamp>"2026-11-21T03:00:02Z")'
            ),
            ["b", "c"],
        ),
        (
            (
                '((timestamp="2026-11-21T03:00:02Z" AND insertId>"i2") OR'
                ' timestamp>"2026-11-21T03:00:02Z")'
            ),
            ["c"],
        ),
        ('(resource.labels.task_name="ps-replica-0" OR labels.task_name="ps-replica-0")', ["c"]),
        ('labels."ml.googleapis.com/task_name"="worker-replica-0"', ["b"]),
        ("severity>=WARNING", ["b"]),
        ("severity=(INFO OR ERROR)", ["a", "b"]),
        ('textPayload:"B"', ["b"]),
        ('textPayload=~"^[ab]$"', ["a", "b"]),
        ('textPayload=~"^B"', []),
        ("jsonPayload.step>=3 jsonPayload.step<4", ["c"]),
        ("jsonPayload.message=C", ["c"]),
        ("jsonPayload:*", ["c"]),
        (f"NOT severity=ERROR AND {JOB}", ["a", "c"]),
        ("-severity=ERROR", ["a", "c"]),
        ("textPayload=a OR textPayload=b AND severity=ERROR", ["b"]),  # OR binds more tightly
        (f'logName="{LOG}"', ["a", "b", "c"]),
        ('resource.labels.job_id="other"', []),
    ],
)
def test_filter_selects_entries(cloud: Cloud, text: str, expected: list[str]) -> None:
    ps = {"type": "ml_job", "labels": {"job_id": "digits_1", "task_name": "ps-replica-0"}}
    cloud.write(
        an_entry("a", 1, insertId="i1", severity="INFO"),
        an_entry(
            "b",
            2,
            insertId="i2",
            severity="ERROR",
            labels={"ml.googleapis.com/task_name": "worker-replica-0"},
        ),
        {
            "timestamp": "2026-11-21T03:00:03Z",
            "resource": ps,
            "jsonPayload": {"message": "c", "step": 3.5},
        },
    )
    assert cloud.messages(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('resource.type!="ml_job"', "does not support the operator '!='"),
        ('textPayload!~"a.*"', "does not support the operator '!~'"),
        ('textPayload=~"a("', "Invalid regular expression 'a('"),
        ('"some text"', "search without a field"),
        ("some text", "search without a field"),
        ('severity="LOUD"', "Unknown severity"),
        ('nonsense.field="x"', "Unknown field 'nonsense.field'"),
        ('timestamp>"yesterday"', "not an RFC 3339 time"),
        ('(resource.type="ml_job"', "expected ')'"),
        ('resource.type="ml_job" OR', "unexpected end of the filter"),
        ('resource.type=("a" OR "b" AND "c")', "all be joined by OR, or all by AND"),
        ('jsonPayload.step>"three"', "with numbers only"),
        ("resource.type=a" * 2000, "longer than 20000"),
    ],
)
def test_invalid_filter_is_refused_with_the_reason(cloud: Cloud, text: str, message: str) -> None:
    status, body = cloud.post("list", {"resourceNames": ["projects/my-project"], "filter": text})
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert message in body["error"]["message"]


def test_pages_are_sorted_by_time_and_insert_id(cloud: Cloud) -> None:
    for n in (5, 3, 9, 1, 7):
        cloud.write(
            an_entry(f"late {n}", 10, insertId=f"i{n}"), an_entry(f"early {n}", n, insertId="x")
        )
    expected = [f"early {n}" for n in (1, 3, 5, 7, 9)] + [f"late {n}" for n in (1, 3, 5, 7, 9)]
    assert cloud.messages() == expected
    assert [entry["textPayload"] for entry in cloud.read(pageSize=3)] == expected
    assert [
        entry["textPayload"] for entry in cloud.read(pageSize=3, orderBy="timestamp desc")
    ] == expected[::-1]


def test_page_token_of_another_filter_is_refused(cloud: Cloud) -> None:
    cloud.write(an_entry("a", 1), an_entry("b", 2))
    request = {"resourceNames": ["projects/my-project"], "pageSize": 1}
    token = cloud.post("list", request)[1]["nextPageToken"]
    for invalid in ({"filter": JOB, "pageToken": token}, {"pageToken": "nonsense"}):
        assert cloud.post("list", {**request, **invalid})[0] == 400


def test_repeated_write_is_one_entry(cloud: Cloud) -> None:
    for _ in range(3):
        cloud.write(an_entry("once", 1, insertId="i1"))
    cloud.write(an_entry("another time", 2, insertId="i1"))
    assert cloud.messages() == ["once", "another time"]


def test_entry_takes_missing_fields_from_the_request(cloud: Cloud) -> None:
    cloud.write(
        {"textPayload": "hello", "labels": {"b": "2"}},
        resource={"type": "global", "labels": {}},
        labels={"a": "1", "b": "1"},
    )
    (entry,) = cloud.read()
    assert entry["resource"]["type"] == "global"
    assert entry["labels"] == {"a": "1", "b": "2"}
    assert entry["timestamp"] == entry["receiveTimestamp"]
    assert entry["insertId"]


@pytest.mark.parametrize(
    ("entry", "message"),
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
def test_invalid_entry_fails_the_write_unless_partial_success_is_requested(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    cloud = Cloud(tmp_path, refused=frozenset({"cloudml_job"}))
    request = {"logName": LOG, "entries": [an_entry("good", 1), an_entry("bad", 2, **entry)]}
    status, body = cloud.post("write", request)
    assert (status, cloud.read()) == (400, [])
    assert message in body["error"]["message"]
    status, body = cloud.post("write", {**request, "partialSuccess": True})
    assert status == 400
    assert list(body["error"]["details"][0]["logEntryErrors"]) == ["1"]
    assert cloud.messages() == ["good"]
    cloud.entries.close()


def test_entries_survive_a_restart(tmp_path: Path) -> None:
    first = Cloud(tmp_path)
    first.write(an_entry("kept", 1))
    first.entries.close()
    again = Cloud(tmp_path)
    assert again.messages() == ["kept"]
    again.entries.close()


def test_nan_is_refused(cloud: Cloud) -> None:
    response = cloud._client.post(
        "/v2/entries:write", data='{"entries": [{"jsonPayload": {"loss": NaN}}]}'
    )
    assert response.status_code == 400
