"""How the TPU fleet handles each response of Cloud TPU to a deletion, without an emulator."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest

from tests.integration.tpu.answers import (
    DONE,
    FAILED,
    JOB,
    NAME,
    NODE,
    NOT_FOUND,
    OPERATION,
    QUEUED,
    Answer,
    Answers,
    ByCall,
    an_error,
    node_vm,
    queued_vm,
)
from trainmaster.core.model.vm import Vm
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.gcp.tpu_fleet import TpuFleet, queued_resources
from trainmaster.gcp.tpu_fleet import fleet as adapter
from trainmaster.gcp.vm_defaults import VmDefaults

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


def test_nothing_of_a_job_is_left_beside_its_nodes() -> None:
    assert TpuFleet(VmDefaults("p"), endpoint="http://127.0.0.1:9").release(JOB) is True
