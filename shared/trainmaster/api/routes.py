"""All methods of the API: address, required permission, handler.

The API has the methods of two services, so that their clients work unchanged: AI Platform Training
(`/projects/P/jobs`) and Vertex AI (`/projects/P/locations/L/…`). Source of the addresses: the
discovery documents of both, except for `submit` and `explain`, which are Trainmaster's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from trainmaster.api import jobs, persistent_resources, projects, submissions
from trainmaster.api.custom_jobs import CUSTOM_JOBS
from trainmaster.api.errors import Json
from trainmaster.api.permissions import (
    CANCEL,
    CREATE,
    GET,
    KEPT_MACHINES,
    LIST,
    PROJECT,
    vertex_permissions,
)
from trainmaster.api.request import Call, Service
from trainmaster.api.training_pipelines import TRAINING_PIPELINES
from trainmaster.api.tuning_jobs import TUNING_JOBS
from trainmaster.api.vertex_resource import VertexResource

Handler = Callable[[Call, Service], Json]


@dataclass(frozen=True, slots=True)
class Route:
    """A method of the API."""

    method: str
    address: str
    """Path with variables in `{}`."""
    permission: str | None
    """Permission of IAM that the caller needs in the project; None: a valid token is enough."""
    handle: Handler
    creates_job: bool = False
    """Such requests have a quota of their own."""

    @property
    def changes_something(self) -> bool:
        """Whether the caller's token must have the full scope.

        Reading a policy or permissions changes nothing.
        """
        return self.method != "GET" and self.permission is not None

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """Return the values of the variables; None if the route does not match."""
        match = self._pattern.fullmatch(path) if method == self.method else None
        return match.groupdict() if match else None

    @property
    def _pattern(self) -> re.Pattern[str]:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/:]+)", self.address)
        return re.compile(pattern)  # `re` caches compiled patterns


_PROJECT: Final = "/v1/projects/{project}"
_JOB: Final = f"{_PROJECT}/jobs/{{job}}"
_LOCATION: Final = f"{_PROJECT}/locations/{{location}}"

_RESOURCES: Final = f"{_LOCATION}/persistentResources"
_RESOURCE: Final = f"{_RESOURCES}/{{resource}}"


def _vertex_routes(resource: VertexResource) -> Iterator[Route]:
    address = f"{_LOCATION}/{resource.kind.collection}"
    job = f"{address}/{{job}}"
    create, get, list_jobs, cancel, delete = vertex_permissions(resource.kind.collection)
    yield Route("POST", address, create, resource.create, creates_job=True)
    yield Route("GET", address, list_jobs, resource.list_jobs)
    yield Route("GET", job, get, resource.get)
    yield Route("GET", f"{job}:explain", get, resource.explain)
    yield Route("POST", f"{job}:cancel", cancel, resource.cancel)
    yield Route("DELETE", job, delete, resource.delete)


ROUTES: Final = (
    Route("POST", f"{_PROJECT}/jobs", CREATE, jobs.create, creates_job=True),
    Route("POST", f"{_PROJECT}/jobs:submit", CREATE, submissions.submit, creates_job=True),
    Route("GET", f"{_PROJECT}/jobs", LIST, jobs.list_jobs),
    Route("GET", _JOB, GET, jobs.get),
    Route("PATCH", _JOB, CREATE, jobs.patch),
    Route("GET", f"{_JOB}:explain", GET, jobs.explain),
    Route("POST", f"{_JOB}:cancel", CANCEL, jobs.cancel),
    Route("GET", f"{_JOB}:getIamPolicy", GET, projects.get_policy),
    Route("POST", f"{_JOB}:setIamPolicy", CREATE, projects.set_policy),
    Route("POST", f"{_JOB}:testIamPermissions", permission=None, handle=projects.test_permissions),
    Route("GET", f"{_PROJECT}:getConfig", PROJECT, projects.get_config),
    Route("GET", f"{_PROJECT}/locations", PROJECT, projects.list_locations),
    Route("GET", _LOCATION, PROJECT, projects.get_location),
    *_vertex_routes(CUSTOM_JOBS),
    *_vertex_routes(TUNING_JOBS),
    *_vertex_routes(TRAINING_PIPELINES),
    Route("POST", _RESOURCES, f"{KEPT_MACHINES}.create", persistent_resources.create),
    Route("GET", _RESOURCES, f"{KEPT_MACHINES}.list", persistent_resources.list_resources),
    Route("GET", _RESOURCE, f"{KEPT_MACHINES}.get", persistent_resources.get),
    Route("DELETE", _RESOURCE, f"{KEPT_MACHINES}.delete", persistent_resources.delete),
)


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """Return the route of a request and the values of its variables; None if there is none."""
    for route in ROUTES:
        params = route.match(method, path)
        if params is not None:
            return route, params
    return None
