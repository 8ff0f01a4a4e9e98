"""How the TPU fleet handles each response of Cloud TPU, without an emulator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import requests
from google.cloud import tpu_v2

from tests.integration.tpu.slices import ONE_HOST, RUN, ZONE, a_create, a_metadata, a_tpu_job
from tests.support.captured_logs import CapturedLogs
from tests.support.jobs import START
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.purchase import Purchase
from trainmaster.core.model.vm import Vm
from trainmaster.core.model.vm_names import job_label
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.gcp.rest_api import RestApi
from trainmaster.gcp.tpu_fleet import TpuFleet, operations, queued_resources
from trainmaster.gcp.tpu_fleet import fleet as adapter
from trainmaster.gcp.tpu_fleet.nodes import fingerprint, vm_of
from trainmaster.gcp.tpu_fleet.operations import OUTCOME_VALID_S, Operation, Operations
from trainmaster.gcp.tpu_fleet.queued_resource_spec import vm_of as vm_of_queued
from trainmaster.gcp.vm_defaults import Problem, VmDefaults
from trainmaster.ports import Created, CreateOutcome, NotCreated, Pending, reached

PARENT: Final = f"projects/p/locations/{ZONE}"
JOB: Final = a_tpu_job(ONE_HOST, zones=(ZONE,))
NAME: Final = a_create(JOB).names[0]
LABELS: Final = {"trainmaster-job": job_label(JOB.job_id), "trainmaster-vm-generation": "1"}
NODE: Final[dict[str, Any]] = {
    "name": f"{PARENT}/nodes/{NAME}",
    "id": "17",
    "state": "READY",
    "labels": LABELS,
}
SPEC: Final = {"parent": PARENT, "nodeId": NAME, "node": {"labels": LABELS}}
QUEUED: Final[dict[str, Any]] = {
    "name": f"{PARENT}/queuedResources/{NAME}",
    "createTime": START.isoformat(),
    "state": {"state": "WAITING_FOR_RESOURCES"},
    "tpu": {"nodeSpec": [SPEC]},
}
OPERATION: Final[dict[str, Any]] = {"name": f"{PARENT}/operations/o"}
DONE: Final = {**OPERATION, "done": True}
FAILED: Final = {**DONE, "error": {"code": 13, "message": "Internal error"}}

Answer = dict[str, Any]
"""The JSON object of a response. One with `error` and `status` is an HTTP error."""
ByCall = Mapping[str, Answer | list[Answer]]
"""Answers to each call, by method and kind of resource. The last one is repeated."""


def an_error(code: int, status: str) -> Answer:
    return {"error": {"code": code, "status": status, "message": "no"}, "status": code}


NOT_FOUND: Final = an_error(404, "NOT_FOUND")


class Answers:
    """Cloud TPU with fixed answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, by_call: ByCall) -> None:
        self._by_call = {
            call: answer if isinstance(answer, list) else [answer]
            for call, answer in by_call.items()
        }
        self.calls: list[str] = []
        """The calls so far, as keys of `by_call`."""
        self.paths: list[str] = []
        """Their paths."""
        monkeypatch.setattr(requests.Session, "request", self._request)
        for module in (adapter, queued_resources):
            monkeypatch.setattr(module, "SETTLE_S", 0.0)
        self.fleet = TpuFleet(VmDefaults("p"), endpoint="http://127.0.0.1:9")

    def _request(self, method: str, url: str, **_: object) -> requests.Response:
        words = urlsplit(url).path.split("/")
        kind = next(
            word for word in reversed(words) if word in ("nodes", "queuedResources", "operations")
        )
        call = f"{method.upper()} {kind}"
        self.calls.append(call)
        self.paths.append(urlsplit(url).path)
        answers = self._by_call[call]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        response = requests.Response()
        response.status_code = (
            answer.get("status", 200) if "error" in answer and "name" not in answer else 200
        )
        response.headers["Content-Type"] = "application/json"
        response.request = requests.Request(method, url).prepare()
        response._content = json.dumps(answer).encode()
        return response


def node_vm() -> Vm:
    return vm_of(tpu_v2.Node.from_json(json.dumps(NODE)))


def queued_vm() -> Vm:
    return vm_of_queued(tpu_v2.QueuedResource.from_json(json.dumps(QUEUED)))


