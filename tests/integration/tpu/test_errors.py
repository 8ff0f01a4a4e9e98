"""Classification of Cloud TPU's errors, with responses that users have published."""

from __future__ import annotations

import json

import pytest
import requests
from google.api_core import exceptions
from google.rpc import code_pb2, status_pb2

from trainmaster.core.events import CapacityErrorKind
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.tpu_fleet.errors import (
    not_created,
    problem_of,
    problem_of_operation,
    problem_of_status,
    tpu_errors,
)
from trainmaster.ports import NotCreated

STOCKOUT, QUOTA, BLOCKED, DENIED, INTERNAL = (
    CapacityErrorKind.STOCKOUT,
    CapacityErrorKind.QUOTA,
    CapacityErrorKind.BLOCKED,
    CapacityErrorKind.DENIED,
    CapacityErrorKind.INTERNAL,
)

QUOTA_OF_REGION = (
    "Quota 'TPUV2sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 32 in region"
    " us-central1"
)
QUOTA_OF_ZONE = (
    "Quota 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI' exhausted. Limit 4 in zone"
    " us-central1-a"
)
LIMIT = (
    "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in"
    " region us-east5."
)
LOST = (
    "Cloud TPU received a bad request. update is not supported while in state PREEMPTED [EID:"
    " 0x73013519f5b7feb2]"
)

IN_OPERATIONS = [
    (
        "RESOURCE_EXHAUSTED",
        'There is no more capacity in the zone "europe-west4-a"; you can try in another',
        STOCKOUT,
    ),
    ("INVALID_ARGUMENT", LOST, STOCKOUT),
    (
        "FAILED_PRECONDITION",
        "Insufficient reserved capacity. Contact customer support to increase",
        STOCKOUT,
    ),
    ("RESOURCE_EXHAUSTED", "Insufficient capacity.", STOCKOUT),
    ("RESOURCE_EXHAUSTED", QUOTA_OF_REGION, QUOTA),
    ("RESOURCE_EXHAUSTED", LIMIT, QUOTA),
    ("RESOURCE_EXHAUSTED", QUOTA_OF_ZONE, STOCKOUT),
    (
        "INVALID_ARGUMENT",
        "Cloud TPU received a bad request. The runtime version is not valid",
        DENIED,
    ),
    (
        "PERMISSION_DENIED",
        "Permission 'iam.serviceaccounts.actAs' denied on service account",
        BLOCKED,
    ),
    ("FAILED_PRECONDITION", "This API method requires billing to be enabled", BLOCKED),
    ("NOT_FOUND", "Reservation not found.", BLOCKED),
    ("INTERNAL", "Internal error", INTERNAL),
    ("UNAVAILABLE", "The service is currently unavailable", INTERNAL),
]


@pytest.mark.parametrize(("code", "message", "kind"), IN_OPERATIONS)
def test_failed_operation_is_classified(code: str, message: str, kind: CapacityErrorKind) -> None:
    status = status_pb2.Status(code=code_pb2.Code.Value(code), message=message)
    outcome = not_created(problem_of_status(status))
    assert (outcome.kind, outcome.code, outcome.message) == (kind, code, message)


def test_operation_without_a_code_failed_for_an_unknown_reason() -> None:
    assert problem_of_operation({}) == Problem("UNKNOWN", message="")
    assert not_created(problem_of_operation({"message": "no"})) == NotCreated(
        INTERNAL, "UNKNOWN", "no"
    )


def api_error(http: int, code: str, message: str) -> exceptions.GoogleAPICallError:
    """Return the exception that the REST transport raises."""
    response = requests.Response()
    response.status_code = http
    response._content = json.dumps(
        {"error": {"code": http, "status": code, "message": message}}
    ).encode()
    response.request = requests.Request("POST", "https://tpu.googleapis.com/v2/nodes").prepare()
    error: exceptions.GoogleAPICallError = exceptions.from_http_response(response)
    return error


TRANSIENT = [
    api_error(
        429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Create requests' per minute"
    ),
    api_error(429, "RESOURCE_EXHAUSTED", "Maximum number of CreateNode requests per minute"),
    api_error(503, "UNAVAILABLE", "The service is currently unavailable"),
    api_error(500, "INTERNAL", "Internal error"),
    api_error(409, "ABORTED", "Another operation is in progress"),
    api_error(403, "PERMISSION_DENIED", "Permission 'tpu.nodes.create' denied"),
]
REFUSED = [
    api_error(
        429,
        "RESOURCE_EXHAUSTED",
        "Quota limit 'TPUV6EPerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0",
    ),
    api_error(400, "INVALID_ARGUMENT", "Cloud TPU received a bad request."),
    api_error(503, "UNAVAILABLE", 'There is no more capacity in the zone "z"'),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda error: problem_of(error).message[:30])
def test_transient_error_is_temporary(error: exceptions.GoogleAPICallError) -> None:
    with pytest.raises(TemporaryError), tpu_errors("try"):
        raise error


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: problem_of(error).message[:30])
def test_refusal_contains_the_call(error: exceptions.GoogleAPICallError) -> None:
    with (
        pytest.raises(RefusedError, match=r"^create x: Google refuses the call: [A-Z_]+: "),
        tpu_errors("create x"),
    ):
        raise error


def test_response_that_is_not_json_has_the_http_status_as_code() -> None:
    response = requests.Response()
    response.status_code = 502
    response._content = b"<html>Bad gateway"
    response.request = requests.Request("GET", "https://tpu.googleapis.com/").prepare()
    error = exceptions.from_http_response(response)
    assert problem_of(error).code == "502"
    assert "Bad gateway" in problem_of(error).message
    with pytest.raises(TemporaryError), tpu_errors("list"):
        raise error


def test_connection_error_is_temporary() -> None:
    with pytest.raises(TemporaryError), tpu_errors("list"):
        raise requests.ConnectionError("refused")
