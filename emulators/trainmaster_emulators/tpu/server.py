"""HTTP below `/v2/` and `/v2alpha1/`: routes each request to its call, and returns errors in
Google's format.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request

from trainmaster_emulators.machines.compute_errors import ApiError
from trainmaster_emulators.machines.field_mask import select_fields
from trainmaster_emulators.machines.injected_faults import CallFault
from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.rest.server import Answer, RestServer
from trainmaster_emulators.tpu.api import TpuApi
from trainmaster_emulators.tpu.cloud import TpuCloud
from trainmaster_emulators.tpu.resource_queue import TpuQueue
from trainmaster_emulators.tpu.tpu_errors import (
    disabled,
    forbidden,
    not_found,
    rate_limited,
    unreachable,
)

_PROJECT: Final = "/<any(v2, v2alpha1):version>/projects/<project>"
_ZONE: Final = _PROJECT + "/locations/<zone>"
_NODE: Final = _ZONE + "/nodes/<node_id>"
_QUEUED: Final = _ZONE + "/queuedResources/<name>"
_OPERATION: Final = _ZONE + "/operations/<name>"
_ROUTES: Final = (
    ("GET", _PROJECT + "/locations", "locations"),
    ("GET", _ZONE, "location"),
    ("GET", _ZONE + "/acceleratorTypes", "accelerator_types"),
    ("GET", _ZONE + "/runtimeVersions", "runtime_versions"),
    ("GET", _ZONE + "/nodes", "nodes"),
    ("POST", _ZONE + "/nodes", "create"),
    ("GET", _NODE, "node"),
    ("PATCH", _NODE, "update"),
    ("DELETE", _NODE, "delete"),
    ("POST", _NODE + ":getGuestAttributes", "guest_attributes"),
    ("POST", _NODE + ":start", "start"),
    ("POST", _NODE + ":stop", "stop"),
    ("GET", _ZONE + "/queuedResources", "all_queued"),
    ("POST", _ZONE + "/queuedResources", "enqueue"),
    ("GET", _QUEUED, "queued"),
    ("DELETE", _QUEUED, "delete_queued"),
    ("GET", _ZONE + "/operations", "operations"),
    ("GET", _OPERATION, "operation"),
    ("DELETE", _OPERATION, "delete_operation"),
)


class TpuServer(RestServer):
    def __init__(self, cloud: TpuCloud) -> None:
        self.cloud = cloud
        self.queue = TpuQueue(cloud)
        super().__init__(
            *((method, path, partial(self._call, verb)) for method, path, verb in _ROUTES)
        )

    def answer(self, request: Request) -> Answer:
        try:
            self.cloud.faults.admit_call()
        except ApiError:
            raise rate_limited() from None
        try:
            return super().answer(request)
        except HTTPException:
            raise not_found(request.path) from None

    def _call(
        self,
        verb: str,
        request: Request,
        /,
        version: str,
        project: str,
        zone: str = "",
        **variables: str,
    ) -> Json:
        if project != self.cloud.project.id:
            raise StatusError(
                "PERMISSION_DENIED",
                f"Permission denied on 'projects/{project}' (or it may not exist).",
            )
        match self.cloud.faults.fault_of("tpu", verb, zone):
            case CallFault.DISABLED:
                raise disabled(project)
            case CallFault.REFUSED:
                raise forbidden(verb, f"projects/{project}")
            case CallFault.UNREACHABLE:
                raise unreachable(zone)
        if zone:
            variables["zone"] = zone
        api = TpuApi(self.cloud, self.queue, request, version)
        endpoint: Callable[..., Json] = getattr(api, verb)
        return select_fields(request, endpoint(**variables))