DELETIONS: Final[dict[str, tuple[Answer, Answer, bool, int]]] = {
    "done": (OPERATION, DONE, True, 1),
    "not done yet": (OPERATION, OPERATION, False, 1),
    "failed": (OPERATION, FAILED, False, 1),
    "gone meanwhile": (NOT_FOUND, DONE, True, 0),
    "in use": (an_error(400, "FAILED_PRECONDITION"), DONE, False, 0),
}
"""Case → answers to the deletion and to the read of its operation; whether it is gone; reads of the
operation.
"""


@pytest.mark.parametrize(
    ("deletion", "operation", "is_gone", "reads"), DELETIONS.values(), ids=DELETIONS
)
def test_node_is_gone_when_its_deletion_has_succeeded(
    monkeypatch: pytest.MonkeyPatch, deletion: Answer, operation: Answer, is_gone: bool, reads: int
) -> None:
    answers = Answers(
        monkeypatch, {"GET nodes": NODE, "DELETE nodes": deletion, "GET operations": operation}
    )
    assert answers.fleet.delete(node_vm()) is is_gone
    assert answers.calls == ["GET nodes", "DELETE nodes", *["GET operations"] * reads]


@pytest.mark.parametrize(
    ("deletion", "operation", "is_gone", "reads"), DELETIONS.values(), ids=DELETIONS
)
def test_queued_resource_is_gone_when_its_deletion_has_succeeded(
    monkeypatch: pytest.MonkeyPatch, deletion: Answer, operation: Answer, is_gone: bool, reads: int
) -> None:
    by_call = {
        "GET queuedResources": QUEUED,
        "DELETE queuedResources": deletion,
        "GET operations": operation,
    }
    answers = Answers(monkeypatch, by_call)
    assert answers.fleet.delete(queued_vm()) is is_gone
    assert answers.calls == [
        "GET queuedResources",
        "DELETE queuedResources",
        *["GET operations"] * reads,
    ]


@pytest.mark.parametrize("vm", [node_vm(), queued_vm()], ids=["node", "queued resource"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (an_error(403, "PERMISSION_DENIED"), TemporaryError),
        (an_error(400, "INVALID_ARGUMENT"), RefusedError),
        (an_error(409, "ABORTED"), TemporaryError),
    ],
    ids=["forbidden", "invalid", "aborted"],
)
def test_refused_deletion_is_an_error(
    monkeypatch: pytest.MonkeyPatch, vm: Vm, error: Answer, expected: type[Exception]
) -> None:
    by_call = {
        "GET nodes": NODE,
        "GET queuedResources": QUEUED,
        "DELETE nodes": error,
        "DELETE queuedResources": error,
    }
    with pytest.raises(expected, match=f"delete {NAME}"):
        Answers(monkeypatch, by_call).fleet.delete(vm)


def test_deletion_is_followed_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    by_call: ByCall = {
        "GET nodes": NODE,
        "DELETE nodes": OPERATION,
        "GET operations": [OPERATION, DONE],
    }
    answers = Answers(monkeypatch, by_call)
    monkeypatch.setattr(adapter, "SETTLE_S", 3.0)
    assert answers.fleet.delete(node_vm()) is True


def test_deletion_of_a_queued_resource_is_followed_for_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_call: ByCall = {
        "GET queuedResources": QUEUED,
        "DELETE queuedResources": OPERATION,
        "GET operations": [OPERATION, DONE],
    }
    answers = Answers(monkeypatch, by_call)
    monkeypatch.setattr(queued_resources, "SETTLE_S", 3.0)
    assert answers.fleet.delete(queued_vm()) is True


def test_resource_that_is_being_deleted_is_not_deleted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleting = {
        "GET nodes": {**NODE, "state": "DELETING"},
        "GET queuedResources": {**QUEUED, "state": {"state": "DELETING"}},
    }
    answers = Answers(monkeypatch, deleting)
    assert answers.fleet.delete(node_vm()) is False
    assert answers.fleet.delete(queued_vm()) is False
    assert answers.calls == ["GET nodes", "GET queuedResources"]


def test_resource_that_does_not_exist_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, {"GET nodes": NOT_FOUND, "GET queuedResources": NOT_FOUND})
    assert answers.fleet.delete(node_vm()) is True
    assert answers.fleet.delete(queued_vm()) is True


