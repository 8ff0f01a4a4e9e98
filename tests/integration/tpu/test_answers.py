"""How the TPU fleet handles responses of Cloud TPU to lists, updates and reads of operations.

No emulator runs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Final

import pytest
from google.cloud import tpu_v2

from tests.integration.tpu.answers import (
    DONE,
    FAILED,
    JOB,
    NAME,
    NODE,
    NOT_FOUND,
    OPERATION,
    PARENT,
    QUEUED,
    Answer,
    Answers,
    ByCall,
    an_error,
    node_vm,
)
from tests.integration.tpu.slices import RUN, ZONE
from tests.support.captured_logs import CapturedLogs
from tests.support.jobs import START
from trainmaster.core.model.vm import VmStatus
from trainmaster.errors import TemporaryError
from trainmaster.gcp.rest_api import RestApi
from trainmaster.gcp.tpu_fleet import fleet as adapter
from trainmaster.gcp.tpu_fleet import operations
from trainmaster.gcp.tpu_fleet.nodes import fingerprint, vm_of
from trainmaster.gcp.tpu_fleet.operations import Operation, Operations
from trainmaster.ports import Reached, reached


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
    second_replica = NAME.removesuffix("0") + "1"
    queued = {**QUEUED, "name": f"{PARENT}/queuedResources/{second_replica}"}
    by_call = {
        "GET nodes": {"nodes": [plain_node, odd_node, NODE]},
        "GET queuedResources": {"queuedResources": [plain_queued, odd_queued, QUEUED, queued]},
    }
    answers = Answers(monkeypatch, by_call)
    vms = answers.fleet.list_vms(JOB.job_id, (ZONE,))
    assert [(vm.name, vm.status) for vm in vms] == [
        (NAME, VmStatus.RUNNING),
        (second_replica, VmStatus.QUEUED),
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
    assert reached(answers.fleet.list_all) == Reached((), unreachable=(ZONE,), refusal="")


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


def test_operation_with_an_unknown_response_type_is_parsed() -> None:
    """The client library raises an exception for it."""
    body = {
        "name": "projects/p/locations/z/operations/o",
        "done": True,
        "metadata": {
            "createTime": "2026-11-21T03:00:00.123456789Z",
            "target": "t",
            "verb": "create",
        },
        "response": {"@type": "type.googleapis.com/google.cloud.tpu.v3.Unheard", "of": 1},
    }
    operation = Operation.parse(body)
    assert (operation.target, operation.verb, operation.done, operation.error) == (
        "t",
        "create",
        True,
        None,
    )
    assert operation.started_at == datetime(2026, 11, 21, 3, 0, 0, 123456, UTC)


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
