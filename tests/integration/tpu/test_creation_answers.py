"""How the TPU fleet handles each response of Cloud TPU to a creation, without an emulator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.integration.tpu.answers import (
    DONE,
    JOB,
    LABELS,
    NODE,
    NOT_FOUND,
    OPERATION,
    PARENT,
    Answer,
    Answers,
    ByCall,
    an_error,
)
from tests.integration.tpu.slices import ONE_HOST, ZONE, a_create, a_metadata, a_tpu_job
from tests.support.jobs import START
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.purchase import Purchase
from trainmaster.core.model.vm_names import job_label
from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.rest_api import RestApi
from trainmaster.gcp.tpu_fleet.operations import OUTCOME_VALID_S, Operations
from trainmaster.ports import Created, CreateOutcome, NotCreated, Pending


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        ({}, CapacityErrorKind.STOCKOUT, "DEADLINE_EXCEEDED"),
        (
            {"code": 7, "message": "Permission denied"},
            CapacityErrorKind.BLOCKED,
            "PERMISSION_DENIED",
        ),
    ],
    ids=["no reason", "a reason"],
)
def test_failed_request_has_the_reason_that_cloud_tpu_gives(
    monkeypatch: pytest.MonkeyPatch, error: Answer, kind: CapacityErrorKind, code: str
) -> None:
    job = a_tpu_job(ONE_HOST, purchase=Purchase(is_queued=True))
    waiting = a_create(job)
    labels = {
        "trainmaster-job": job_label(job.job_id),
        "trainmaster-vm-generation": "1",
        "trainmaster-attempt": "1",
        "trainmaster-round": "0",
    }
    failed = {
        "name": f"{PARENT}/queuedResources/{waiting.names[0]}",
        "createTime": START.isoformat(),
        "state": {"state": "FAILED", "failedData": {"error": error}},
        "tpu": {"nodeSpec": [{"node": {"labels": labels}}]},
    }
    outcome = Answers(monkeypatch, {"GET queuedResources": failed}).fleet.create(
        job, waiting, a_metadata()
    )
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (kind, code)


def test_nodes_of_a_failed_create_are_deleted_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = a_tpu_job(ONE_HOST, count=2, zones=(ZONE,))
    create = a_create(job)
    labels = {**LABELS, "trainmaster-job": job_label(job.job_id)}

    def node(name: str, number: int, **changes: str) -> Answer:
        return {
            **NODE,
            "name": f"{PARENT}/nodes/{name}",
            "id": str(number),
            "labels": {**labels, **changes},
        }

    first = node(create.names[0], 1)
    earlier = node(create.names[1], 2, **{"trainmaster-vm-generation": "0"})
    of_another_replica = f"{create.names[0].removesuffix('0')}7"
    other = node(of_another_replica, 3)
    by_call: ByCall = {
        "GET operations": [{}, DONE],
        "POST nodes": [OPERATION, an_error(403, "PERMISSION_DENIED")],
        "GET nodes": [{"nodes": [other, earlier, first]}, first],
        "GET queuedResources": {},
        "DELETE nodes": OPERATION,
    }
    answers = Answers(monkeypatch, by_call)
    outcome = answers.fleet.create(job, create, a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.BLOCKED
    assert answers.calls.count("DELETE nodes") == 1
    assert answers.paths[-2:] == [f"/v2/{first['name']}", f"/v2/{OPERATION['name']}"]


EXISTING: Final[dict[str, tuple[Answer, CreateOutcome]]] = {
    "same": (NODE, Created()),
    "newer": ({**NODE, "labels": {**LABELS, "trainmaster-vm-generation": "2"}}, Created()),
    "earlier": ({**NODE, "labels": {**LABELS, "trainmaster-vm-generation": "0"}}, Pending()),
    "without generation": (
        {**NODE, "labels": {"trainmaster-job": LABELS["trainmaster-job"]}},
        Pending(),
    ),
    "stopping": ({**NODE, "state": "STOPPING"}, Pending()),
    "preempted": ({**NODE, "state": "PREEMPTED"}, Pending()),
    "just deleted": (NOT_FOUND, Pending()),
}
"""Case → the node that has the name; outcome of creating it."""


@pytest.mark.parametrize(("node", "expected"), EXISTING.values(), ids=EXISTING)
def test_node_that_has_the_name_decides_the_outcome(
    monkeypatch: pytest.MonkeyPatch, node: Answer, expected: CreateOutcome
) -> None:
    exists = an_error(409, "ALREADY_EXISTS")
    answers = Answers(monkeypatch, {"GET operations": {}, "POST nodes": exists, "GET nodes": node})
    assert answers.fleet.create(JOB, a_create(JOB), a_metadata()) == expected


@pytest.mark.parametrize(
    ("creation", "follow", "calls"),
    [
        ({"done": False}, DONE, ["GET operations", "GET operations"]),
        ({"done": True}, DONE, ["GET operations", "POST nodes", "GET operations"]),
    ],
    ids=["running", "done"],
)
def test_creation_that_runs_is_followed_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, creation: Answer, follow: Answer, calls: list[str]
) -> None:
    metadata = {
        "target": NODE["name"],
        "verb": "create",
        "createTime": datetime.now(UTC).isoformat(),
    }
    listed = {"operations": [{**OPERATION, "metadata": metadata, **creation}]}
    answers = Answers(monkeypatch, {"GET operations": [listed, follow], "POST nodes": OPERATION})
    assert answers.fleet.create(JOB, a_create(JOB), a_metadata()) == Created()
    assert answers.calls == calls


def a_creation(name: str, age_s: float, **changes: object) -> Answer:
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    metadata = {"target": f"{PARENT}/nodes/{name}", "verb": "create", "createTime": at.isoformat()}
    return {"name": name, "metadata": metadata, "done": True, **changes}


def test_last_valid_creation_of_each_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    old = OUTCOME_VALID_S + 100
    listed = [
        a_creation("recent", 10),
        a_creation("old", old),
        a_creation("old and running", old, done=False),
        a_creation("twice", 10, error={"code": 8, "message": "no capacity"}),
        a_creation("twice", 20, done=False),
        a_creation("running before", old + 100, done=False),
        a_creation("running before", old),
        {"name": "deletion", "metadata": {"target": f"{PARENT}/nodes/deleted", "verb": "delete"}},
        {
            "name": "without time",
            "metadata": {"target": f"{PARENT}/nodes/timeless", "verb": "create"},
        },
        {"name": "without metadata"},
    ]
    Answers(monkeypatch, {"GET operations": {"operations": listed}})
    found = Operations(RestApi("https://tpu.googleapis.com", "http://127.0.0.1:9", 1.0)).creations(
        PARENT
    )
    nodes = {
        target.rpartition("/")[2]: (operation.done, operation.error)
        for target, operation in found.items()
    }
    assert nodes == {
        "recent": (True, None),
        "old and running": (False, None),
        "twice": (True, Problem("RESOURCE_EXHAUSTED", "no capacity")),
    }