def test_newer_resource_of_the_same_name_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC).isoformat()
    newer = {
        "GET nodes": {**NODE, "id": "18"},
        "GET queuedResources": {**QUEUED, "createTime": later},
    }
    answers = Answers(monkeypatch, newer)
    assert answers.fleet.delete(node_vm()) is True
    assert answers.fleet.delete(queued_vm()) is True
    assert answers.calls == ["GET nodes", "GET queuedResources"]


@pytest.mark.parametrize(
    ("operation", "is_gone"), [(DONE, True), (OPERATION, False)], ids=["done", "not done yet"]
)
def test_node_of_a_queued_resource_is_deleted_after_the_queued_resource(
    monkeypatch: pytest.MonkeyPatch, operation: Answer, is_gone: bool
) -> None:
    by_call = {
        "GET nodes": {**NODE, "queuedResource": QUEUED["name"]},
        "GET queuedResources": QUEUED,
        "DELETE queuedResources": OPERATION,
        "DELETE nodes": NOT_FOUND,
        "GET operations": operation,
    }
    answers = Answers(monkeypatch, by_call)
    assert answers.fleet.delete(node_vm()) is is_gone
    assert ("DELETE nodes" in answers.calls) is is_gone


def test_resources_that_are_not_trainmasters_do_not_hide_others(
    monkeypatch: pytest.MonkeyPatch, caplog: CapturedLogs
) -> None:
    plain_node = {**NODE, "name": f"{PARENT}/nodes/plain", "labels": {}}
    odd_node = {**NODE, "name": f"{PARENT}/nodes/odd"}
    plain_queued = {
        **QUEUED,
        "name": f"{PARENT}/queuedResources/plain",
        "tpu": {"nodeSpec": [{"node": {}}]},
    }
    odd_queued = {**QUEUED, "name": f"{PARENT}/queuedResources/odd"}
    other = f"{NAME[:-1]}1"
    queued = {**QUEUED, "name": f"{PARENT}/queuedResources/{other}"}
    by_call = {
        "GET nodes": {"nodes": [plain_node, odd_node, NODE]},
        "GET queuedResources": {"queuedResources": [plain_queued, odd_queued, QUEUED, queued]},
    }
    answers = Answers(monkeypatch, by_call)
    assert [
        (vm.name, vm.instance_id.isdigit()) for vm in answers.fleet.list_vms(JOB.job_id, (ZONE,))
    ] == [
        (NAME, True),
        (other, False),
    ]
    assert caplog.text.count("odd has a job's label, but a name that no replica has") == 2


