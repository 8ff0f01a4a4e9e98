"""Fixed responses of Cloud TPU, for tests of how the adapter handles each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import requests
from google.cloud import tpu_v2

from tests.integration.tpu.slices import ONE_HOST, ZONE, a_create, a_tpu_job
from tests.support.jobs import START
from trainmaster.core.model.vm import Vm
from trainmaster.core.model.vm_names import job_label
from trainmaster.gcp.tpu_fleet import TpuFleet, queued_resources
from trainmaster.gcp.tpu_fleet import fleet as adapter
from trainmaster.gcp.tpu_fleet.nodes import vm_of
from trainmaster.gcp.tpu_fleet.queued_resource_spec import vm_of as vm_of_queued
from trainmaster.gcp.vm_defaults import VmDefaults

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
    """Return an HTTP error with this code and Google's name of the status."""
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
        is_operation = "name" in answer  # one that failed has an error, too
        is_http_error = "error" in answer and not is_operation
        response = requests.Response()
        response.status_code = answer["status"] if is_http_error else 200
        response.headers["Content-Type"] = "application/json"
        response.request = requests.Request(method, url).prepare()
        response._content = json.dumps(answer).encode()
        return response


def node_vm() -> Vm:
    """Return the VM of `NODE`."""
    return vm_of(tpu_v2.Node.from_json(json.dumps(NODE)))


def queued_vm() -> Vm:
    """Return the VM of `QUEUED`, which waits for capacity."""
    return vm_of_queued(tpu_v2.QueuedResource.from_json(json.dumps(QUEUED)))
