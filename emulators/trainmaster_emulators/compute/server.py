"""HTTP: routes each request to its call, and returns errors in Google's format.

/compute/v1/projects/P/…       the Compute API, for google-cloud-compute and gcloud
/batch/compute/v1              several calls in one request (gcloud)
/v2/projects/P/…               the Cloud TPU API (`trainmaster_emulators.tpu`)
/emulator/v1/…                 the emulator's own calls (`control`)
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from trainmaster_emulators.compute.api import ComputeApi, json_body
from trainmaster_emulators.compute.batch import answer_batch
from trainmaster_emulators.compute.cloud import Cloud
from trainmaster_emulators.compute.control import Control
from trainmaster_emulators.machines.api_errors import ApiError, Json, disabled, forbidden, not_found, unreachable
from trainmaster_emulators.machines.field_mask import select_fields
from trainmaster_emulators.machines.injected_faults import ALL_ZONES, Trouble
from trainmaster_emulators.tpu.server import TpuServer

log = logging.getLogger(__name__)

Handler = Callable[..., Json]

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
    *(
        (method, f"{_PROJECT}/{scope}/operations{rest}", endpoint)
        for scope in ("global", "regions/<region>", "zones/<zone>")
        for method, rest, endpoint in (
            ("GET", "", "operations"),
            ("GET", "/<name>", "operation"),
            ("POST", "/<name>/wait", "wait"),
        )
    ),
)


class ComputeServer:
    """The WSGI application."""

    def __init__(self, cloud: Cloud, control: Control) -> None:
        self.cloud, self.control = cloud, control
        self.tpus = TpuServer(control.tpus)
        control_rules = (
            Rule("/batch/compute/v1", endpoint="batch", methods=["POST"]),
            Rule("/emulator/v1/health", endpoint=lambda _: control.health(), methods=["GET"]),
            Rule(
                "/emulator/v1/address",
                endpoint=lambda request: control.address(request.args.get("name", "")),
                methods=["GET"],
            ),
            Rule("/emulator/v1/certs", endpoint=lambda _: control.certificates(), methods=["GET"]),
            Rule("/emulator/v1/jwks", endpoint=lambda _: control.key_set(), methods=["GET"]),
            Rule("/emulator/v1/faults", endpoint=lambda _: control.faults(), methods=["GET"]),
            Rule(
                "/emulator/v1/faults",
                endpoint=lambda request: control.post_faults(json_body(request)),
                methods=["POST"],
            ),
            Rule(
                "/emulator/v1/vms/<name>/processes",
                endpoint=lambda request, name: control.processes(name, request.args.get("host", "0")),
                methods=["GET"],
            ),
            Rule(
                "/emulator/v1/vms/<name>:<verb>",
                endpoint=lambda request, name, verb: control.act(name, verb, json_body(request)),
                methods=["POST"],
            ),
        )
        api_rules = tuple(Rule(path, endpoint=name, methods=[method]) for method, path, name in _ROUTES)
        self._map = Map([*control_rules, *api_rules], strict_slashes=False, merge_slashes=True)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        return (self.tpus if request.path.startswith(_TPU) else self.dispatch(request))(environ, start_response)

    def dispatch(self, request: Request) -> Response:
        try:
            endpoint, arguments = self._map.bind_to_environ(request.environ).match()
            if endpoint == "batch":
                return answer_batch(request, self.dispatch)
            if callable(endpoint):
                return _respond(endpoint(request, **arguments))
            return _respond(select_fields(request, self._compute(request, endpoint, arguments)))
        except ApiError as error:
            return _respond(error.body(), error.status)
        except HTTPException as error:
            status = error.code or 500
            return _respond(ApiError(status, "notFound", f"{error.name}: {request.path}").body(), status)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _respond(ApiError(500, "backendError", "Internal error. Please try again.").body(), 500)

    def _compute(self, request: Request, endpoint: str, arguments: Mapping[str, str]) -> Json:
        self.cloud.admit_call(request.method)
        arguments = dict(arguments)
        project = arguments.pop("project")
        if project != self.cloud.project.id:
            raise not_found(f"projects/{project}")
        zone = ALL_ZONES if endpoint == "aggregated_instances" else arguments.get("zone")
        match self.cloud.faults.trouble("compute", endpoint, zone):
            case Trouble.DISABLED:
                raise disabled(project)
            case Trouble.REFUSED:
                raise forbidden(endpoint, project)
            case Trouble.UNREACHABLE:
                raise unreachable(zone)
        handler: Handler = getattr(ComputeApi(self.cloud, request), endpoint)
        return handler(**arguments)


def _respond(body: Json, status: int = 200) -> Response:
    return Response(json.dumps(body, indent=2) + "\n", status, content_type="application/json; charset=UTF-8")