@pytest.mark.parametrize("kind", ["nodes", "queuedResources"])
def test_zone_that_cannot_be_reached_is_an_error_for_one_job_only(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A job's nodes would count as lost. A listing of all jobs finds them the next time."""
    empty: dict[str, Answer] = {"GET nodes": {}, "GET queuedResources": {}}
    answers = Answers(monkeypatch, {**empty, f"GET {kind}": {"unreachable": [ZONE]}})
    with pytest.raises(TemporaryError, match=f"Google cannot reach {ZONE}"):
        answers.fleet.list_vms(JOB.job_id, (ZONE,))
    assert reached(answers.fleet.list_all) == ((), (ZONE,), "")


def test_queue_that_cannot_be_listed_is_an_error_for_one_job_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = {
        "GET nodes": {"nodes": [NODE]},
        "GET queuedResources": an_error(403, "PERMISSION_DENIED"),
    }
    answers = Answers(monkeypatch, refused)
    with pytest.raises(TemporaryError, match=f"in {ZONE}: Google refuses the call"):
        answers.fleet.list_vms(JOB.job_id, (ZONE,))
    assert [labelled.vm.name for labelled in answers.fleet.list_all()] == [NAME]


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


UPDATES: Final[dict[str, tuple[Answer, list[Answer], bool]]] = {
    "done": (OPERATION, [OPERATION, DONE], True),
    "not done yet": (OPERATION, [OPERATION], True),
    "failed": (OPERATION, [OPERATION, FAILED], False),
    "gone meanwhile": (NOT_FOUND, [], False),
    "preempted": (an_error(400, "FAILED_PRECONDITION"), [], False),
}
"""Case → answers to the update and to the reads of its operation; whether the directive counts as
written.
"""


@pytest.mark.parametrize(("update", "operation", "is_written"), UPDATES.values(), ids=UPDATES)
def test_directive_is_written_unless_its_update_has_failed(
    monkeypatch: pytest.MonkeyPatch, update: Answer, operation: list[Answer], is_written: bool
) -> None:
    answers = Answers(
        monkeypatch, {"GET nodes": NODE, "PATCH nodes": update, "GET operations": operation}
    )
    monkeypatch.setattr(adapter, "SETTLE_S", 0.3)
    assert answers.fleet.write_directive(node_vm(), RUN) is is_written


def test_node_whose_label_was_removed_gets_a_directive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a missing key of a protobuf map with `[]` adds it, so that the node seemed to have
    changed since.
    """
    by_call: ByCall = {
        "GET nodes": [{"nodes": [NODE]}, NODE],
        "GET queuedResources": {},
        "PATCH nodes": OPERATION,
    }
    answers = Answers(monkeypatch, {**by_call, "GET operations": DONE})
    (vm,) = answers.fleet.list_vms(JOB.job_id, (ZONE,))
    assert vm.directive is None
    assert answers.fleet.write_directive(vm, RUN)


def test_directive_that_may_not_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(
        monkeypatch, {"GET nodes": NODE, "PATCH nodes": an_error(403, "PERMISSION_DENIED")}
    )
    with pytest.raises(TemporaryError, match=f"direct {NAME}: Google refuses the call"):
        answers.fleet.write_directive(node_vm(), RUN)


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
    other = node(f"{create.names[0][:-1]}7", 3)
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


def test_operation_is_polled_less_and_less_often_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    now_s = 100.0

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        pauses.append(round(pause_s, 3))
        now_s += pause_s

    Answers(monkeypatch, {"GET operations": OPERATION})
    monkeypatch.setattr(operations, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now_s))
    api = RestApi("https://tpu.googleapis.com", "http://127.0.0.1:9", 1.0)
    assert not Operations(api).follow(OPERATION["name"], 110.0).done
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 0.9]


@pytest.mark.parametrize(
    "error", [(404, "NOT_FOUND"), (501, "UNIMPLEMENTED"), (400, "FAILED_PRECONDITION")]
)
def test_operation_that_cannot_be_deleted_is_left(
    monkeypatch: pytest.MonkeyPatch, error: tuple[int, str]
) -> None:
    answers = Answers(monkeypatch, {"DELETE operations": an_error(*error)})
    Operations(RestApi("https://tpu.googleapis.com", "http://127.0.0.1:9", 1.0)).delete(
        Operation.parse(OPERATION)
    )
    assert answers.calls == ["DELETE operations"]


def test_nothing_of_a_job_is_left_beside_its_nodes() -> None:
    assert TpuFleet(VmDefaults("p"), endpoint="http://127.0.0.1:9").release(JOB) is True


def test_node_counts_as_started_ten_minutes_after_its_request() -> None:
    """Cloud TPU reports no time of the start."""
    node = tpu_v2.Node(name=NODE["name"], id=17, state=tpu_v2.Node.State.READY, create_time=START)
    assert vm_of(node).started_at == START + timedelta(minutes=10)
    assert (vm_of(node).vm_generation, vm_of(node).address) == (0, "")
    assert (
        vm_of(tpu_v2.Node(name=NODE["name"], state=tpu_v2.Node.State.CREATING)).started_at is None
    )


def test_address_of_a_slice_is_that_of_its_first_host() -> None:
    endpoints = [tpu_v2.NetworkEndpoint(ip_address=address) for address in ("10.0.0.2", "10.0.0.3")]
    assert vm_of(tpu_v2.Node(name=NODE["name"], network_endpoints=endpoints)).address == "10.0.0.2"


def test_fingerprint_does_not_depend_on_the_order_of_the_labels() -> None:
    """The order of a protobuf map depends on what was in it before."""
    labels = {f"label-{number}": "x" for number in range(30)}
    node, used = tpu_v2.Node(labels=labels), tpu_v2.Node(labels=labels)
    for number in range(1000):
        used.labels[str(number)] = "x"
    for number in range(1000):
        del used.labels[str(number)]
    assert fingerprint(used) == fingerprint(node)
    node.labels["trainmaster-directive"] = "1-2-run"
    assert fingerprint(used) != fingerprint(node)
