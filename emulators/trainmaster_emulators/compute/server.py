"""HTTP: routes each request to its call, and returns errors in Google's format.

/compute/v1/projects/P/…       the Compute API, for google-cloud-compute and gcloud
/batch/compute/v1              several calls in one request (gcloud)
/v2/projects/P/…               the Cloud TPU API (`trainmaster_emulators.tpu`)
/emulator/v1/…                 the emulator's own calls (`control`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from werkzeug.wrappers import Request

from trainmaster_emulators.compute.api import ComputeApi, json_body
from trainmaster_emulators.compute.batch import answer_batch
from trainmaster_emulators.compute.cloud import Cloud
from trainmaster_emulators.compute.control import Control
from trainmaster_emulators.machines.compute_errors import (
    ApiError,
    Json,
    disabled,
    failed,
    forbidden,
    not_found,
    unreachable,
)
from trainmaster_emulators.machines.field_mask import select_fields
from trainmaster_emulators.machines.injected_faults import ALL_ZONES, CallFault
from trainmaster_emulators.rest.server import RestServer, Route
from trainmaster_emulators.tpu.server import TpuServer

_TPU: Final = ("/v2/", "/v2alpha1/")
_PROJECT: Final = "/compute/v1/projects/<project>"
_REGION: Final = _PROJECT + "/regions/<region>"
_ZONE: Final = _PROJECT + "/zones/<zone>"
_INSTANCE: Final = _ZONE + "/instances/<name>"
_ROUTES: Final = (
    ("GET", _PROJECT, "project"),
    ("GET", _PROJECT + "/regions", "regions"),
    ("GET", _PROJECT + "/regions/<name>", "region"),
    ("GET", _PROJECT + "/zones", "zones"),
    ("GET", _ZONE, "zone"),
    ("GET", _PROJECT + "/aggregated/machineTypes", "aggregated_machine_types"),
    ("GET", _ZONE + "/machineTypes", "machine_types"),
    ("GET", _ZONE + "/machineTypes/<name>", "machine_type"),
    ("GET", _ZONE + "/acceleratorTypes", "accelerator_types"),
    ("GET", _PROJECT + "/aggregated/instances", "aggregated_instances"),
    ("GET", _ZONE + "/instances", "instances"),
    ("POST", _ZONE + "/instances", "insert"),
    ("POST", _ZONE + "/instances/bulkInsert", "bulk_insert"),
    ("GET", _INSTANCE, "instance"),
    ("DELETE", _INSTANCE, "delete"),
    ("POST", _INSTANCE + "/reset", "reset"),
    ("POST", _INSTANCE + "/stop", "stop"),
    ("POST", _INSTANCE + "/start", "start"),
    ("POST", _INSTANCE + "/setMetadata", "set_metadata"),
    ("POST", _INSTANCE + "/setLabels", "set_labels"),
    ("POST", _INSTANCE + "/simulateMaintenanceEvent", "simulate_maintenance_event"),
    ("GET", _INSTANCE + "/serialPort", "serial_port"),
    ("GET", _INSTANCE + "/getGuestAttributes", "guest_attributes"),
    ("POST", _REGION + "/advice/capacity", "advise_capacity"),
    ("GET", _REGION + "/resourcePolicies", "resource_policies"),
    ("POST", _REGION + "/resourcePolicies", "insert_resource_policy"),
    ("GET", _REGION + "/resourcePolicies/<name>", "resource_policy"),
    ("DELETE", _REGION + "/resourcePolicies/<name>", "delete_resource_policy"),
    ("GET", _PROJECT + "/aggregated/operations", "aggregated_operations"),
    ("GET", _PROJECT + "/global/operations", "operations"),
    ("GET", _PROJECT + "/global/operations/<name>", "operation"),
    ("POST", _PROJECT + "/global/operations/<name>/wait", "wait"),
    ("GET", _REGION + "/operations", "operations"),
    ("GET", _REGION + "/operations/<name>", "operation"),
    ("POST", _REGION + "/operations/<name>/wait", "wait"),
    ("GET", _ZONE + "/operations", "operations"),
    ("GET", _ZONE + "/operations/<name>", "operation"),
    ("POST", _ZONE + "/operations/<name>/wait", "wait"),
)


class ComputeServer(RestServer):
    """The WSGI application."""

    def __init__(self, cloud: Cloud, control: Control) -> None:
        self.cloud = cloud
        self.control = control
        self.tpus = TpuServer(control.tpus)
        own: tuple[Route, ...] = (
            ("GET", "/health", lambda _: control.health()),
            ("GET", "/address", lambda request: control.address(request.args.get("name", ""))),
            ("GET", "/certs", lambda _: control.certificates()),
            ("GET", "/faults", lambda _: control.faults()),
            ("POST", "/faults", lambda request: control.post_faults(json_body(request))),
            (
                "GET",
                "/zones/<zone>/vms/<vm>",
                lambda _, zone, vm: {"name": cloud.instances.name_of(zone, vm)},
            ),
            (
                "GET",
                "/vms/<name>/processes",
                lambda request, name: control.processes(name, request.args),
            ),
            (
                "POST",
                "/vms/<name>:<verb>",
                lambda request, name, verb: control.act(name, verb, json_body(request)),
            ),
        )
        super().__init__(
            ("POST", "/batch/compute/v1", lambda request: answer_batch(request, self.respond)),
            *((method, f"/emulator/v1{path}", endpoint) for method, path, endpoint in own),
            *((method, path, partial(self._call, name)) for method, path, name in _ROUTES),
        )
        # Both servers fail the calls that a test has requested through one address.
        self.tpus.failing_calls = self.failing_calls

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(_TPU):
            return self.tpus(environ, start_response)
        return super().__call__(environ, start_response)

    def requested_failure(self, status: int) -> ApiError:
        return failed(status)

    def failure(self, request: Request, status: int) -> ApiError:
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return ApiError(500, "backendError", "Internal error. Please try again.")
        return ApiError(404, "notFound", f"Not Found: {request.path}")

    def _call(self, call: str, request: Request, /, project: str, **variables: str) -> Json:
        self.cloud.admit_call(request.method)
        if project != self.cloud.project.id:
            raise not_found(f"projects/{project}")
        zone = ALL_ZONES if call == "aggregated_instances" else variables.get("zone")
        match self.cloud.faults.fault_of("compute", call, zone):
            case CallFault.DISABLED:
                raise disabled(project)
            case CallFault.REFUSED:
                raise forbidden(call, project)
            case CallFault.UNREACHABLE:
                raise unreachable(zone)
        endpoint: Callable[..., Json] = getattr(ComputeApi(self.cloud, request), call)
        return select_fields(request, endpoint(**variables))
