"""Entrances of the API: each request with an input in one of its parts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import Final
from urllib.parse import quote
from zlib import crc32

from tests.fuzz.entrance import Entrance, Entrances, RefusedError, text_of
from tests.fuzz.submissions import MANIFEST, POOL, SERVICE_JOBS
from tests.support.jobs import a_spec, a_tuning_spec
from tests.support.world import World
from trainmaster.api import handler
from trainmaster.api.permissions import EQUIVALENT_PERMISSIONS
from trainmaster.api.request import Request, Service
from trainmaster_local.memory.access import MemoryAccess

_OWNER: Final = "ya29.token-of-an-owner"
_HEADERS: Final = {"authorization": f"Bearer {_OWNER}"}
_PROJECT: Final = "/v1/projects/my-project"
_JOBS: Final = f"{_PROJECT}/jobs"
_LOCATION: Final = f"{_PROJECT}/locations/us-central1"
_CUSTOM: Final = f"{_LOCATION}/customJobs"
_TUNING: Final = f"{_LOCATION}/hyperparameterTuningJobs"
_PIPELINES: Final = f"{_LOCATION}/trainingPipelines"
_ONLY: Final = {"validateOnly": "true"}
_NUMBER: Final = b"NUMBER"
"""In an input, a number that follows from it: jobs have different ids."""

_NUMBERED_JOBS: Final = (
    {"jobId": "fuzz_NUMBER", **a_spec(), "labels": {"team": "vision"}},
    {"jobId": "tuning_NUMBER", **a_tuning_spec()},
    {"jobId": "fuzz_NUMBER_{time}", **a_spec(), "trainmaster": {"env": {"A": "b"}}},
)
_CUSTOM_JOBS: Final = (
    {"displayName": "x", "jobSpec": {"workerPoolSpecs": [POOL]}},
    {"display_name": "y", "job_spec": {"worker_pool_specs": [POOL]}, "labels": {"team": "vision"}},
    {
        "displayName": "z",
        "jobSpec": {
            "workerPoolSpecs": [{**POOL, "replicaCount": "1"}, {**POOL, "replicaCount": 2}],
            "scheduling": {"timeout": "3600s"},
        },
    },
)
_TUNING_JOB: Final = {
    "displayName": "x",
    "maxTrialCount": 4,
    "parallelTrialCount": 2,
    "studySpec": {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.1, "maxValue": 1}},
            {"parameterId": "n", "integerValueSpec": {"minValue": 1, "maxValue": 9}},
            {"parameterId": "c", "categoricalValueSpec": {"values": ["a", "b"]}},
        ],
    },
    "trialJobSpec": {"workerPoolSpecs": [POOL]},
}
_PIPELINE: Final = {
    "displayName": "x",
    "trainingTaskDefinition": (
        "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
    ),
    "trainingTaskInputs": {"workerPoolSpecs": [POOL]},
}
_SUBMISSIONS: Final = (
    {"document": json.dumps({"jobId": "file_NUMBER", **a_spec()}), "fileName": "a.json"},
    {"document": json.dumps(a_spec()), "fileName": "b_NUMBER.yaml", "time": "2026-11-21T03:00:00Z"},
    {"document": json.dumps(MANIFEST), "region": "us-central1"},
    {"document": json.dumps(_CUSTOM_JOBS[0]), "region": "us-central1"},
)
_JOB_FILTERS: Final = (
    b'state="RUNNING" AND (jobId="digits_1" OR labels.a=b)',
    b"NOT (state:FAILED OR -jobId:fuzz_*) create_time>2026-11-21T03:00:00Z",
    b"trainingInput.args:--epochs OR training_input.worker_count >= 2",
    b"labels.team:* AND jobPosition<3 AND errorMessage!='x\\'y'",
    b'createTime<"2026-11-22" startTime>0 etag:a* trainingOutput.consumedMLUnits<=1e3',
)
_CUSTOM_FILTERS: Final = (
    b'state="JOB_STATE_PENDING" OR display_name:x*',
    b'NOT displayName="x" AND labels.team=vision',
    b'job_spec.worker_pool_specs:* create_time>="2026-11-21T03:00:00Z"',
    b"error.message:* OR name:projects/*",
)
_PAGE_TOKENS: Final = tuple(
    base64.urlsafe_b64encode(position).rstrip(b"=")
    for position in (
        b'["2026-11-21T03:00:00+00:00", "digits_1"]',
        b'["2026-11-21T03:00:00.123456+00:00", "custom_123456789012345678"]',
    )
)
_INVOCATION: Final = (
    b"gcloud/1 command/gcloud.ai-platform.jobs.stream-logs invocation-id/0123456789abcdef"
)

Asked = Callable[[bytes], Request]
"""Returns the request that an input is a part of."""


def _sent(path: str, data: bytes, query: Mapping[str, str] | None = None) -> Request:
    body = data.replace(_NUMBER, str(crc32(data)).encode())
    return Request("POST", path, query or {}, _HEADERS, body)


def _entrance(ask: Asked, seeds: Sequence[object]) -> Entrance:
    """Return the entrance of an installation with one running job and a custom job."""
    world = World()
    world.start_running()
    numbers = count()
    service = Service(
        "my-project",
        world.deps,
        MemoryAccess({_OWNER: frozenset(EQUIVALENT_PERMISSIONS.values())}),
        lambda: f"r{next(numbers)}",
        "",
        0,
    )
    created = handler.serve(_sent(_CUSTOM, json.dumps(_CUSTOM_JOBS[1]).encode()), service)
    assert created.status == HTTPStatus.OK, created.body

    def read(data: bytes) -> None:
        response = handler.serve(ask(data), service)
        error = response.body.get("error")
        message = str(error["message"]) if isinstance(error, Mapping) else ""
        assert response.status != HTTPStatus.INTERNAL_SERVER_ERROR
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise RefusedError(str(response.status), message)

    return Entrance(read, seeds)


def _query(path: str, name: str, chars_max: int = 5000) -> Asked:
    return lambda data: Request("GET", path, {name: text_of(data, chars_max)}, _HEADERS)


def _patch(data: bytes) -> Request:
    return Request("PATCH", f"{_JOBS}/digits_1", {"updateMask": "labels"}, _HEADERS, data)


def _mask(data: bytes) -> Request:
    query = {"updateMask": text_of(data, 5000)}
    return Request("PATCH", f"{_JOBS}/digits_1", query, _HEADERS, b"{}")


def _path(data: bytes) -> Request:
    name = quote(text_of(data, 200), safe=":/")
    return Request("GET", f"{_JOBS}/{name}", {}, _HEADERS)


def _bearer(data: bytes) -> Request:
    headers = {"authorization": f"Bearer {text_of(data, 5000)}"}
    return Request("GET", f"{_JOBS}/digits_1", {}, headers)


def _agent_header(data: bytes) -> Request:
    headers = {**_HEADERS, "user-agent": text_of(data, 5000)}
    return Request("GET", f"{_JOBS}/digits_1", {}, headers)


def _override(data: bytes) -> Request:
    headers = {**_HEADERS, "x-http-method-override": "GET"}
    return Request("POST", _JOBS, {}, headers, data)


def _permissions(data: bytes) -> Request:
    return _sent(f"{_JOBS}/digits_1:testIamPermissions", data)


def _posted(path: str, query: Mapping[str, str] | None = None) -> Asked:
    return lambda data: _sent(path, data, query)


_ASKED: Final[Mapping[str, tuple[Asked, Sequence[object]]]] = {
    "validated job": (_posted(_JOBS, _ONLY), [*_NUMBERED_JOBS, *SERVICE_JOBS]),
    "job": (_posted(_JOBS), _NUMBERED_JOBS),
    "validated custom job": (_posted(_CUSTOM, _ONLY), _CUSTOM_JOBS),
    "custom job": (_posted(_CUSTOM), _CUSTOM_JOBS),
    "tuning job": (_posted(_TUNING), [_TUNING_JOB]),
    "pipeline": (_posted(_PIPELINES), [_PIPELINE]),
    "submitted file": (_posted(f"{_JOBS}:submit"), _SUBMISSIONS),
    "labels": (_patch, [{"labels": {"a": "b"}}, {"labels": {"team": "vision", "stage": "2"}}]),
    "update mask": (_mask, [b"labels", b"labels,", b" labels , labels"]),
    "filter": (_query(_JOBS, "filter"), _JOB_FILTERS),
    "custom jobs' filter": (_query(_CUSTOM, "filter"), _CUSTOM_FILTERS),
    "page token": (_query(_JOBS, "pageToken"), _PAGE_TOKENS),
    "page size": (_query(_JOBS, "pageSize"), [b"5", b"100", b"0"]),
    "read mask": (_query(_CUSTOM, "readMask"), [b"customJobs.name", b"*"]),
    "path": (_path, [b"digits_1", b"digits_1:explain", b"digits_1:getIamPolicy"]),
    "token": (_bearer, [_OWNER.encode()]),
    "user agent": (_agent_header, [_INVOCATION]),
    "query in a body": (_override, [b"pageSize=5&filter=state:RUNNING", b"pageToken=&pageSize=7"]),
    "permissions": (_permissions, [{"permissions": ["ml.jobs.get", "ml.jobs.cancel"]}]),
}
API: Final[Entrances] = {
    f"API: {name}": partial(_entrance, *asked) for name, asked in _ASKED.items()
}
