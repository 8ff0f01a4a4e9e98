"""The check of exchanges finds what Google's documents do not allow: each kind of
difference, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.conformance.checker import Exchange, check

Body = dict[str, Any]
ZONE = "/compute/v1/projects/p/zones/us-central1-a"
OPERATION = {
    "kind": "compute#operation",
    "id": "12",
    "name": "operation-1",
    "status": "RUNNING",
    "progress": 0,
}
PROPERTIES = {
    "machineType": "n1-standard-4",
    "disks": [{"boot": True, "initializeParams": {"diskSizeGb": "100"}}],
}
INSERT = Exchange(
    "POST",
    f"{ZONE}/instances/bulkInsert",
    "requestId=5f&$alt=json%3Benum-encoding%3Dint",
    json.dumps(
        {"count": "2", "perInstanceProperties": {"tm-a": {}}, "instanceProperties": PROPERTIES}
    ),
    200,
    json.dumps(OPERATION),
)
SCHEDULE = Exchange(
    "POST",
    "/v1/projects/p/locations/us-central1/jobs",
    query="",
    request=json.dumps({"name": "j", "schedule": "* * * * *", "attemptDeadline": "30s"}),
    status=200,
    response=json.dumps(
        {
            "name": "j",
            "state": "ENABLED",
            "scheduleTime": "2026-11-26T00:00:00Z",
            "lastAttemptTime": "2026-11-26T00:00:00.5Z",
        }
    ),
)
PUBLISH = Exchange(
    "POST",
    "/v1/projects/p/topics/t:publish",
    query="",
    request='{"messages": [{"data": "aGk="}]}',
    status=200,
    response='{"messageIds": ["1"]}',
)
METRIC = Exchange(
    "GET",
    "/v3/projects/p/timeSeries",
    "filter=x&interval.startTime=2026-11-26T00:00:00Z&interval.endTime=2026-11-26T00:01:00Z&pageSize=10",
    request="",
    status=200,
    response=json.dumps(
        {"timeSeries": [{"metricKind": "GAUGE", "points": [{"value": {"doubleValue": 1.5}}]}]}
    ),
)
LISTING = Exchange(
    "GET",
    f"{ZONE}/instances",
    "maxResults=500&filter=x",
    request="",
    status=200,
    response='{"items": [{"id": "1"}]}',
)
BUCKETS = Exchange(
    "GET", "/storage/v1/b", "project=p", request="", status=200, response='{"items": []}'
)
NODE = Exchange(
    "POST",
    "/v2/projects/p/locations/us-central1-a/nodes",
    "nodeId=n",
    '{"runtimeVersion": "v2-alpha-tpuv5-lite", "acceleratorType": "v5litepod-4"}',
    200,
    '{"name": "projects/p/locations/us-central1-a/operations/o", "done": false}',
)


@pytest.mark.parametrize("exchange", [INSERT, SCHEDULE, PUBLISH, METRIC, LISTING, BUCKETS, NODE])
def test_conforming_exchange_has_no_fault(exchange: Exchange) -> None:
    method_id, faults = check(exchange)
    assert method_id
    assert faults == ()


def _in(part: str, change: Callable[[Body], object]) -> Callable[[Exchange], Exchange]:
    def mutate(exchange: Exchange) -> Exchange:
        body = json.loads(getattr(exchange, part) or "{}")
        change(body)
        return (
            replace(exchange, request=json.dumps(body))
            if part == "request"
            else replace(exchange, response=json.dumps(body))
        )

    return mutate


def request(change: Callable[[Body], object]) -> Callable[[Exchange], Exchange]:
    return _in("request", change)


def response(change: Callable[[Body], object]) -> Callable[[Exchange], Exchange]:
    return _in("response", change)


def query(text: str) -> Callable[[Exchange], Exchange]:
    return lambda exchange: replace(exchange, query=text)


MUTATIONS: dict[str, tuple[Exchange, Callable[[Exchange], Exchange], str]] = {
    "wrong verb": (PUBLISH, lambda exchange: replace(exchange, verb="GET"), "it has POST"),
    "unknown path": (
        INSERT,
        lambda exchange: replace(exchange, path=f"{ZONE}/machines"),
        "no document has it",
    ),
    "unknown parameter": (
        LISTING,
        query("maxResults=1&returnSome=true"),
        "no parameter returnSome",
    ),
    "parameter in snake case": (LISTING, query("max_results=1"), "no parameter max_results"),
    "parameter that is not an integer": (LISTING, query("maxResults=all"), "is not an integer"),
    "parameter that is not boolean": (
        LISTING,
        query("returnPartialSuccess=1"),
        "returnPartialSuccess",
    ),
    "parameter twice": (LISTING, query("maxResults=1&maxResults=2"), "may not be repeated"),
    "parameter outside its enum": (
        METRIC,
        query(f"{METRIC.query}&view=ALL"),
        "is not a value of the enum",
    ),
    "missing parameter": (BUCKETS, query(""), "the parameter project is missing"),
    "unknown field": (INSERT, request(lambda body: body.update(size=2)), "there is no field size"),
    "field in snake case": (
        INSERT,
        request(lambda body: body["instanceProperties"].update(machine_type="x")),
        "machine_type",
    ),
    "unknown nested field": (
        INSERT,
        request(lambda body: body["perInstanceProperties"]["tm-a"].update(zone="z")),
        "no field zone",
    ),
    "object in place of a list": (
        INSERT,
        request(lambda body: body["instanceProperties"].update(disks={})),
        "is not a list",
    ),
    "text in place of an object": (
        INSERT,
        request(lambda body: body.update(perInstanceProperties="a")),
        "not an object",
    ),
    "text in place of a boolean": (
        INSERT,
        request(lambda body: body["instanceProperties"]["disks"][0].update(boot="yes")),
        "not boolean",
    ),
    "int64 with a fraction": (
        INSERT,
        request(lambda body: body.update(count="2.5")),
        "is not int64",
    ),
    "number in place of a text": (
        SCHEDULE,
        request(lambda body: body.update(schedule=5)),
        "is not a string",
    ),
    "duration without unit": (
        SCHEDULE,
        request(lambda body: body.update(attemptDeadline="30")),
        "is not a duration",
    ),
    "output-only field": (
        SCHEDULE,
        request(lambda body: body.update(state="ENABLED")),
        "is output only",
    ),
    "data that is not base64": (
        PUBLISH,
        request(lambda body: body["messages"][0].update(data="*")),
        "is not base64",
    ),
    "body of a method without one": (
        LISTING,
        request(lambda body: body.update(a=1)),
        "no request body",
    ),
    "body that is not JSON": (
        PUBLISH,
        lambda exchange: replace(exchange, request="{"),
        "request: is not JSON",
    ),
    "answer outside its enum": (
        INSERT,
        response(lambda body: body.update(status="BUSY")),
        "is not a value of the enum",
    ),
    "answer with an unknown field": (
        INSERT,
        response(lambda body: body.update(state="x")),
        "no field state",
    ),
    "answer with int64 as a number": (
        INSERT,
        response(lambda body: body.update(id=12)),
        "is not uint64",
    ),
    "answer with a number as a text": (
        INSERT,
        response(lambda body: body.update(progress="0")),
        "type integer",
    ),
    "answer that is not a time": (
        SCHEDULE,
        response(lambda body: body.update(scheduleTime="today")),
        "is not a time",
    ),
    "answer with a text as a number": (
        METRIC,
        response(lambda body: body["timeSeries"][0]["points"][0]["value"].update(doubleValue="1")),
        "type number",
    ),
    "answer that is not JSON": (
        PUBLISH,
        lambda exchange: replace(exchange, response="ok"),
        "response: is not JSON",
    ),
}


@pytest.mark.parametrize(("exchange", "mutate", "fault"), MUTATIONS.values(), ids=MUTATIONS)
def test_each_kind_of_difference_is_found(
    exchange: Exchange, mutate: Callable[[Exchange], Exchange], fault: str
) -> None:
    _, faults = check(mutate(exchange))
    assert [found for found in faults if fault in found]


def test_required_field_that_is_missing_is_found() -> None:
    body = json.dumps({"instances": []})
    path = "/compute/v1/projects/p/zones/us-central1-a/instances/i/setMetadata"
    missing = [
        fault
        for fault in check(
            Exchange("POST", path, query="", request=body, status=200, response="{}")
        )[1]
        if "instances" in fault
    ]
    assert missing


def test_refused_calls_and_calls_of_other_apis_are_not_checked() -> None:
    assert check(replace(INSERT, status=400, request='{"x": 1}')) == ("", ())
    assert check(
        Exchange("GET", "/v1/projects/p/customJobs", "x=1", request="", status=200, response="[]")
    ) == ("", ())
